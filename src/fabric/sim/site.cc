// SPDX-License-Identifier: Apache-2.0
// Places in the sources, by name.
#include "fabric/sim/site.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <string_view>
#include <tuple>

namespace ep::fabric::sim {
namespace {

constexpr const char* kOrderNames[] = {
    "release",   "acquire",     "sync",        "exchange", "fence",       "fence-acquired",
    "wait-read", "wait-loaded", "wait-landed", "wait-all", "net-strength"};
static_assert(std::size(kOrderNames) == static_cast<std::size_t>(Order::kNum));

/// From src/ on, or tests/sim/, whatever the compiler called the file.
std::string_view short_name(std::string_view file) {
  if (const auto at = file.rfind("/src/"); at != std::string_view::npos) return file.substr(at + 5);
  const auto at = file.rfind("tests/sim/");
  return at == std::string_view::npos ? file : file.substr(at);
}

/// The sync tags of the statement at `line`, or of the comment above it.
std::string tags_near(const char* file, std::uintptr_t line) {
  constexpr std::uintptr_t kLinesAbove = 4;
  constexpr std::uintptr_t kLinesBelow = 3;
  std::ifstream source(file);
  std::string tags;
  std::string text;
  for (std::uintptr_t at = 1; std::getline(source, text) && at <= line + kLinesBelow; ++at) {
    if (at + kLinesAbove < line) continue;
    const auto begin = text.find("[sync:");
    if (begin == std::string::npos) continue;
    const auto end = text.find(']', begin);
    if (end != std::string::npos) tags += " " + text.substr(begin, end - begin + 1);
  }
  return tags;
}

/// "function at file:line" of compiled code, as addr2line says; else the offset in its file.
std::string describe_code(std::uintptr_t pc) {
  Dl_info info{};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a return address
  if (dladdr(reinterpret_cast<const void*>(pc), &info) == 0) return "?";
  char command[512];
  const std::uintptr_t offset = pc - reinterpret_cast<std::uintptr_t>(info.dli_fbase) - 1;
  std::snprintf(command, sizeof(command), "addr2line -s -e '%s' 0x%zx 2>/dev/null", info.dli_fname,
                offset);
  std::string text;
  if (FILE* pipe = popen(command, "r"); pipe != nullptr) {
    char line[256];
    while (std::fgets(line, sizeof(line), pipe) != nullptr) text += line;
    pclose(pipe);
  }
  text.resize(std::min(text.find_first_of("\n("), text.size()));
  return text.empty() || text[0] == '?' ? "code+" + std::to_string(offset) : text;
}

}  // namespace

const char* name_of(Order order) { return kOrderNames[static_cast<int>(order)]; }

std::string Mutation::to_string() const {
  const std::string text = std::string(name_of(order)) + "@" + file + ":" + std::to_string(line);
  return region.empty() ? text : text + "#" + region;
}

bool Mutation::parse(const std::string& text, Mutation& mutation) {
  const auto at = text.find('@');
  const auto hash = std::min(text.find('#'), text.size());
  const auto colon = text.rfind(':', hash);
  if (at == std::string::npos || colon == std::string::npos || colon < at) return false;
  const auto* name = std::find(std::begin(kOrderNames), std::end(kOrderNames), text.substr(0, at));
  if (name == std::end(kOrderNames)) return false;
  mutation.order = static_cast<Order>(name - std::begin(kOrderNames));
  mutation.file = text.substr(at + 1, colon - at - 1);
  mutation.region = hash < text.size() ? text.substr(hash + 1) : "";
  const char* end = text.data() + hash;
  return std::from_chars(text.data() + colon + 1, end, mutation.line).ptr == end;
}

Sites::Sites() : entries_(1), cache_(kCacheSize) {}

void Sites::weaken(const Mutation& mutation) {
  mutation_ = mutation;
  weakened_site_ = 0;
  weakened_order_ = mutation.order;
  for (SiteId site = 1; site < entries_.size(); ++site) match(site);
}

void Sites::match(SiteId site) {
  const Key& key = entries_[site].key;
  if (mutation_.order == Order::kNum || key.file == nullptr) return;
  if (static_cast<int>(key.place) == mutation_.line && short_name(key.file) == mutation_.file)
    weakened_site_ = site;
}

SiteId Sites::look_up(const Key& key) {
  const auto [found, is_new] = ids_.try_emplace(key, static_cast<SiteId>(entries_.size()));
  if (is_new) {
    entries_.push_back({key});
    match(found->second);
  }
  return found->second;
}

std::vector<Mutation> Sites::orders_met() const {
  std::vector<Mutation> met;
  const auto add = [&](const Mutation& mutation) {
    // The same header is another file name in each source that includes it.
    if (std::find(met.begin(), met.end(), mutation) == met.end()) met.push_back(mutation);
  };
  for (const Entry& entry : entries_) {
    for (int i = 0; i < static_cast<int>(Order::kNum); ++i) {
      if ((entry.orders >> i & 1U) == 0) continue;
      Mutation mutation{static_cast<Order>(i), std::string(short_name(entry.key.file)),
                        static_cast<int>(entry.key.place)};
      std::size_t num_regions = 0;
      for (const auto& [order, region] : entry.regions) num_regions += order == mutation.order;
      if (num_regions <= 1) add(mutation);
      for (const auto& [order, region] : entry.regions) {
        if (num_regions <= 1 || order != mutation.order) continue;
        mutation.region = region;
        add(mutation);
      }
    }
  }
  std::sort(met.begin(), met.end(), [](const Mutation& a, const Mutation& b) {
    return std::tie(a.file, a.line, a.order, a.region) <
           std::tie(b.file, b.line, b.order, b.region);
  });
  return met;
}

std::string Sites::describe(SiteId site) const {
  const Key& key = entries_[site].key;
  if (site == 0) return "nowhere";
  if (key.file == nullptr) return describe_code(key.place);
  return std::string(short_name(key.file)) + ":" + std::to_string(key.place) +
         tags_near(key.file, key.place);
}

}  // namespace ep::fabric::sim
