// SPDX-License-Identifier: Apache-2.0
// The intranode roles on real GPUs, against the oracle: every row that arrives and every sum, bit
// for bit.
#include "intranode/cuda.h"
#include "primitives/wait.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/support/oracle.h"
#include "tests/support/payload.h"
#include "tests/support/routing_cases.h"
#include "tests/support/row_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace ep::test {
namespace {

constexpr int kNumSms = 3;
constexpr std::int64_t kArenaBytes = std::int64_t{256} << 20;

/// One way of dispatching and combining.
struct GpuCase {
  std::string name;
  Layout layout = Layout::kFlat;
  DType dtype = DType::kBf16;
  bool copies_at_receiver = false;
  bool pushes = false;
  bool is_staged = false;
  bool weighted = false;
  bool has_bias = false;
  std::int64_t hidden = 2'600;
};

void PrintTo(const GpuCase& gpu_case, std::ostream* out) { *out << gpu_case.name; }

/// What one rank keeps between a dispatch and its combine.
struct RankBuffers {
  intranode::RoutingParams routing;
  std::int64_t num_rows = 0;
  std::byte* rows = nullptr;
  std::byte* scales = nullptr;
  std::int64_t* topk_idx = nullptr;
  float* topk_weights = nullptr;
  std::byte* records = nullptr;
  layout::RecordLayout record_layout;
  const float* weights = nullptr;  // of this rank's tokens
  std::byte* out = nullptr;
};

class IntranodeGpu : public testing::TestWithParam<GpuCase> {
 protected:
  void SetUp() override {
    if (num_usable_gpus() == 0) GTEST_SKIP() << "needs a GPU";
    Random random(7);
    problem_.routing = random_routing({.num_ranks = 2,
                                       .num_tokens = {203, 75},
                                       .topk = 4,
                                       .expert_to_rank = balanced_map(13, 2),
                                       .masked_percent = 15,
                                       .repeated_percent = 10},
                                      random);
    problem_.layout = GetParam().layout;
    problem_.dtype = GetParam().dtype;
    problem_.alignment = is_expert_major() ? 8 : 1;
    problem_.hidden = GetParam().hidden;
    problem_.num_scales = 5;
    oracle_ = std::make_unique<Oracle>(problem_);
    ranks_ = std::make_unique<GpuRanks>(layout::ControlShape{.num_ranks = num_ranks(),
                                                             .max_tokens = 256,
                                                             .max_experts = 16,
                                                             .max_row_bytes = problem_.row_bytes(),
                                                             .ring_slots = 2},
                                        kArenaBytes);
  }

  int num_ranks() const { return problem_.routing.num_ranks(); }
  bool is_expert_major() const { return problem_.layout == Layout::kExpertMajor; }
  const RankTokens& tokens(int rank) const {
    return problem_.routing.ranks[static_cast<std::size_t>(rank)];
  }

  primitives::OpParams op_params(int rank, layout::OpKind kind) const {
    primitives::OpParams op = ranks_->op_params(rank);
    op.announcement[layout::OpField::kKind] = static_cast<std::uint32_t>(kind);
    op.announcement[layout::OpField::kNumTokens] =
        static_cast<std::uint32_t>(tokens(rank).num_tokens);
    return op;
  }

  intranode::RoutingParams make_routing(int rank) {
    std::vector<std::int32_t> rank_of;
    std::vector<std::int32_t> local_of;
    for (int expert = 0; expert < problem_.routing.num_experts(); ++expert) {
      rank_of.push_back(oracle_->owner_of(expert));
      local_of.push_back(oracle_->local_of(expert));
    }
    GpuRank& gpu = (*ranks_)[rank];
    intranode::RoutingParams routing;
    routing.tables = layout::make_table_layout({.num_ranks = num_ranks(),
                                                .num_experts = problem_.routing.num_experts(),
                                                .num_tokens = tokens(rank).num_tokens,
                                                .topk = problem_.routing.topk,
                                                .has_expert_rows = is_expert_major()});
    routing.block = gpu.allocate(routing.tables.total_bytes);
    routing.rank_of = gpu.upload(rank_of);
    routing.local_of = gpu.upload(local_of);
    routing.num_local_experts = static_cast<int>(oracle_->experts_of(rank).size());
    routing.alignment = problem_.alignment;
    return routing;
  }

