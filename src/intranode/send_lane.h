// SPDX-License-Identifier: Apache-2.0
// One lane of the send role: loads each row once and stores it straight to its final places.
#pragma once

#include "intranode/arrivals.h"
#include "intranode/expert_sender.h"
#include "intranode/flat_sender.h"
#include "intranode/routing_view.h"
#include "primitives/row_pipe.h"
#include "primitives/ticket.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// Scratch of a lane that sends rows: what the threads of the lane tell each other, by layout.
struct SendScratch {
  std::int64_t* tally;  // [num_ranks], pairs sent
  FlatScratch flat;
  ExpertScratch experts;

  EP_HOST_DEVICE SendScratch(const primitives::Lane& lane, const layout::TableShape& shape)
      : tally(layout::array_at<std::int64_t>(lane.scratch, 0)),
        flat(lane.scratch + tally_bytes(shape), shape),
        experts(lane.scratch + tally_bytes(shape), shape) {}

  EP_HOST_DEVICE static std::int64_t tally_bytes(const layout::TableShape& shape) {
    return std::int64_t{8} * shape.num_ranks;
  }
  EP_HOST_DEVICE static std::int64_t bytes(const layout::TableShape& shape) {
    return tally_bytes(shape) +
           (shape.has_expert_rows ? ExpertScratch::bytes(shape) : FlatScratch::bytes(shape));
  }
};

/// One lane that sends rows.
template <primitives::Executor Exec, primitives::Coop G>
class SendLane {
 public:
  using Memory = typename Exec::Memory;

  EP_HOST_DEVICE SendLane(G group,
                          const primitives::OpContext<Exec>& op,
                          const DispatchParams& params,
                          const primitives::Lane& lane)
      : group_(group),
        op_(&op),
        params_(&params),
        scratch_(lane, params.routing.tables.shape),
        flat_(group, op, params, scratch_.flat),
        experts_(group, op, params, scratch_.experts),
        pipe_(Exec::make_row_pipe(group, lane, params.op)),
        tickets_(group,
                 op.ticket(layout::Ticket::kSend),
                 layout::div_up(num_tokens(), params.send_ticket_tokens())),
        abort_(op) {}

  /// Starts as many loads as the pipe holds.
  EP_HOST_DEVICE void prefetch() {
    while (!pipe_.is_full() && advance()) pipe_.load(token_, parts_of(token_));
  }

  /// Where the outputs lie, as far as peers have told already.
  EP_HOST_DEVICE void locate_early() {
    if (!params_->has_expert_rows()) flat_.locate_early();
  }

  /// Sends all rows that this lane gets tickets for. False if the group gave up.
  EP_HOST_DEVICE bool run() {
    primitives::for_each_strided(group_, op_->num_ranks(),
                                 [&](std::int64_t rank) { scratch_.tally[rank] = 0; });
    if (params_->has_expert_rows()) {
      experts_.begin();
    } else {
      flat_.begin();
    }
    // [sync:announce-block] acquire, for the bulk stores that follow: the blocks may be written.
    pipe_.fence_acquired();
    while (!pipe_.is_empty()) {
      if (!abort_.may_proceed(group_)) return false;
      const std::int64_t token = pipe_.front();
      if (params_->has_expert_rows()) {
        experts_.look_up(token, scratch_.tally);
        pipe_.wait_front();
        experts_.send(pipe_, token);
      } else {
        flat_.look_up(token, scratch_.tally);
        pipe_.wait_front();
        flat_.send(pipe_, token);
      }
      pipe_.retire();
      prefetch();
      if (params_->has_expert_rows()) experts_.publish_landed(pipe_, token);
    }
    pipe_.drain();
    experts_.publish_last();
    add_arrivals(group_, *op_, op_->control().arrived, scratch_.tally);
    return true;
  }

 private:
  EP_HOST_DEVICE std::int64_t num_tokens() const {
    return params_->routing.tables.shape.num_tokens;
  }
  EP_HOST_DEVICE primitives::RowParts parts_of(std::int64_t token) const {
    primitives::RowParts parts{params_->x.row(token), params_->x.row_bytes};
    if (params_->pipes_scales) {
      parts.tail = params_->scales.row(token);
      parts.tail_bytes = params_->scales.row_bytes;
    }
    return parts;
  }

  /// The next token of this lane in token_; false when there is none.
  EP_HOST_DEVICE bool advance() {
    if (token_ + 1 < ticket_end_) {
      ++token_;
      return true;
    }
    const std::int64_t ticket = tickets_.next(group_);
    if (ticket < 0) return false;
    token_ = ticket * params_->send_ticket_tokens();
    ticket_end_ = token_ + params_->send_ticket_tokens();
    if (ticket_end_ > num_tokens()) ticket_end_ = num_tokens();
    return true;
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const DispatchParams* params_;
  SendScratch scratch_;
  FlatSender<Exec, G> flat_;
  ExpertSender<Exec, G> experts_;
  typename Exec::RowPipe pipe_;
  primitives::TicketStream<Exec> tickets_;
  primitives::AbortWatch<Exec> abort_;
  std::int64_t token_ = -1;
  std::int64_t ticket_end_ = 0;
};

}  // namespace ep::intranode
