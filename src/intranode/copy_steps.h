// SPDX-License-Identifier: Apache-2.0
// kExpertMajor: what an owner does with rows that arrived at the first place of their pair.
#pragma once

#include "intranode/chunk_follower.h"
#include "primitives/row_pipe.h"
#include "primitives/row_reducer.h"

#include <cstddef>
#include <cstdint>

namespace ep::intranode {

/// One lane that follows the chunks of the other ranks.
template <primitives::Executor Exec, primitives::Coop G>
class CopyLane {
 public:
  using Memory = typename Exec::Memory;

  EP_HOST_DEVICE CopyLane(G group,
                          const primitives::OpContext<Exec>& op,
                          const DispatchParams& params,
                          const primitives::Lane& lane)
      : group_(group),
        op_(&op),
        params_(&params),
        pipe_(Exec::make_row_pipe(group, lane, params.op)),
        tally_(clear_tally(group, op, lane)),
        chunks_(group, op, params, CopyScratch(lane, params.routing.tables.shape)),
        rows_(BlockView<Exec>{&op}.section(op.rank(), layout::Section::kRows)),
        scales_(BlockView<Exec>{&op}.section(op.rank(), layout::Section::kScales)) {}

  /// All chunks that this lane gets tickets for. False if the group gave up.
  EP_HOST_DEVICE bool run() {
    if (!(params_->returns_gradient ? scale_all() : copy_all())) return false;
    pipe_.drain();
    add_arrivals(group_, *op_, op_->control().returned, tally_);
    return true;
  }

 private:
  /// Further local experts of the pairs get their copies.
  EP_HOST_DEVICE bool copy_all() {
    while (true) {
      if (!prefetch()) return false;
      if (!pipe_.is_empty()) {
        copy_front();
      } else if (!chunks_.has_more()) {
        return true;
      } else if (!chunks_.open(pipe_)) {
        return false;
      }
    }
  }

  /// Loads rows as long as the pipe takes them and nobody has to be waited for. False if the group
  /// gave up.
  EP_HOST_DEVICE bool prefetch() {
    while (!pipe_.is_full()) {
      if (num_loaded_ < chunks_.num_opened()) {
        load(num_loaded_++);
        continue;
      }
      if (pipe_.is_empty()) num_copied_ = num_loaded_;
      const std::int64_t most = num_copied_ + CopyScratch::kPairs - layout::kDispatchChunkTokens;
      const bool has_room = chunks_.num_opened() <= most;
      if (!chunks_.has_more() || !has_room || !chunks_.has_landed()) return true;
      if (!chunks_.open(pipe_)) return false;
    }
    return true;
  }

  /// A pair with one place has no further copies.
  EP_HOST_DEVICE void load(std::int64_t pair) {
    const HeldPair held = chunks_.pair(pair);
    const PairRecord& record = held.record;
    const int first = record.first();
    if (held.next(first) >= record.topk) return;
    primitives::RowParts parts{row(record.rows[first]), params_->x.row_bytes};
    if (params_->pipes_scales) {
      parts.tail = scales(record.rows[first]);
      parts.tail_bytes = params_->scales.row_bytes;
    }
    pipe_.load(pair, parts);
  }

  EP_HOST_DEVICE void copy_front() {
    const std::int64_t pair = pipe_.wait_front();
    const HeldPair held = chunks_.pair(pair);
    const PairRecord& record = held.record;
    const int first = record.first();
    for (int k = held.next(first); k < record.topk; k = held.next(k)) {
      pipe_.store(row(record.rows[k]), {0, params_->x.row_bytes});
      copy_scales(record.rows[k], record.rows[first]);
    }
    pipe_.retire();
    num_copied_ = pair + 1;
  }
  EP_HOST_DEVICE void copy_scales(std::int64_t dst, std::int64_t src) {
    const std::int64_t bytes = params_->scales.row_bytes;
    if (bytes == 0) return;
    if (params_->pipes_scales) {
      pipe_.store(scales(dst), {params_->x.row_bytes, bytes});
    } else {
      Exec::copy_bytes(group_, scales(dst), scales(src), bytes);
    }
  }

  EP_HOST_DEVICE bool scale_all() {
    while (chunks_.has_more()) {
      if (!chunks_.open(pipe_)) return false;
      for (; num_loaded_ < chunks_.num_opened(); ++num_loaded_) {
        if (!op_->may_proceed()) return false;
        scale_pair(chunks_.pair(num_loaded_), chunks_.src());
      }
    }
    return true;
  }

  /// Backward of a weighted combine: every k gets <grad_out, y> sent home, every row grad_out times
  /// its weight. The row that holds grad_out itself is scaled last.
  EP_HOST_DEVICE void scale_pair(const HeldPair& held, int src) {
    const PairRecord& record = held.record;
    const primitives::SumSpec spec{primitives::num_elems_of(params_->x.row_bytes, params_->dtype),
                                   params_->dtype, true};
    const BlockView<Exec> blocks{op_};
    const auto* weights = blocks.template array<float>(op_->rank(), layout::Section::kTopkWeights);
    auto* home = blocks.template array<float>(src, layout::Section::kSideValues) +
                 std::int64_t{record.token} * record.topk;
    const int first = record.first();
    for (int k = record.topk - 1; k >= 0; --k) {
      if (held.places[k] < 0) continue;
      const std::byte* grad = row(record.rows[first]);
      const float product =
          Exec::dot_rows(group_, grad, params_->expert_rows.row(record.rows[k]), spec);
      for (int same = k; same < record.topk; ++same) {
        if (record.rows[same] == record.rows[k] && group_.thread_rank() == 0)
          Memory::store(home + same, product);
      }
      Exec::scale_row(group_, row(record.rows[k]), grad, weights[record.rows[k]], spec);
    }
    if (group_.thread_rank() == 0) ++tally_[src];
  }

  EP_HOST_DEVICE std::byte* row(std::int64_t index) const {
    return rows_ + index * params_->x.row_bytes;
  }
  EP_HOST_DEVICE std::byte* scales(std::int64_t index) const {
    return scales_ + index * params_->scales.row_bytes;
  }

  G group_;
  const primitives::OpContext<Exec>* op_;
  const DispatchParams* params_;
  typename Exec::RowPipe pipe_;
  std::int64_t* tally_;
  ChunkFollower<Exec, G> chunks_;
  std::byte* rows_;
  std::byte* scales_;
  // Pairs, as chunks_ counts them: loaded or without copies; stored.
  std::int64_t num_loaded_ = 0;
  std::int64_t num_copied_ = 0;
};

}  // namespace ep::intranode
