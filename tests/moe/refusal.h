// SPDX-License-Identifier: Apache-2.0
// One rank makes a bad call: all get kInvalidArgument, the messages say why and who, and the group
// goes on.
#pragma once

#include "tests/moe/sample_problems.h"
#include "tests/support/moe_ops.h"

#include <functional>
#include <string>
#include <vector>

namespace ep::test {

inline constexpr int kRefusalRanks = 3;
inline constexpr int kFaultyRank = 1;

/// What a call may need beyond its views: memory that lives as long as the call.
struct Scratch {
  std::vector<std::byte> bytes{};
  std::vector<Tensor> tensors{};
  std::unique_ptr<Group> other_group{};
};

/// The calls that a test spoils, with arguments that are right.
struct Call {
  RankContext& context;
  Group& group;
  const Oracle& oracle;
  const DispatchOutput& dispatched;  ///< of an earlier, right dispatch of the same problem
  Scratch& scratch;
};

/// Makes the call; spoils it if `is_spoiled`.
using CallBody = std::function<Status(const Call& call, bool is_spoiled)>;

/// `mentions` must be in the message of the faulty rank; the others must name that rank. Then a
/// right dispatch and combine follow in the same group.
void expect_refusal(const Problem& problem,
                    const CallBody& body,
                    const std::vector<std::string>& mentions);

/// The faulty rank's call differs: all ranks' messages have all `mentions`.
void expect_disagreement(const Problem& problem,
                         const CallBody& body,
                         const std::vector<std::string>& mentions);

/// 40 tokens per rank, 6 experts, K = 4; H = 64 bf16.
Problem refusal_problem(Layout layout);

/// A dispatch of the problem, changed by `spoil` on the faulty rank.
using SpoilDispatch = std::function<void(const Call&, DispatchInput&, DispatchOptions&)>;
CallBody spoiled_dispatch(const SpoilDispatch& spoil);
CallBody spoiled_cached(const SpoilDispatch& spoil);

struct CombineArguments {
  DispatchHandle handle{};
  CombineInput input{};
  CombineOptions options{};
};
CallBody spoiled_combine(const std::function<void(const Call&, CombineArguments&)>& spoil);

struct DispatchGradArguments {
  DispatchHandle handle{};
  DispatchGradInput input{};
};
CallBody spoiled_dispatch_backward(
    const std::function<void(const Call&, DispatchGradArguments&)>& spoil);

struct CombineGradArguments {
  DispatchHandle handle{};
  CombineGradInput input{};
};
CallBody spoiled_combine_backward(
    const std::function<void(const Call&, CombineGradArguments&)>& spoil);

}  // namespace ep::test
