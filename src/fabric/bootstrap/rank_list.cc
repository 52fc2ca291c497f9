// SPDX-License-Identifier: Apache-2.0
// Ranks in messages.
#include "fabric/bootstrap/rank_list.h"

#include <algorithm>

namespace ep::fabric {

std::string list_ranks(std::span<const int> ranks) {
  constexpr std::size_t kMaxListed = 16;
  std::string text;
  for (int rank : ranks.first(std::min(ranks.size(), kMaxListed))) {
    text.append(text.empty() ? "" : ", ").append(std::to_string(rank));
  }
  if (ranks.size() > kMaxListed) {
    text.append(" and ").append(std::to_string(ranks.size() - kMaxListed)).append(" more");
  }
  return text;
}

std::string text_of(std::chrono::milliseconds duration) {
  const auto tenths = (duration.count() + 50) / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace ep::fabric
