// SPDX-License-Identifier: Apache-2.0
// One lane of the push role of kFlat: an owner sends the row of each pair through the ring as it
// is.
#pragma once

#include "intranode/push_steps.h"
#include "primitives/slot_ring.h"

#include <cstdint>

namespace ep::intranode {

template <primitives::Executor Exec, primitives::Coop G>
class CopyPushLane {
 public:
  EP_HOST_DEVICE CopyPushLane(G group,
                              const primitives::OpContext<Exec>& op,
                              const CombineParams& params,
                              const primitives::Lane& lane)
      : group_(group),
        params_(&params),
        ring_(op),
        pipe_(Exec::make_row_pipe(group, lane, params.op)),
        scratch_(lane, params.routing.tables.shape),
        tickets_(group, op, params, scratch_),
        abort_(op),
        piece_bytes_(params.rows.row_bytes) {
    if (lane.stage_bytes > 0 && lane.stage_bytes < piece_bytes_) piece_bytes_ = lane.stage_bytes;
    num_pieces_ = static_cast<int>(layout::div_up(params.rows.row_bytes, piece_bytes_));
  }

  /// All tickets that this lane gets. The first rows of a ticket are on their way while those of
  /// the ticket before land. False if the group gave up.
  EP_HOST_DEVICE bool run() {
    for (take_batch(ahead_); ahead_.num_pairs > 0;) {
      batch_ = ahead_;
      take_batch(ahead_);
      if (!abort_.may_proceed(group_) || !send_batch()) return false;
    }
    return true;
  }

 private:
  /// The pairs of a ticket, which follow each other. Their rows pass through the pipe in pieces.
  struct Batch {
    int reader = 0;
    int num_pairs = 0;
    int num_loaded = 0;  ///< pieces whose load has begun
    std::int64_t first_pair = 0;
    const std::byte* rows = nullptr;  ///< of the first pair
  };

  /// The next ticket with pairs; none: no pairs.
  EP_HOST_DEVICE void take_batch(Batch& batch) {
    batch = {};
    while (batch.num_pairs == 0 && tickets_.next()) {
      for (int i = 0; i < params_->push_ticket_tokens; ++i) {
        if (scratch_.pairs[i] < 0) continue;
        if (batch.num_pairs == 0) batch.first_pair = scratch_.pairs[i];
        ++batch.num_pairs;
      }
      batch.reader = tickets_.reader();
    }
    if (batch.num_pairs > 0) batch.rows = params_->rows.row(tickets_.record_of(batch.first_pair));
  }

  /// False if the group gave up.
  EP_HOST_DEVICE bool send_batch() {
    fill();
    // Nothing that this lane has claimed before is left to be published when it waits.
    if (!ring_.acquire(group_, batch_.reader, batch_.first_pair, batch_.num_pairs)) return false;
    pipe_.fence_acquired();  // [sync:ring-freed] acquire, for the bulk stores that follow
    for (int i = 0; i < num_pieces_ * batch_.num_pairs; ++i) {
      fill();
      pipe_.wait_front();
      pipe_.store(ring_.row_at(batch_.reader, batch_.first_pair + i / num_pieces_) +
                      i % num_pieces_ * piece_bytes_,
                  {0, bytes_of_piece(i % num_pieces_)});
      pipe_.retire();
    }
    fill();
    pipe_.drain();
    ring_.publish(group_, batch_.reader, batch_.first_pair, batch_.num_pairs);
    return true;
  }

  /// Loads as much as the pipe takes: of this batch, then of the one ahead.
  EP_HOST_DEVICE void fill() {
    fill_from(batch_);
    fill_from(ahead_);
  }
  EP_HOST_DEVICE void fill_from(Batch& batch) {
    while (!pipe_.is_full() && batch.num_loaded < num_pieces_ * batch.num_pairs) {
      const int piece = batch.num_loaded % num_pieces_;
      const std::byte* row =
          batch.rows + batch.num_loaded / num_pieces_ * params_->rows.stride_bytes;
      pipe_.load(batch.num_loaded, {row + piece * piece_bytes_, bytes_of_piece(piece)});
      ++batch.num_loaded;
    }
  }

  EP_HOST_DEVICE std::int64_t bytes_of_piece(int piece) const {
    const std::int64_t left = params_->rows.row_bytes - piece * piece_bytes_;
    return left < piece_bytes_ ? left : piece_bytes_;
  }

  G group_;
  const CombineParams* params_;
  primitives::SlotRing<Exec> ring_;
  typename Exec::RowPipe pipe_;
  PushScratch scratch_;
  PushTickets<Exec, G> tickets_;
  primitives::AbortWatch<Exec> abort_;
  std::int64_t piece_bytes_;
  int num_pieces_ = 1;
  Batch batch_;
  Batch ahead_;
};

}  // namespace ep::intranode
