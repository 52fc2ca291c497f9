// SPDX-License-Identifier: Apache-2.0
// Counts every routing once for both forms of dedup.
#include "bench/model.h"

#include "base/check.h"
#include "bench/model_expected.h"
#include "bench/plot.h"
#include "bench/report.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace ep::bench {
namespace {

constexpr std::array kDedups = {Dedup::kNode, Dedup::kNone};

RouteShape shape_of(const Options& options, Dedup dedup) {
  const int lsa_size = std::min(options.lsa_size.value_or(options.ranks), options.ranks);
  return {.nodes = Nodes(options.ranks, lsa_size),
          .dedup = dedup,
          .chunk_tokens = options.model.chunk_tokens};
}

/// One number of ranks and one routing.
struct PointInput {
  Job job;  ///< its ranks and experts are those of the point
  RoutingKind kind = RoutingKind::kUniform;
  ExpertMap experts;

  std::unique_ptr<Routing> make_routing() const {
    const RoutingConfig config = job.routing_config();
    if (kind == RoutingKind::kUniform) return make_random_routing(config);
    if (kind == RoutingKind::kZipf) {
      return make_zipf_routing(config, job.options.model.zipf_exponent);
    }
    return job.make_routing();
  }
};

WireShape wire_of(const Options& options) {
  const RowFormat rows = {.dtype = options.dtype, .hidden = options.hidden, .exact = false};
  const bool is_fresh = options.routing == RoutingReuse::kFresh;
  return {.row_bytes = static_cast<std::int64_t>(rows.row_bytes()),
          .scale_bytes = static_cast<std::int64_t>(rows.num_scales() * sizeof(float)),
          .returned_row_bytes = options.hidden * size_of(expert_dtype_of(options.dtype)),
          .topk = options.topk,
          .num_columns = options.ranks + options.experts,
          .has_new_ids = is_fresh,
          .combines_weights = options.layout == Layout::kExpertMajor,
          .has_late_blocks = is_fresh && options.capacity.kind == Capacity::Kind::kExact};
}

using Traffics = std::vector<RankTraffic<std::int64_t>>;

template <class Figure>
MeanAndMax over_ranks(const Traffics& ranks, Figure figure) {
  MeanAndMax result;
  for (const RankTraffic<std::int64_t>& rank : ranks) {
    const std::int64_t value = figure(rank.total());
    result.mean += static_cast<double>(value) / static_cast<double>(ranks.size());
    result.max = std::max(result.max, value);
  }
  return result;
}

double per(std::int64_t sum, std::int64_t count) {
  return count > 0 ? static_cast<double>(sum) / static_cast<double>(count) : 0;
}

ModelOp op_of(const RouteMatrix<std::int64_t>& routes,
              const Options& options,
              std::int64_t num_tokens,
              Movement movement) {
  using Total = Flow<std::int64_t>;
  const WireShape wire = wire_of(options);
  const Traffics ranks = traffic_of(routes, wire, movement);
  const RouteCount<std::int64_t> net = net_total(routes);
  const std::int64_t row_bytes = wire.net_row_bytes(routes.shape().dedup, movement);
  const double chunk_bytes = per(net.rows * row_bytes, net.chunks);
  return {
      .movement = movement,
      .net_row_bytes_per_token = per(net.rows * row_bytes, num_tokens),
      .link_bytes = busiest_link(routes, wire, movement).bytes,
      .net_sent_bytes = over_ranks(ranks, [](const Total& flow) { return flow.sent.bytes; }),
      .net_received_bytes =
          over_ranks(ranks, [](const Total& flow) { return flow.received.bytes; }),
      .puts = over_ranks(ranks, [](const Total& flow) { return flow.sent.puts; }),
      .signals = over_ranks(ranks, [](const Total& flow) { return flow.sent.signals; }),
      .lsa_sent_bytes = over_ranks(ranks, [](const Total& flow) { return flow.lsa_sent_bytes; }),
      .lsa_received_bytes =
          over_ranks(ranks, [](const Total& flow) { return flow.lsa_received_bytes; }),
      .time = estimate_time(ranks, options.model.costs, movement, chunk_bytes)};
}

Expectation expectation_of(const PointInput& input, const RouteShape& shape) {
  const Options& options = input.job.options;
  const NetMoments net =
      expected_net(shape, input.experts, {.num_tokens = options.tokens, .topk = options.topk});
  const double num_tokens = static_cast<double>(options.tokens) * options.ranks;
  if (num_tokens == 0) return {};
  return {.rows_per_token = net.rows.mean / num_tokens,
          .standard_error = std::sqrt(net.rows.variance) / num_tokens};
}

ModelPoint point_of(const PointInput& input,
                    const RouteMatrix<std::int64_t>& routes,
                    std::int64_t num_tokens) {
  const Options& options = input.job.options;
  ModelPoint point = {.routing = input.kind,
                      .shape = routes.shape(),
                      .num_experts = options.experts,
                      .num_tokens = num_tokens,
                      .net_rows_per_token = per(net_total(routes).rows, num_tokens)};
  if (input.kind == RoutingKind::kUniform) point.expected = expectation_of(input, routes.shape());
  for (const Movement movement : {Movement::kDispatch, Movement::kCombine}) {
    point.ops.push_back(op_of(routes, options, num_tokens, movement));
  }
  return point;
}

void add_points(const PointInput& input, std::vector<ModelPoint>& points) {
  std::vector<RouteCounter> counters;
  for (const Dedup dedup : kDedups) {
    counters.emplace_back(shape_of(input.job.options, dedup), input.experts);
  }
  const std::unique_ptr<Routing> routing = input.make_routing();
  std::int64_t num_tokens = 0;
  for (int rank = 0; rank < input.job.options.ranks; ++rank) {
    const RankChoices choices = choices_of(*routing, 0, rank);
    num_tokens += choices.num_tokens;
    for (RouteCounter& counter : counters) {
      counter.add(rank, choices.topk_idx, input.job.options.topk);
    }
  }
  for (const RouteCounter& counter : counters) {
    points.push_back(point_of(input, counter.routes(), num_tokens));
  }
}

std::vector<RoutingKind> kinds_of(const Job& job) {
  if (job.trace) return {RoutingKind::kTrace};
  std::vector<RoutingKind> kinds = {RoutingKind::kUniform, RoutingKind::kZipf};
  if (job.text) kinds.push_back(RoutingKind::kText);
  return kinds;
}

/// Where nobody says how many experts there are, every rank has one.
Options options_of_ranks(const Job& job, int num_ranks) {
  Options options = job.options;
  options.ranks = num_ranks;
  const bool may_grow = !options.given.experts && !job.trace;
  if (may_grow) options.experts = std::max(options.experts, num_ranks);
  return options;
}

}  // namespace

