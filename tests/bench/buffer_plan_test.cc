// SPDX-License-Identifier: Apache-2.0
// Sizes of buffers and arena.
#include "bench/buffer_plan.h"

#include <gtest/gtest.h>

namespace ep::bench {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

Job sample_job() {
  Job job;
  job.host.cache_bytes = 64 * kMiB;
  job.host.memory_bytes = 64 * 1024 * kMiB;
  return job;  // 2 ranks, 1024 tokens of 4 KiB
}

TEST(BenchBufferPlan, SetsExceedTheCache) {
  const BufferPlan plan = plan_buffers(sample_job());
  EXPECT_EQ(plan.set_bytes, 16 * kMiB);
  EXPECT_GT(plan.num_sets * plan.set_bytes, 64 * kMiB);
  EXPECT_FALSE(plan.is_capped);
  EXPECT_GT(plan.num_copy_sets * 2 * plan.max_copy_bytes * 2, 64 * kMiB);
}

TEST(BenchBufferPlan, AGpuRotatesOverFourRoutingsAtLeast) {
  Job job = sample_job();
  job.options.backend = Backend::kCuda;
  job.options.tokens = 65'536;
  const BufferPlan plan = plan_buffers(job);
  EXPECT_EQ(plan.num_sets, kMinCudaSets);
  EXPECT_EQ(plan.num_copy_sets, 0) << "no memcpy beside it";
}

TEST(BenchBufferPlan, LargeBuffersRotateOverTwoSets) {
  Job job = sample_job();
  job.options.tokens = 65'536;
  EXPECT_EQ(plan_buffers(job).num_sets, kMinSets);
}

TEST(BenchBufferPlan, SmallBuffersAreCappedAndSaySo) {
  Job job = sample_job();
  job.options.tokens = 8;
  const BufferPlan plan = plan_buffers(job);
  EXPECT_EQ(plan.num_sets, kMaxSets);
  EXPECT_TRUE(plan.is_capped);
}

TEST(BenchBufferPlan, ALittleMemoryCapsTheSets) {
  Job job = sample_job();
  job.host.memory_bytes = 100 * kMiB;
  const BufferPlan plan = plan_buffers(job);
  EXPECT_EQ(plan.num_sets, 1);
  EXPECT_TRUE(plan.is_capped);
}

TEST(BenchBufferPlan, RowsAreThoseOfTheWorstRouting) {
  Job job = sample_job();
  EXPECT_EQ(plan_buffers(job).max_rows, 2048) << "every token of both ranks";
  job.options.layout = Layout::kExpertMajor;
  EXPECT_EQ(plan_buffers(job).max_rows, 2048 * 4) << "every token to 4 experts of one rank";
  job.options.experts = 5;
  job.options.align = 16;
  EXPECT_EQ(plan_buffers(job).max_rows, 2048 * 3 + 3 * 15) << "3 experts on rank 0, padded";
}

TEST(BenchBufferPlan, TheCapacityBoundsTheRows) {
  Job job = sample_job();
  EXPECT_FALSE(plan_buffers(job).capacity.has_value());
  job.options.capacity = {.kind = Capacity::Kind::kAuto, .rows = 0};
  EXPECT_EQ(plan_buffers(job).capacity, 2048);
  job.options.capacity = {.kind = Capacity::Kind::kRows, .rows = 100};
  EXPECT_EQ(plan_buffers(job).capacity, 100);
  EXPECT_LT(plan_buffers(job).pool_bytes, plan_buffers(sample_job()).pool_bytes);
}

TEST(BenchBufferPlan, NoTokensStillMakeAGroup) {
  Job job = sample_job();
  job.options.tokens = 0;
  const BufferPlan plan = plan_buffers(job);
  EXPECT_GE(plan.num_sets, 1);
  EXPECT_GT(plan.max_copy_bytes, 0);
  EXPECT_EQ(group_config_of(job, plan).max_tokens, 1);
}

TEST(BenchBufferPlan, TheGroupHoldsTheWiderOfBothRows) {
  Job job = sample_job();
  job.options.dtype = DType::kFp8E4M3;
  EXPECT_EQ(group_config_of(job, plan_buffers(job)).max_hidden_bytes, 2 * 2048);
  job.options.dtype = DType::kFp32;
  EXPECT_EQ(group_config_of(job, plan_buffers(job)).max_hidden_bytes, 4 * 2048);
}

}  // namespace
}  // namespace ep::bench