  std::byte* upload_tokens(int rank, bool are_scales) {
    const std::int64_t row_bytes = are_scales ? problem_.scales_bytes() : problem_.row_bytes();
    std::vector<std::byte> bytes(static_cast<std::size_t>(tokens(rank).num_tokens * row_bytes));
    for (std::int64_t token = 0; token < tokens(rank).num_tokens; ++token) {
      const std::span<std::byte> row = std::span(bytes).subspan(
          static_cast<std::size_t>(token * row_bytes), static_cast<std::size_t>(row_bytes));
      const PayloadId id{.src_rank = rank, .token = token, .call = problem_.call};
      are_scales ? fill_scales(row, id) : fill_row(row, id);
    }
    return (*ranks_)[rank].upload(bytes);
  }

  RankBuffers make_buffers(int rank) {
    GpuRank& gpu = (*ranks_)[rank];
    RankBuffers buffers;
    buffers.routing = make_routing(rank);
    const std::int64_t num_rows = oracle_->rank(rank).num_rows();
    const std::int64_t num_pairs = 256 * num_ranks();
    buffers.num_rows = num_rows;
    buffers.rows = gpu.allocate(num_rows * problem_.row_bytes());
    buffers.scales = gpu.allocate(num_rows * problem_.scales_bytes());
    const std::int64_t num_words = num_rows * (is_expert_major() ? 1 : problem_.routing.topk);
    buffers.topk_idx = layout::array_at<std::int64_t>(gpu.allocate(num_words * 8), 0);
    buffers.topk_weights = layout::array_at<float>(gpu.allocate(num_words * 4), 0);
    buffers.record_layout =
        layout::make_record_layout(num_pairs, problem_.routing.topk, is_expert_major());
    buffers.records = gpu.allocate(buffers.record_layout.total_bytes);
    buffers.weights = gpu.upload(tokens(rank).topk_weights);
    buffers.out = gpu.allocate(tokens(rank).num_tokens * problem_.row_bytes());
    return buffers;
  }

  layout::BlockAnnouncement dispatch_block(int rank) {
    const RankBuffers& buffers = buffers_[static_cast<std::size_t>(rank)];
    const GpuRank& gpu = (*ranks_)[rank];
    layout::BlockAnnouncement block;
    block[layout::BlockField::kCapacityRows] = static_cast<std::uint32_t>(buffers.num_rows);
    block.place(layout::Section::kRows, gpu.locate(buffers.rows));
    block.place(layout::Section::kScales, gpu.locate(buffers.scales));
    block.place(layout::Section::kTopkIdx, gpu.locate(buffers.topk_idx));
    block.place(layout::Section::kTopkWeights, gpu.locate(buffers.topk_weights));
    block.place(layout::Section::kSrcTokens,
                gpu.locate(buffers.records + buffers.record_layout.src_tokens));
    block.place(layout::Section::kRecordRows,
                gpu.locate(buffers.records + buffers.record_layout.record_rows));
    return block;
  }

  intranode::DispatchParams dispatch_params(int rank) {
    const RankBuffers& buffers = buffers_[static_cast<std::size_t>(rank)];
    intranode::DispatchParams params;
    params.op = op_params(rank, layout::OpKind::kDispatch);
    params.routing = buffers.routing;
    params.x = {upload_tokens(rank, false), problem_.row_bytes(), problem_.row_bytes()};
    params.scales = {upload_tokens(rank, true), problem_.scales_bytes(), problem_.scales_bytes()};
    params.topk_idx = {(*ranks_)[rank].upload(tokens(rank).topk_idx), problem_.routing.topk, 1};
    params.topk_weights = {buffers.weights, problem_.routing.topk, 1};
    params.is_fresh = true;
    params.has_weights = true;
    params.copies_at_receiver = GetParam().copies_at_receiver;
    params.has_records = !is_expert_major();
    params.block = dispatch_block(rank);
    return params;
  }

