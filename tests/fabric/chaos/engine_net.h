// SPDX-License-Identifier: Apache-2.0
// Engines over chaos, driven by one thread with a clock of its own: a seed is a run.
#pragma once

#include "fabric/chaos/chaos.h"
#include "fabric/chaos/random.h"
#include "tests/fabric/net/engine_group.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ep::test {

struct EngineNetOptions {
  int num_ranks = 3;
  std::int64_t window_bytes = std::int64_t{1} << 17;
  fabric::NetConfig config{};  ///< contexts, clock and service thread are set here
  /// Of a rank: not all see the same dead.
  std::function<fabric::ChaosConfig(int rank)> chaos_of{};
};

class EngineNet {
 public:
  /// Odd, see align().
  static constexpr int kNumContexts = 3;

  explicit EngineNet(const EngineNetOptions& options);

  /// Of making the engines; a rank's failure.
  Status status() const;
  fabric::NetEngine& operator[](int rank) { return group_->engine(rank); }
  EngineGroup& group() { return *group_; }
  fabric::ChaosTransport& chaos(int rank) { return *chaos_[static_cast<std::size_t>(rank)]; }
  fabric::ChaosCounts counts() const;

  /// Progress of about three in four contexts of each rank; then time goes on so far.
  void drive(std::int64_t ns);
  fabric::ChaosRandom& random() { return random_; }

 private:
  void align(int rank);

  fabric::ChaosRandom random_{0};
  std::vector<fabric::ChaosTransport*> chaos_;  // the engines own them
  std::unique_ptr<EngineGroup> group_;
};

}  // namespace ep::test
