// SPDX-License-Identifier: Apache-2.0
// One rank's part in an operation whose result is checked against the oracle.
#pragma once

#include "tests/support/group.h"
#include "tests/support/moe_checks.h"
#include "tests/support/moe_inputs.h"
#include "tests/support/ranks.h"

#include <ep/moe.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ep::test {

using GroupBody = std::function<void(RankContext&, Group&)>;

/// check_ranks with a group on every rank.
std::vector<RankReport> check_group(const RanksOptions& options,
                                    const GroupConfig& config,
                                    const GroupBody& body);

/// check_group with threads, one per rank of the problem, and its maxima.
std::vector<RankReport> check_problem(const Problem& problem, const GroupBody& body);

using ProblemBody = std::function<void(RankContext&, Group&, const Oracle&)>;

/// One group for all problems, which have as many ranks as the first; the body runs on each in
/// turn.
std::vector<RankReport> check_problems(const std::vector<Problem>& problems,
                                       const ProblemBody& body,
                                       const RanksOptions& options = {});

/// Fills the pool's free memory with poison, so that what an operation does not write shows.
void poison_pool(RankContext& context, Group& group, std::int64_t bytes);

struct DispatchSpec {
  InputStrides strides{};
  CopyWay copy_way = CopyWay::kAuto;
  std::optional<int> num_sms{};
  bool gives_buffers = false;      ///< outputs inside guarded, poisoned tensors; needs a capacity
  bool overwrites_inputs = false;  ///< right after the call, before anything is checked
  DispatchCheck check{};
};

/// Empty, with a finding in `context`, unless everything is right.
std::optional<DispatchOutput> checked_dispatch(RankContext& context,
                                               Group& group,
                                               const Oracle& oracle,
                                               const DispatchSpec& spec = {});

/// `oracle` has the routing of the handle, and the new call number and weights.
std::optional<DispatchOutput> checked_dispatch_cached(RankContext& context,
                                                      Group& group,
                                                      const Oracle& oracle,
                                                      const DispatchHandle& handle,
                                                      const DispatchSpec& spec = {});

/// Where the experts' rows of a combine lie.
enum class RowsPlace : std::uint8_t {
  kArena,    ///< Group::allocate
  kOutside,  ///< ordinary memory, contiguous
  kStrided,  ///< ordinary memory, a gap behind each row
};

enum class OutPlace : std::uint8_t {
  kLibrary,
  kGuarded,  ///< the caller's, strided, canaries behind each row
};

struct CombineSpec {
  RowValues values{};
  std::int64_t hidden = 64;
  bool weighted = false;
  bool has_bias = false;
  CombineWay way = CombineWay::kAuto;
  RowsPlace place = RowsPlace::kArena;
  OutPlace out = OutPlace::kLibrary;
  std::optional<int> num_sms{};
};

/// What the oracle needs to know of it.
CombineProblem combine_problem(const CombineSpec& spec);

/// Experts' rows for combine and backward; padding and what lies behind the kept rows is poison.
class ExpertRows {
 public:
  ExpertRows(Group& group, const Oracle& oracle, const CombineSpec& spec);
  const ConstTensorView& view() const { return view_; }
  /// Failure of the allocation.
  const Status& status() const { return status_; }

 private:
  Status status_;
  Tensor arena_;
  std::vector<std::byte> outside_;
  ConstTensorView view_;
};

/// The output rows, contiguous; empty, with a finding in `context`, unless everything is right.
std::optional<std::vector<std::byte>> checked_combine(RankContext& context,
                                                      Group& group,
                                                      const Oracle& oracle,
                                                      const DispatchHandle& handle,
                                                      const CombineSpec& spec);

/// Weighted is meaningless here; `has_bias` must be false. True if everything is right.
bool checked_dispatch_backward(RankContext& context,
                               Group& group,
                               const Oracle& oracle,
                               const DispatchHandle& handle,
                               const CombineSpec& spec);

/// Uses values, hidden, weighted and place of `spec`.
bool checked_combine_backward(RankContext& context,
                              Group& group,
                              const Oracle& oracle,
                              const DispatchHandle& handle,
                              const CombineSpec& spec);

/// Dispatch, combine and both backward directions, as a training step does.
bool checked_step(RankContext& context,
                  Group& group,
                  const Oracle& oracle,
                  const DispatchSpec& dispatch,
                  const CombineSpec& combine);

}  // namespace ep::test
