// SPDX-License-Identifier: Apache-2.0
// The model subcommand: bytes, messages and an estimate of time by number of ranks, counted over
// routings that are generated or given. Runs no rank, measures nothing.
#pragma once

#include "bench/job.h"
#include "bench/model_time.h"
#include "bench/model_traffic.h"

#include <ep/status.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace ep::bench {

/// Unless the command line says otherwise.
struct ModelDefaults {
  std::vector<int> ranks = {8, 16, 32, 64, 128, 256, 512, 1024};
  int lsa_size = 8;
  std::int64_t tokens = 4096;
  std::int64_t hidden = 7168;
  int topk = 8;
  int experts = 256;  ///< as many as ranks where there are more ranks
};

enum class RoutingKind : std::uint8_t { kUniform, kZipf, kText, kTrace };
const char* name_of(RoutingKind kind);

/// Over ranks.
struct MeanAndMax {
  double mean = 0;
  std::int64_t max = 0;
};

/// Dispatch or combine of one point.
struct ModelOp {
  Movement movement = Movement::kDispatch;
  double net_row_bytes_per_token = 0;  ///< without announcements
  std::int64_t link_bytes = 0;         ///< of the busiest link, without announcements
  MeanAndMax net_sent_bytes;
  MeanAndMax net_received_bytes;
  MeanAndMax puts;     ///< sent
  MeanAndMax signals;  ///< sent
  MeanAndMax lsa_sent_bytes;
  MeanAndMax lsa_received_bytes;
  TimeEstimate time;
};

/// Rows over the network per token, of uniform routing: closed form and its standard error.
struct Expectation {
  double rows_per_token = 0;
  double standard_error = 0;
};

struct ModelPoint {
  RoutingKind routing = RoutingKind::kUniform;
  RouteShape shape;
  int num_experts = 0;
  std::int64_t num_tokens = 0;  ///< of all ranks
  double net_rows_per_token = 0;
  std::optional<Expectation> expected{};
  std::vector<ModelOp> ops{};  ///< dispatch, combine
};

/// A point for every number of ranks, routing and dedup; of a trace its first step. Errors:
/// kInvalidArgument if a number of ranks or experts does not fit the other options.
Result<std::vector<ModelPoint>> model_points(const Job& job);

/// By rank, what one step of a run with the options of `job` moves; --lsa-size splits its ranks
/// into nodes, with dedup. For compare_traffic. Errors: kInvalidArgument if ranks or experts do not
/// fit.
Result<std::vector<RankTraffic<std::int64_t>>> predict_step(const Job& job,
                                                            Routing& routing,
                                                            int step,
                                                            Movement movement);

std::string model_json_lines(const Job& job, const std::vector<ModelPoint>& points);
void print_model(const Job& job, const std::vector<ModelPoint>& points, std::ostream& out);

/// Table, JSON lines and drawing.
Status run_model(const Job& job, std::ostream& out);

}  // namespace ep::bench
