// SPDX-License-Identifier: Apache-2.0
// What hostile means, and counts as text.
#include "fabric/chaos/chaos.h"

#include <array>
#include <string_view>

namespace ep::fabric {
namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(ChaosDeed::kEnd)> kDeedNames{
    "ops",
    "delayed",
    "reordered",
    "torn",
    "pieces",
    "refused",
    "stalls",
    "arrivals",
    "late arrivals",
    "reordered arrivals",
    "late completions",
    "reordered completions",
    "duplicates",
    "stale writes",
    "lost",
    "failed",
    "touched sources",
};

}  // namespace

ChaosConfig ChaosConfig::hostile(std::uint64_t seed, ArrivalOrder order) {
  return {.seed = seed,
          .order = order,
          .delay = {.permille = 600, .max_polls = 8},
          .big = {.permille = 500, .max_polls = 24},
          .stall = {.permille = 8, .max_polls = 40},
          .context_stall = {.permille = 2, .max_polls = 40},
          .late_arrival = {.permille = 400, .max_polls = 8},
          .late_completion = {.permille = 400, .max_polls = 12},
          .tear = {.permille = 300, .max_pieces = 4},
          .busy = {.permille = 20, .max_calls = 8}};
}

ChaosCounts& ChaosCounts::operator+=(const ChaosCounts& other) {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  return *this;
}

std::string ChaosCounts::to_string() const {
  std::string text;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    if (!text.empty()) text += ", ";
    text += std::to_string(counts_[i]) + " " + std::string(kDeedNames[i]);
  }
  return text.empty() ? "nothing happened" : text;
}

}  // namespace ep::fabric
