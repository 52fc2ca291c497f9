// SPDX-License-Identifier: Apache-2.0
// Work is claimed by atomic tickets: lanes that get a smaller share of the wire take less of it,
// one resident channel suffices to finish everything, and no lane ever waits for a higher ticket or
// for a particular channel.
#pragma once

#include "primitives/op_context.h"

#include <cstdint>

namespace ep::primitives {

/// One lane's view of a ticket counter. One atomic is always in flight ahead: its latency is hidden
/// by the work.
template <Executor Exec>
class TicketStream {
 public:
  /// All threads of the group construct it together.
  template <Coop G>
  EP_HOST_DEVICE TicketStream(G group, std::uint64_t* counter, std::int64_t num_tickets)
      : counter_(counter), num_tickets_(num_tickets) {
    if (group.thread_rank() == 0) ahead_ = claim();
  }

  /// The next ticket in [0, num_tickets), or -1 when all are taken.
  template <Coop G>
  EP_HOST_DEVICE std::int64_t next(G group) {
    std::uint64_t current = 0;
    if (group.thread_rank() == 0) {
      current = ahead_;
      if (static_cast<std::int64_t>(current) < num_tickets_) ahead_ = claim();
    }
    const auto ticket = static_cast<std::int64_t>(group.broadcast(current));
    return ticket < num_tickets_ ? ticket : -1;
  }

 private:
  EP_HOST_DEVICE std::uint64_t claim() {
    // Relaxed: a ticket orders nothing, it only divides work.
    return Exec::Memory::fetch_add_relaxed_gpu(counter_, std::uint64_t{1});
  }

  std::uint64_t* counter_;
  std::int64_t num_tickets_;
  std::uint64_t ahead_ = 0;
};

}  // namespace ep::primitives
