// SPDX-License-Identifier: Apache-2.0
// The points of the model: what they are, and that their figures belong together.
#include "bench/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ep::bench {
namespace {

Job small_job(const std::vector<int>& ranks) {
  Job job;
  job.options.command = Command::kModel;
  job.options.ranks_list = ranks;
  job.options.lsa_size = 4;
  job.options.tokens = 100;
  job.options.hidden = 64;
  job.options.topk = 4;
  job.options.experts = 16;
  return job;
}

std::vector<ModelPoint> points_of(const Job& job) {
  auto points = model_points(job);
  EXPECT_TRUE(points.ok());
  return points.ok() ? std::move(points).value() : std::vector<ModelPoint>();
}

TEST(ModelPoints, AreByRanksRoutingAndDedup) {
  const auto points = points_of(small_job({4, 12}));
  ASSERT_EQ(points.size(), 8u);
  EXPECT_EQ(points[0].shape.nodes.num_ranks(), 4);
  EXPECT_EQ(points[1].shape.dedup, Dedup::kNone);
  EXPECT_EQ(points[2].routing, RoutingKind::kZipf);
  EXPECT_EQ(points[7].shape.nodes.num_ranks(), 12);
  for (const ModelPoint& point : points) {
    ASSERT_EQ(point.ops.size(), 2u);
    EXPECT_EQ(point.num_tokens, 100 * point.shape.nodes.num_ranks());
    EXPECT_EQ(point.expected.has_value(), point.routing == RoutingKind::kUniform);
  }
}

TEST(ModelPoints, CountedRowsAgreeWithTheClosedForm) {
  constexpr double kMaxErrors = 5;
  for (const ModelPoint& point : points_of(small_job({12, 13, 64}))) {
    if (!point.expected) continue;
    EXPECT_NEAR(point.net_rows_per_token, point.expected->rows_per_token,
                kMaxErrors * point.expected->standard_error);
    EXPECT_GT(point.expected->standard_error, 0);
  }
}

TEST(ModelPoints, BytesAreRowsAndAnnouncements) {
  Job job = small_job({8});
  const auto points = points_of(job);
  const ModelPoint& point = points.front();
  constexpr double kRowBytes = 64 * 2;
  constexpr double kMessageBytes = 256 + 100 * 4 * 8;  // to the one other node
  constexpr double kBlockBytes = 256;                  // sizes are exact
  const ModelOp& dispatch = point.ops.front();
  const ModelOp& combine = point.ops.back();
  EXPECT_NEAR(dispatch.net_row_bytes_per_token, point.net_rows_per_token * kRowBytes, 1e-9);
  EXPECT_NEAR(combine.net_row_bytes_per_token, point.net_rows_per_token * kRowBytes, 1e-9);
  EXPECT_NEAR(dispatch.net_sent_bytes.mean,
              dispatch.net_row_bytes_per_token * 100 + kMessageBytes + kBlockBytes, 1e-6);
  EXPECT_NEAR(combine.net_sent_bytes.mean, combine.net_row_bytes_per_token * 100 + 256, 1e-6);
  EXPECT_NEAR(dispatch.net_received_bytes.mean, dispatch.net_sent_bytes.mean, 1e-6);
}

TEST(ModelPoints, DedupMovesLess) {
  const auto points = points_of(small_job({8, 16}));
  for (std::size_t at = 0; at < points.size(); at += 2) {
    const ModelOp& node = points[at].ops.front();
    const ModelOp& none = points[at + 1].ops.front();
    EXPECT_LT(node.net_sent_bytes.mean, none.net_sent_bytes.mean);
    EXPECT_LT(node.signals.mean, none.signals.mean);
    EXPECT_GT(node.lsa_sent_bytes.mean, none.lsa_sent_bytes.mean) << "rows are passed on";
  }
}

TEST(ModelPoints, SkewShowsInTheMaximaOnly) {
  Job job = small_job({16});
  job.options.model.zipf_exponent = 1.5;
  job.options.model.costs.message_us = 0;  // skew also leaves some chunks empty
  const auto points = points_of(job);
  const ModelOp& uniform = points[1].ops.front();
  const ModelOp& skewed = points[3].ops.front();
  EXPECT_GT(static_cast<double>(skewed.net_received_bytes.max),
            1.5 * static_cast<double>(uniform.net_received_bytes.max));
  EXPECT_GT(skewed.time.total_us(), uniform.time.total_us());
}

TEST(ModelPoints, ExpertsGrowWithRanksUnlessTheyAreGiven) {
  Job job = small_job({24});
  EXPECT_EQ(points_of(job).front().num_experts, 24);
  job.options.given.experts = true;
  EXPECT_EQ(points_of(job).front().num_experts, 16);
}

TEST(ModelPoints, NoTokensMoveAnnouncementsOnly) {
  Job job = small_job({8});
  job.options.tokens = 0;
  for (const ModelPoint& point : points_of(job)) {
    EXPECT_EQ(point.net_rows_per_token, 0);
    EXPECT_GT(point.ops.front().net_sent_bytes.max, 0);
    EXPECT_TRUE(std::isfinite(point.ops.front().time.total_us()));
  }
}

}  // namespace
}  // namespace ep::bench
