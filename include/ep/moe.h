// SPDX-License-Identifier: Apache-2.0
// Dispatch of tokens to their experts, combine of the results, and the backward direction of both.
#pragma once

#include <ep/api.h>
#include <ep/expert_map.h>
#include <ep/group.h>
#include <ep/layout.h>
#include <ep/status.h>
#include <ep/stream.h>
#include <ep/tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace ep {

namespace core {
class Routing;
}

/// Who writes the further copies of a row whose rank owns several of the token's experts
/// (kExpertMajor). Every way gives the same bits.
enum class CopyWay : std::uint8_t {
  kAuto,      ///< by the call's (R, K, E, H)
  kSender,    ///< the source writes every copy
  kReceiver,  ///< the source writes the first, the owner copies it on as the rows arrive
};

/// How the rows of a combine reach the token's rank. Every way gives the same bits.
enum class CombineWay : std::uint8_t {
  kAuto,  ///< kPush on CUDA for kExpertMajor with K > R, else kPull
  kPull,  ///< the token's rank reads every expert row in place
  kPush,  ///< the owner sums a token's rows and sends one through a ring
};

/// The routing of one dispatch: which rows went where. Cheap to copy; any number may be alive; may
/// be used for any number of combines, backward passes and further dispatches with the same
/// routing. Belongs to its group.
class EP_API DispatchHandle {
 public:
  DispatchHandle() = default;
  explicit DispatchHandle(std::shared_ptr<core::Routing> routing) : routing_(std::move(routing)) {}

  bool is_null() const { return routing_ == nullptr; }
  Layout layout() const;
  std::int64_t num_tokens() const;  ///< T of the dispatch
  int topk() const;                 ///< K of the dispatch
  int num_experts() const;
  int num_local_experts() const;
  core::Routing& routing() const { return *routing_; }
  const std::shared_ptr<core::Routing>& shared_routing() const { return routing_; }

 private:
  std::shared_ptr<core::Routing> routing_;
};

struct DispatchInput {
  /// [T, H]; elements of a row adjacent, rows 16-byte aligned, H * size a multiple of 16 bytes.
  ConstTensorView x{};
  /// Optional [T, S], S <= H: block scales of any dtype; they travel with the rows.
  ConstTensorView scales{};
  /// [T, K] int32 or int64, any strides; -1 = no expert; repeats allowed.
  ConstTensorView topk_idx{};
  /// Optional [T, K] fp32, any strides.
  ConstTensorView topk_weights{};
};

/// Caller-given outputs, each optional, each from Group::allocate of this group. The row count of
/// all given ones is the capacity.
struct DispatchBuffers {
  Tensor x{};             ///< [capacity, H]
  Tensor scales{};        ///< [capacity, S]
  Tensor topk_idx{};      ///< kFlat: [capacity, K], dtype of the input
  Tensor topk_weights{};  ///< kFlat: [capacity, K]; kExpertMajor: [capacity]; fp32
};

struct DispatchOptions {
  Layout layout = Layout::kFlat;
  /// kExpertMajor: rows of each expert's group are padded to a multiple of this; padding rows are
  /// zeroed.
  int alignment = 1;
  /// Map of this call; empty: the group's.
  ExpertMap experts{};
  /// Static number of rows of the outputs. Rows whose final index is >= capacity are dropped on all
  /// ranks alike and skipped by combine and backward. Without it the sizes are exact, at the price
  /// of one wait for the counts; a captured stream needs it.
  std::optional<std::int64_t> capacity{};
  CopyWay copy_way = CopyWay::kAuto;
  std::optional<int> num_sms{};
  Stream stream{};
  DispatchBuffers out{};
};

/// What this rank received. On the host all of it can be read when dispatch returns; on CUDA behind
/// it on the stream.
struct DispatchOutput {
  /// [N, H].
  Tensor x{};
  /// [N, S] if the input has scales.
  Tensor scales{};
  /// kFlat: [N, K] local expert ids, -1 where the expert is elsewhere or a repeat; input's dtype.
  Tensor topk_idx{};
  /// kFlat: [N, K], 0 where topk_idx is -1, repeats summed in k order. kExpertMajor: [N].
  Tensor topk_weights{};
  /// [L] int64: (token, expert) rows of each local expert, repeats once, before dropping.
  Tensor expert_counts{};
  /// [L + 1] int64, kExpertMajor: first row of each group; last: end of the padded rows.
  Tensor expert_offsets{};
  /// [3] int64: rows in the outputs (dropped ones not counted), rows needed, 1 on overflow.
  Tensor sizes{};
  DispatchHandle handle{};
};

