// SPDX-License-Identifier: Apache-2.0
// Splits a text into words and numbers the distinct ones.
#include "bench/text.h"

#include "base/check.h"
#include "base/hash.h"
#include "bench/file_bytes.h"

#include <array>
#include <unordered_map>
#include <utility>

namespace ep::bench {
namespace {

/// The first that can be read is the default text. The licences are on every Debian system.
constexpr std::array<const char*, 3> kDefaultTexts = {
    EP_BENCH_DATA_DIR "/persuasion.txt",
    "/usr/share/common-licenses/GPL-3",
    "/usr/share/common-licenses/Apache-2.0",
};

bool is_word_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '\'' ||
         byte >= 0x80;
}

char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// The next word from `at` on, lower case; empty at the end.
std::string next_word(std::string_view content, std::size_t& at) {
  while (at < content.size() && !is_word_char(content[at])) ++at;
  std::string word;
  for (; at < content.size() && is_word_char(content[at]); ++at) word += to_lower(content[at]);
  return word;
}

}  // namespace

Result<Text> Text::from_string(std::string name, std::string_view content) {
  Text text;
  text.name_ = std::move(name);
  std::unordered_map<std::string, int> numbers;
  std::size_t at = 0;
  for (std::string word = next_word(content, at); !word.empty(); word = next_word(content, at)) {
    const auto [entry, is_new] = numbers.try_emplace(word, text.num_distinct());
    if (is_new) text.hashes_.push_back(base::fnv1a_64(word));
    text.words_.push_back(entry->second);
  }
  if (text.words_.empty()) {
    return Status(
        Errc::kInvalidArgument,
        "text '" + text.name_ + "' of " + std::to_string(content.size()) + " bytes has no word");
  }
  return text;
}

Result<Text> Text::read(const std::string& path) {
  EP_TRY_ASSIGN(const std::string content, read_file(path));
  return from_string(path, content);
}

Result<Text> Text::read_default() {
  Result<Text> text = Status(Errc::kInvalidArgument, "no default text");
  for (const std::string path : kDefaultTexts) {
    const Result<std::string> content = read_file(path);
    if (!content.ok()) continue;
    // Where it was found says nothing to the reader.
    text = from_string(path.substr(path.rfind('/') + 1), *content);
    if (text.ok()) break;
  }
  return text;
}

}  // namespace ep::bench