  /// On the first `num_launched` ranks; the others never come.
  void launch_dispatches(int num_launched) {
    buffers_.clear();
    std::vector<intranode::DispatchParams> launches;
    for (int rank = 0; rank < num_ranks(); ++rank) {
      (*ranks_)[rank].free_all();
      buffers_.push_back(make_buffers(rank));
      launches.push_back(dispatch_params(rank));
    }
    for (int rank = 0; rank < num_launched; ++rank) {
      (*ranks_)[rank].use_device();
      const Status status =
          intranode::launch_dispatch(ranks_->kernels(rank), {(*ranks_)[rank].stream()},
                                     launches[static_cast<std::size_t>(rank)], kNumSms);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }

  void dispatch() {
    ASSERT_NO_FATAL_FAILURE(launch_dispatches(num_ranks()));
    finish();
  }

  void combine() {
    std::vector<intranode::CombineParams> launches;
    for (int rank = 0; rank < num_ranks(); ++rank) launches.push_back(combine_params(rank));
    for (int rank = 0; rank < num_ranks(); ++rank) {
      (*ranks_)[rank].use_device();
      const Status status =
          intranode::launch_combine(ranks_->kernels(rank), {(*ranks_)[rank].stream()},
                                    launches[static_cast<std::size_t>(rank)], kNumSms);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    finish();
  }

  intranode::CombineParams combine_params(int rank) {
    const RankBuffers& buffers = buffers_[static_cast<std::size_t>(rank)];
    GpuRank& gpu = (*ranks_)[rank];
    const std::int64_t row_bytes = problem_.row_bytes();
    const std::int64_t num_tokens = tokens(rank).num_tokens;
    intranode::CombineParams params;
    params.op = op_params(rank, layout::OpKind::kCombine);
    params.routing = buffers.routing;
    params.rows = {upload_expert_rows(rank), row_bytes, row_bytes};
    params.src_tokens =
        layout::array_at<std::int32_t>(buffers.records, buffers.record_layout.src_tokens);
    params.record_rows =
        layout::array_at<std::int32_t>(buffers.records, buffers.record_layout.record_rows);
    if (GetParam().has_bias) params.bias = {upload_biases(rank), row_bytes, row_bytes};
    params.out = buffers.out;
    params.out_stride_bytes = row_bytes;
    params.sum = {.num_elems = problem_.hidden,
                  .dtype = problem_.dtype,
                  .weighted = GetParam().weighted,
                  .max_terms = is_expert_major() ? problem_.routing.topk : num_ranks()};
    params.pushes = GetParam().pushes;
    params.is_staged = GetParam().is_staged;
    params.block[layout::BlockField::kIsStaged] = GetParam().is_staged ? 1 : 0;
    params.block[layout::BlockField::kRowStrideUnits] =
        static_cast<std::uint32_t>(row_bytes / layout::kLocationUnit);
    params.block.place(layout::Section::kRows, gpu.locate(params.rows.data));
    if (GetParam().weighted) {
      auto* copy = layout::array_at<float>(gpu.allocate(num_tokens * problem_.routing.topk * 4), 0);
      params.weights = {
          {buffers.weights, problem_.routing.topk, 1}, num_tokens, problem_.routing.topk, copy};
      params.block.place(layout::Section::kTopkWeights, gpu.locate(copy));
    }
    return params;
  }

  std::byte* upload_expert_rows(int rank) {
    const ExpectedRank& expected = oracle_->rank(rank);
    const auto row_bytes = static_cast<std::size_t>(problem_.row_bytes());
    std::vector<std::byte> bytes(static_cast<std::size_t>(expected.num_rows()) * row_bytes);
    for (std::size_t row = 0; row < expected.rows.size(); ++row) {
      if (expected.rows[row].is_padding) continue;
      values().fill_expert_row(rank, expected.rows[row],
                               std::span(bytes).subspan(row * row_bytes, row_bytes));
    }
    return (*ranks_)[rank].upload(bytes);
  }

  std::byte* upload_biases(int rank) {
    const auto row_bytes = static_cast<std::size_t>(problem_.row_bytes());
    std::vector<std::byte> bytes(static_cast<std::size_t>(tokens(rank).num_tokens) * row_bytes);
    for (std::int64_t token = 0; token < tokens(rank).num_tokens; ++token) {
      values().fill_token_row(
          rank, token,
          std::span(bytes).subspan(static_cast<std::size_t>(token) * row_bytes, row_bytes));
    }
    return (*ranks_)[rank].upload(bytes);
  }

  RowValues values() const {
    return {.kind = ValueKind::kSpecial, .dtype = problem_.dtype, .seed = 11};
  }

  /// Waits for all ranks; no one may have given up.
  void finish() {
    for (int rank = 0; rank < num_ranks(); ++rank) (*ranks_)[rank].wait();
    for (int rank = 0; rank < num_ranks(); ++rank) {
      const layout::FaultRecord fault = ranks_->fault(rank);
      ASSERT_EQ(fault.claimed, 0U)
          << "rank " << rank << ": site " << fault.site << " peer " << fault.peer << " expected "
          << fault.expected << " got " << fault.got;
      ASSERT_EQ(ranks_->local_state(rank).verdict.value,
                static_cast<std::uint64_t>(intranode::Verdict::kAccepted));
    }
  }

  void check_received(int rank) {
    const RankBuffers& buffers = buffers_[static_cast<std::size_t>(rank)];
    const ExpectedRank& expected = oracle_->rank(rank);
    const auto row_bytes = static_cast<std::size_t>(problem_.row_bytes());
    const auto scale_bytes = static_cast<std::size_t>(problem_.scales_bytes());
    const GpuRank& gpu = (*ranks_)[rank];
    const auto rows =
        gpu.download<std::byte>(buffers.rows, buffers.num_rows * problem_.row_bytes());
    const auto scales =
        gpu.download<std::byte>(buffers.scales, buffers.num_rows * problem_.scales_bytes());
    for (std::size_t i = 0; i < expected.rows.size(); ++i) {
      const ExpectedRow& row = expected.rows[i];
      const auto bytes = std::span(rows).subspan(i * row_bytes, row_bytes);
      if (row.is_padding) {
        ASSERT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{}; }))
            << "padding row " << i;
        continue;
      }
      const PayloadId id{.src_rank = row.src_rank, .token = row.token, .call = problem_.call};
      ASSERT_EQ(row_mismatch(bytes, id), "") << "rank " << rank << " row " << i;
      ASSERT_EQ(scales_mismatch(std::span(scales).subspan(i * scale_bytes, scale_bytes), id), "")
          << "rank " << rank << " row " << i;
    }
    is_expert_major() ? check_expert_records(rank) : check_flat_records(rank);
  }

