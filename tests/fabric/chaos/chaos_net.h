// SPDX-License-Identifier: Apache-2.0
// Ranks of one thread over a network with chaos, each with one window.
#pragma once

#include "fabric/chaos/chaos.h"
#include "tests/fabric/chaos/memory_net.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ep::test {

class ChaosNet {
 public:
  ChaosNet(const fabric::ChaosConfig& config,
           std::size_t window_bytes,
           const MemoryNetOptions& options = {});

  fabric::ChaosTransport& operator[](int rank) {
    return *transports_[static_cast<std::size_t>(rank)];
  }
  std::vector<std::byte>& window(int rank) { return windows_[static_cast<std::size_t>(rank)]; }
  int num_ranks() const { return static_cast<int>(transports_.size()); }
  /// Of all ranks.
  fabric::ChaosCounts counts() const;

  /// One poll of one context; every event goes to the function.
  using OnEvent = std::function<void(int rank, const fabric::NetEvent&)>;
  void poll(int rank, int context, const OnEvent& on_event);
  /// All ranks and contexts, in turn, so often.
  void poll_all(int times, const OnEvent& on_event);

 private:
  std::vector<std::vector<std::byte>> windows_;
  std::vector<std::unique_ptr<fabric::ChaosTransport>> transports_;
};

}  // namespace ep::test