const char* name_of(RoutingKind kind) {
  switch (kind) {
    case RoutingKind::kUniform:
      return "uniform";
    case RoutingKind::kZipf:
      return "zipf";
    case RoutingKind::kText:
      return "text";
    case RoutingKind::kTrace:
      return "trace";
  }
  return "?";
}

Result<std::vector<ModelPoint>> model_points(const Job& job) {
  std::vector<int> all_ranks = job.options.ranks_list;
  if (job.trace || all_ranks.empty()) all_ranks = {job.options.ranks};
  std::vector<ModelPoint> points;
  for (const int num_ranks : all_ranks) {
    PointInput input;
    input.job = job;
    input.job.options = options_of_ranks(job, num_ranks);
    EP_TRY_ASSIGN(input.experts, ExpertMap::balanced(input.job.options.experts, num_ranks));
    for (const RoutingKind kind : kinds_of(job)) {
      input.kind = kind;
      add_points(input, points);
    }
  }
  return points;
}

Result<std::vector<RankTraffic<std::int64_t>>> predict_step(const Job& job,
                                                            Routing& routing,
                                                            int step,
                                                            Movement movement) {
  const Options& options = job.options;
  EP_TRY_ASSIGN(const ExpertMap experts, ExpertMap::balanced(options.experts, options.ranks));
  const RouteShape shape = shape_of(options, Dedup::kNode);
  return traffic_of(count_routes(routing, step, shape, experts), wire_of(options), movement);
}

Status run_model(const Job& job, std::ostream& out) {
  EP_TRY_ASSIGN(const std::vector<ModelPoint> points, model_points(job));
  print_model(job, points, out);
  const std::string lines = model_json_lines(job, points);
  EP_TRY(write_json_lines(job.options, lines));
  if (!job.options.plot) return {};
  return plot_lines(lines, *job.options.plot);
}

}  // namespace ep::bench
