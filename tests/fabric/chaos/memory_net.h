// SPDX-License-Identifier: Apache-2.0
// The smallest network: ranks of one thread, whose writes land when the writer polls.
#pragma once

#include "fabric/net/transport.h"

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace ep::test {

struct MemoryNetOptions {
  int num_ranks = 2;
  fabric::TransportTraits traits{.name = "memory",
                                 .order = fabric::ArrivalOrder::kOrdered,
                                 .num_contexts = 1,
                                 .max_outstanding = 64};
};

/// What the ranks of a network share: their windows and what has happened to each.
struct MemoryNet {
  explicit MemoryNet(const MemoryNetOptions& options);

  struct Rank {
    std::vector<std::span<std::byte>> windows;
    std::vector<std::deque<fabric::NetEvent>> events;      // by context
    std::vector<std::deque<std::function<void()>>> posts;  // by context
    std::vector<int> num_outstanding;                      // by context
  };
  MemoryNetOptions options;
  std::vector<Rank> ranks;
};

/// One transport per rank; they share the network, which lives as long as they do.
std::vector<std::unique_ptr<fabric::Transport>> make_memory_net(const MemoryNetOptions& options);

}  // namespace ep::test