/// Collective: every rank of the group. T may be 0 and differs freely per rank; layout, alignment,
/// K, E, map, H, dtype, scales and the presence of weights must be equal. Rows arrive bitwise
/// unchanged, in deterministic order.
///
/// kFlat sends a token once to each rank that owns one of its experts. kExpertMajor sends it once
/// per rank, and makes one row per distinct expert. In kExpertMajor weights of a repeated expert
/// are summed in k order.
///
/// Errors: kInvalidArgument naming argument and value (on all ranks, the others name the rank at
/// fault; no row is sent), kUnsupported, kOutOfMemory, kPeerTimeout, kAborted. On CUDA an operation
/// that is only queued when the call returns reports through Group::status(); `sizes` of a refused
/// one are {0, 0, 0}.
EP_API Result<DispatchOutput> dispatch(Group& group,
                                       const DispatchInput& input,
                                       const DispatchOptions& options = {});

/// Collective: the same routing as `handle` with new rows (and weights): no counting.
/// `input.topk_idx` must be null. Options layout, alignment, experts and copy_way are those of the
/// handle and ignored here. Errors as dispatch.
EP_API Result<DispatchOutput> dispatch_cached(Group& group,
                                              const DispatchHandle& handle,
                                              const DispatchInput& input,
                                              const DispatchOptions& options = {});

struct CombineInput {
  /// [N, H] bf16, fp16 or fp32: the experts' rows in the layout of the dispatch; rows contiguous,
  /// 16-byte aligned. In the arena (Group::allocate, a dispatch output): read in place by the
  /// peers. Elsewhere: staged through the ring.
  ConstTensorView rows{};
  /// Optional [T, K] fp32, kExpertMajor only: scales each expert's row.
  ConstTensorView topk_weights{};
  /// Optional [T, H] of the rows' dtype, added last.
  ConstTensorView bias{};
};

struct CombineOptions {
  CombineWay way = CombineWay::kAuto;
  std::optional<int> num_sms{};
  Stream stream{};
  /// Optional [T, H] output, contiguous rows, anywhere in the group's kind of memory; must not
  /// overlap the inputs.
  TensorView out{};
};

struct CombineOutput {
  TensorView out{};     ///< [T, H]: options.out, or a view of `tensor`
  Tensor tensor{};      ///< owner of `out` unless the caller gave it
  bool staged = false;  ///< this rank's rows were outside the arena and went through the ring
};

/// Collective: out[t] = sum of the rows of token t, weighted in kExpertMajor if weights are given
/// (a repeated expert counts with the sum of its weights), in fp32: per rank in k order, rounded
/// once to the dtype (the hop), then over ranks in ascending order, then bias, then rounded. A
/// token without rows is 0 (plus bias). Multiply, then add; no contraction: bitwise equal for every
/// SM budget and way. Rows dropped by the dispatch are skipped. Presence of weights, dtype, H and
/// way must be equal on all ranks. Errors as dispatch.
EP_API Result<CombineOutput> combine(Group& group,
                                     const DispatchHandle& handle,
                                     const CombineInput& input,
                                     const CombineOptions& options = {});

struct DispatchGradInput {
  ConstTensorView grad_x{};  ///< [N, H]: gradient of DispatchOutput::x
  /// Optional, fp32, contiguous, shape of DispatchOutput::topk_weights: its gradient.
  ConstTensorView grad_topk_weights{};
};

struct DispatchGrad {
  /// [T, H].
  CombineOutput grad_x{};
  /// [T, K] fp32 if given: each k receives its (token, expert) row's value, 0 for -1 and dropped.
  Tensor grad_topk_weights{};
};

/// Collective: the backward direction of dispatch: a combine without weights that also returns the
/// router's gradient.
EP_API Result<DispatchGrad> dispatch_backward(Group& group,
                                              const DispatchHandle& handle,
                                              const DispatchGradInput& input,
                                              const CombineOptions& options = {});

struct CombineGradInput {
  ConstTensorView grad_out{};  ///< [T, H]
  /// Both or neither, for the backward of a weighted combine (kExpertMajor):
  ConstTensorView topk_weights{};  ///< [T, K] fp32, as given to combine
  ConstTensorView rows{};          ///< [N, H], as given to combine
};

struct CombineGrad {
  /// [N, H]: grad_out of the row's token, times its weight if weighted; padding rows 0.
  Tensor grad_rows{};
  /// [T, K] fp32 if weighted: dot product of grad_out and the expert's row; 0 for -1 and dropped.
  Tensor grad_topk_weights{};
};

/// Collective: the backward direction of combine: a dispatch with the same routing. The gradient of
/// a bias is grad_out itself.
EP_API Result<CombineGrad> combine_backward(Group& group,
                                            const DispatchHandle& handle,
                                            const CombineGradInput& input,
                                            const DispatchOptions& options = {});

}  // namespace ep
