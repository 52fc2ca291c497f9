// SPDX-License-Identifier: Apache-2.0
// A text as a sequence of words: the input of the moe subcommand.
#pragma once

#include <ep/status.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ep::bench {

/// Words are the longest runs of ASCII letters, digits, apostrophes and bytes above 127, in lower
/// case.
class Text {
 public:
  /// Errors: kInvalidArgument for a file that cannot be read or has no word.
  static Result<Text> read(const std::string& path);
  /// The text that ships with the bench, else a licence text of the system.
  static Result<Text> read_default();
  static Result<Text> from_string(std::string name, std::string_view content);

  const std::string& name() const { return name_; }
  std::int64_t num_words() const { return static_cast<std::int64_t>(words_.size()); }
  int num_distinct() const { return static_cast<int>(hashes_.size()); }
  /// Index of the distinct word at `position`; past its end the text starts again.
  int word_at(std::int64_t position) const {
    return words_[static_cast<std::size_t>(position % num_words())];
  }
  /// Depends on the word's letters only.
  std::uint64_t hash_of(int word) const { return hashes_[static_cast<std::size_t>(word)]; }

 private:
  std::string name_;
  std::vector<int> words_;
  std::vector<std::uint64_t> hashes_;
};

}  // namespace ep::bench
