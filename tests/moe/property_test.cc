// SPDX-License-Identifier: Apache-2.0
// Random problems through all operations, against the oracle.
#include "tests/support/property.h"

#include "tests/support/arbitrary_problem.h"
#include "tests/support/moe_ops.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <string>

namespace ep::test {
namespace {

CombineSpec arbitrary_combine(const Problem& problem) {
  CombineSpec spec;
  spec.values.dtype = *rc::gen::element(DType::kBf16, DType::kFp16, DType::kFp32);
  spec.values.kind = *rc::gen::element(ValueKind::kMixed, ValueKind::kSpecial);
  spec.values.seed = problem.call;
  const auto max_hidden = static_cast<int>(problem.row_bytes() / size_of(spec.values.dtype));
  const int granule = 16 / size_of(spec.values.dtype);
  spec.hidden = granule * *rc::gen::inRange(1, max_hidden / granule + 1);
  spec.weighted = problem.layout == Layout::kExpertMajor && *rc::gen::arbitrary<bool>();
  spec.has_bias = *rc::gen::arbitrary<bool>();
  spec.way = *rc::gen::element(CombineWay::kAuto, CombineWay::kPull, CombineWay::kPush);
  spec.place = *rc::gen::element(RowsPlace::kArena, RowsPlace::kOutside, RowsPlace::kStrided);
  spec.out = *rc::gen::element(OutPlace::kLibrary, OutPlace::kGuarded);
  return spec;
}

/// Findings of all ranks; a property must not use GoogleTest's expectations, which cannot be
/// shrunk.
std::string findings_of(const Oracle& oracle,
                        const DispatchSpec& dispatch,
                        const CombineSpec& combine,
                        const GroupConfig& config) {
  const int num_ranks = oracle.problem().routing.num_ranks();
  const auto reports = run_ranks({.num_ranks = num_ranks}, [&](RankContext& context) {
    const auto group = Group::create(context.bootstrap(), config);
    if (context.expect_ok(group.status(), "create"))
      checked_step(context, **group, oracle, dispatch, combine);
  });
  std::string findings;
  for (const RankReport& report : reports) {
    for (const std::string& failure : report.failures) findings += failure + "\n";
  }
  return findings;
}

TEST(AnyProblem, GoesThroughAllOperationsAsTheOracleSays) {
  check_property(scaled_rounds(250, 5000), 31, [] {
    const Problem problem = arbitrary_problem();
    DispatchSpec dispatch;
    dispatch.copy_way = *rc::gen::element(CopyWay::kAuto, CopyWay::kSender, CopyWay::kReceiver);
    dispatch.gives_buffers = !problem.capacity.empty() && *rc::gen::arbitrary<bool>();
    dispatch.strides.is_topk_transposed = *rc::gen::arbitrary<bool>();
    dispatch.strides.row_gap_bytes = *rc::gen::element(0, 16, 48);
    GroupConfig config = config_for(problem);
    config.ring_slots = *rc::gen::element(1, 2, 4);
    config.num_sms = *rc::gen::inRange(1, 4);
    const CombineSpec combine = arbitrary_combine(problem);
    RC_LOG() << problem.describe() << "\ncombine: " << name_of(combine.values.dtype)
             << " H=" << combine.hidden << (combine.weighted ? " weighted" : "")
             << (combine.has_bias ? " bias" : "") << " way=" << static_cast<int>(combine.way)
             << " place=" << static_cast<int>(combine.place) << " sms=" << *config.num_sms
             << " slots=" << config.ring_slots.value_or(0) << "\n";
    const std::string findings = findings_of(Oracle(problem), dispatch, combine, config);
    RC_LOG() << findings;
    RC_ASSERT(findings.empty());
  });
}

}  // namespace
}  // namespace ep::test