  void check_flat_records(int rank) {
    const RankBuffers& buffers = buffers_[static_cast<std::size_t>(rank)];
    const int topk = problem_.routing.topk;
    const auto idx =
        (*ranks_)[rank].download<std::int64_t>(buffers.topk_idx, buffers.num_rows * topk);
    const auto weights =
        (*ranks_)[rank].download<float>(buffers.topk_weights, buffers.num_rows * topk);
    for (std::size_t i = 0; i < idx.size(); ++i) {
      const ExpectedRow& row = oracle_->rank(rank).rows[i / static_cast<std::size_t>(topk)];
      const int k = static_cast<int>(i % static_cast<std::size_t>(topk));
      const std::optional<RowPlace> place = oracle_->place_of(row.src_rank, row.token, k);
      const bool is_here = place && place->rank == rank && !place->is_repeat();
      ASSERT_EQ(idx[i], is_here ? oracle_->local_of(place->expert) : -1)
          << "rank " << rank << " word " << i;
      ASSERT_EQ(weights[i], is_here ? oracle_->summed_weight(row.src_rank, row.token, k) : 0.0F);
    }
  }

  void check_expert_records(int rank) {
    const RankBuffers& buffers = buffers_[static_cast<std::size_t>(rank)];
    const ExpectedRank& expected = oracle_->rank(rank);
    const GpuRank& gpu = (*ranks_)[rank];
    const auto weights = gpu.download<float>(buffers.topk_weights, buffers.num_rows);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const ExpectedRow& row = expected.rows[i];
      ASSERT_EQ(weights[i], row.is_padding ? 0.0F : oracle_->weight_of(row))
          << "rank " << rank << " row " << i;
    }
    const layout::TableLayout& tables = buffers.routing.tables;
    EXPECT_EQ(gpu.download<std::int64_t>(buffers.routing.block + tables.expert_counts,
                                         static_cast<std::int64_t>(expected.expert_counts.size())),
              expected.expert_counts);
    EXPECT_EQ(gpu.download<std::int64_t>(buffers.routing.block + tables.expert_offsets,
                                         static_cast<std::int64_t>(expected.expert_offsets.size())),
              expected.expert_offsets);
  }

  void check_combined(int rank) {
    const auto row_bytes = static_cast<std::size_t>(problem_.row_bytes());
    const auto out =
        (*ranks_)[rank].download<std::byte>(buffers_[static_cast<std::size_t>(rank)].out,
                                            tokens(rank).num_tokens * problem_.row_bytes());
    CombineProblem combine{
        .dtype = problem_.dtype, .hidden = problem_.hidden, .weighted = GetParam().weighted};
    combine.rows = [this](int owner, const ExpectedRow& row, std::span<std::byte> bytes) {
      values().fill_expert_row(owner, row, bytes);
    };
    if (GetParam().has_bias) {
      combine.bias = [this](int src_rank, std::int64_t token, std::span<std::byte> bytes) {
        values().fill_token_row(src_rank, token, bytes);
      };
    }
    for (std::int64_t token = 0; token < tokens(rank).num_tokens; ++token) {
      const CombinedRow expected = combine_token(*oracle_, combine, rank, token);
      const auto row =
          std::span(out).subspan(static_cast<std::size_t>(token) * row_bytes, row_bytes);
      const auto differs = std::ranges::mismatch(row, expected.bytes).in1;
      ASSERT_EQ(differs, row.end())
          << "rank " << rank << " token " << token << " byte " << differs - row.begin();
    }
  }

  Problem problem_;
  std::unique_ptr<Oracle> oracle_;
  std::unique_ptr<GpuRanks> ranks_;
  std::vector<RankBuffers> buffers_;
};

