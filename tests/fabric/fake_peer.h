// SPDX-License-Identifier: Apache-2.0
// The inside of rank 0's arena, with a rank 1 that the test plays.
#pragma once

#include "base/unique_fd.h"
#include "fabric/arena_identity.h"
#include "fabric/arena_mesh.h"
#include "fabric/arena_message.h"
#include "fabric/arena_state.h"
#include "fabric/bootstrap/wire.h"
#include "fabric/host/memory.h"
#include "fabric/segment_memory.h"
#include "tests/fabric/arena_ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <poll.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace ep::test {

struct PacketPair {
  PacketPair() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()),
              0);
    near = base::UniqueFd(fds[0]);
    far = base::UniqueFd(fds[1]);
  }
  base::UniqueFd near;
  base::UniqueFd far;
};

/// Rank 0's arena, and the other end of its connection to a rank 1 that the test plays.
class FakePeer {
 public:
  explicit FakePeer(
      std::unique_ptr<fabric::SegmentMemory> memory = std::make_unique<fabric::HostMemory>(2)) {
    std::vector<fabric::ArenaIdentity> identities = {fabric::make_identity("unused", 4096),
                                                     fabric::make_identity("unused", 4096)};
    // Another process, so that segments travel as descriptors.
    identities[1].pid += 1;
    identities_ = identities;
    std::vector<fabric::ArenaConnection> connections(2);
    connections[1].socket = std::move(pair_.near);
    arena_ = std::make_unique<fabric::ArenaState>(0, std::move(identities), std::move(connections),
                                                  std::move(memory));
    EXPECT_TRUE(arena_->start().ok());
  }

  fabric::ArenaState& arena() { return *arena_; }
  int socket() const { return pair_.far.get(); }
  void send(const fabric::ArenaMessage& message, int fd = -1) {
    EXPECT_TRUE(fabric::send_message(socket(), message, fd, patient()).ok());
  }
  fabric::Received receive() {
    if (!fabric::wait_for(socket(), POLLIN, patient())) return {};
    auto received = fabric::receive_message(socket());
    return received.ok() ? std::move(*received) : fabric::Received{};
  }
  bool is_gone() {
    const base::Deadline deadline = patient();
    while (!deadline.expired()) {
      if (arena_->gone_flags()[1].load(std::memory_order_relaxed) != 0) return true;
    }
    return false;
  }

 private:
  PacketPair pair_;
  std::vector<fabric::ArenaIdentity> identities_;
  std::unique_ptr<fabric::ArenaState> arena_;
};

inline fabric::ArenaMessage segment_message(int segment, std::int64_t bytes) {
  return {
      .kind = fabric::ArenaMessageKind::kSegment, .rank = 1, .segment = segment, .bytes = bytes};
}

}  // namespace ep::test
