// SPDX-License-Identifier: Apache-2.0
// Rank by rank, figure by figure.
#include "bench/model_compare.h"

#include <array>

namespace ep::bench {
namespace {

struct Figure {
  const char* sent;
  const char* received;
  std::int64_t NetTraffic<std::int64_t>::*value;
};
using Net = NetTraffic<std::int64_t>;
constexpr std::array kFigures = {Figure{"bytes sent", "bytes received", &Net::bytes},
                                 Figure{"puts sent", "puts received", &Net::puts},
                                 Figure{"signals sent", "signals received", &Net::signals}};

void compare_side(int rank,
                  const char* Figure::*name,
                  const Net& predicted,
                  const Net& counted,
                  std::vector<TrafficDifference>& differences) {
  for (const Figure& figure : kFigures) {
    if (predicted.*figure.value == counted.*figure.value) continue;
    differences.push_back({.rank = rank,
                           .what = figure.*name,
                           .predicted = predicted.*figure.value,
                           .counted = counted.*figure.value});
  }
}

std::string text_of(const Net& traffic) {
  return std::to_string(traffic.bytes) + " bytes in " + std::to_string(traffic.puts) + " puts, " +
         std::to_string(traffic.signals) + " signals";
}

}  // namespace

std::string TrafficComparison::describe() const {
  std::string text = "predicted " + text_of(predicted) + "; counted " + text_of(counted);
  if (is_exact()) return text + "; equal on every rank";
  const TrafficDifference& first = differences.front();
  return text + "; " + std::to_string(differences.size()) + " difference(s), first: rank " +
         std::to_string(first.rank) + " " + first.what + ": predicted " +
         std::to_string(first.predicted) + ", counted " + std::to_string(first.counted);
}

Result<TrafficComparison> compare_traffic(std::span<const RankTraffic<std::int64_t>> predicted,
                                          std::span<const CountedTraffic> counted) {
  if (predicted.size() != counted.size()) {
    return Status(Errc::kInvalidArgument, "traffic of " + std::to_string(predicted.size()) +
                                              " ranks predicted, of " +
                                              std::to_string(counted.size()) + " counted");
  }
  TrafficComparison result;
  for (std::size_t at = 0; at < predicted.size(); ++at) {
    const auto rank = static_cast<int>(at);
    const Flow<std::int64_t> total = predicted[at].total();
    if (counted[at].sent) {
      result.predicted += total.sent;
      result.counted += *counted[at].sent;
      compare_side(rank, &Figure::sent, total.sent, *counted[at].sent, result.differences);
    }
    if (counted[at].received) {
      compare_side(rank, &Figure::received, total.received, *counted[at].received,
                   result.differences);
    }
  }
  return result;
}

}  // namespace ep::bench