TEST_P(IntranodeGpu, RowsArriveAndComeBackSummed) {
  constexpr int kRounds = 3;  // the counters must be ready for the next operation
  for (int round = 0; round < kRounds; ++round) {
    problem_.call = static_cast<std::uint32_t>(round + 1);
    ASSERT_NO_FATAL_FAILURE(dispatch());
    for (int rank = 0; rank < num_ranks(); ++rank) ASSERT_NO_FATAL_FAILURE(check_received(rank));
    ASSERT_NO_FATAL_FAILURE(combine());
    for (int rank = 0; rank < num_ranks(); ++rank) ASSERT_NO_FATAL_FAILURE(check_combined(rank));
  }
}

class IntranodeGpuFault : public IntranodeGpu {};

// The send role has loads in flight when it learns that it may not send.
TEST_P(IntranodeGpuFault, RankThatNeverComesEndsEveryWait) {
  ASSERT_NO_FATAL_FAILURE(launch_dispatches(1));
  (*ranks_)[0].wait();
  const layout::FaultRecord fault = ranks_->fault(0);
  constexpr std::uint32_t kComplete = 2;
  EXPECT_EQ(fault.claimed, kComplete);
  EXPECT_EQ(fault.peer, 1);
  EXPECT_EQ(fault.site, static_cast<std::uint32_t>(primitives::WaitSite::kAnnounced));
}

TEST(IntranodeGpuLaunch, RowsThatAreNotAlignedAreRefused) {
  intranode::DispatchParams dispatch;
  dispatch.x = {nullptr, 24, 24};
  EXPECT_EQ(intranode::launch_dispatch({}, {}, dispatch, kNumSms).code(), Errc::kInvalidArgument);
  intranode::CombineParams combine;
  combine.rows = {nullptr, 24, 24};
  EXPECT_EQ(intranode::launch_combine({}, {}, combine, kNumSms).code(), Errc::kInvalidArgument);
}

const GpuCase kCases[] = {
    {.name = "Flat"},
    {.name = "FlatFp16Bias", .dtype = DType::kFp16, .has_bias = true},
    {.name = "FlatFp32", .dtype = DType::kFp32},
    {.name = "FlatStaged", .is_staged = true},
    {.name = "FlatLargeRows", .dtype = DType::kFp32, .hidden = 10'240},
    {.name = "ExpertsCopiedBySender", .layout = Layout::kExpertMajor, .weighted = true},
    {.name = "ExpertsCopiedByReceiver",
     .layout = Layout::kExpertMajor,
     .dtype = DType::kFp16,
     .copies_at_receiver = true,
     .weighted = true},
    {.name = "ExpertsPushed", .layout = Layout::kExpertMajor, .pushes = true, .weighted = true},
    {.name = "ExpertsPushedUnweighted",
     .layout = Layout::kExpertMajor,
     .dtype = DType::kFp32,
     .pushes = true},
    {.name = "ExpertsLargeRows",
     .layout = Layout::kExpertMajor,
     .copies_at_receiver = true,
     .hidden = 20'480},
};

INSTANTIATE_TEST_SUITE_P(All, IntranodeGpu, testing::ValuesIn(kCases), [](const auto& param) {
  return param.param.name;
});
INSTANTIATE_TEST_SUITE_P(Each,
                         IntranodeGpuFault,
                         testing::Values(GpuCase{.name = "Flat"},
                                         GpuCase{.name = "Experts",
                                                 .layout = Layout::kExpertMajor,
                                                 .copies_at_receiver = true}),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace ep::test
