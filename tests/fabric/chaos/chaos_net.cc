// SPDX-License-Identifier: Apache-2.0
// Windows are exchanged at once.
#include "tests/fabric/chaos/chaos_net.h"

#include "base/check.h"

#include <array>
#include <utility>

namespace ep::test {

ChaosNet::ChaosNet(const fabric::ChaosConfig& config,
                   std::size_t window_bytes,
                   const MemoryNetOptions& options) {
  for (auto& inner : make_memory_net(options)) {
    auto made = fabric::make_chaos_transport(std::move(inner), config);
    EP_CHECK(made.ok(), made.status().to_string());
    transports_.push_back(std::move(*made));
  }
  windows_.assign(transports_.size(), std::vector<std::byte>(window_bytes));
  for (std::size_t rank = 0; rank < transports_.size(); ++rank) {
    EP_CHECK(transports_[rank]->add_window(windows_[rank]).ok());
  }
  for (auto& mine : transports_) {
    for (auto& theirs : transports_) {
      EP_CHECK(mine->set_peer_window(theirs->rank(), 0, theirs->describe_window(0)).ok());
    }
  }
}

fabric::ChaosCounts ChaosNet::counts() const {
  fabric::ChaosCounts sum;
  for (const auto& transport : transports_) sum += transport->counts();
  return sum;
}

void ChaosNet::poll(int rank, int context, const OnEvent& on_event) {
  std::array<fabric::NetEvent, 16> events;
  const int num_events = (*this)[rank].poll(context, events);
  for (int i = 0; i < num_events; ++i) on_event(rank, events[static_cast<std::size_t>(i)]);
}

void ChaosNet::poll_all(int times, const OnEvent& on_event) {
  const int num_contexts = (*this)[0].traits().num_contexts;
  for (int i = 0; i < times; ++i) {
    for (int rank = 0; rank < num_ranks(); ++rank) {
      for (int context = 0; context < num_contexts; ++context) poll(rank, context, on_event);
    }
  }
}

}  // namespace ep::test
