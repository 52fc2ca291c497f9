// SPDX-License-Identifier: Apache-2.0
// The points of the model as JSON lines and as a table; the keys are a contract (bench/README.md).
#include "bench/model.h"
#include "bench/report.h"

#include <ep/version.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ostream>

namespace ep::bench {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Movement movement) {
  return name_of(movement == Movement::kDispatch ? Command::kDispatch : Command::kCombine);
}

const char* name_of(Dedup dedup) { return dedup == Dedup::kNode ? "node" : "none"; }

void add_shape(Json& line, const Job& job, const ModelPoint& point) {
  const Options& options = job.options;
  line["ranks"] = point.shape.nodes.num_ranks();
  line["lsa_size"] = point.shape.nodes.lsa_size();
  line["tokens"] = options.tokens;
  line["hidden"] = options.hidden;
  line["topk"] = options.topk;
  line["experts"] = point.num_experts;
  line["dtype"] = option_name_of(options.dtype);
  line["routing"] = name_of(point.routing);
  line["zipf"] =
      point.routing == RoutingKind::kZipf ? Json(options.model.zipf_exponent) : Json(nullptr);
  line["dedup"] = name_of(point.shape.dedup);
  line["chunk_tokens"] = point.shape.chunk_tokens;
  line["seed"] = options.seed;
}

void add_rows(Json& line, const ModelPoint& point) {
  line["net_rows_per_token"] = point.net_rows_per_token;
  line["expected_net_rows_per_token"] =
      point.expected ? Json(point.expected->rows_per_token) : Json(nullptr);
  line["standard_error"] = point.expected ? Json(point.expected->standard_error) : Json(nullptr);
}

void add_over_ranks(Json& line, const std::string& key, const MeanAndMax& figure) {
  line[key + "_mean"] = figure.mean;
  line[key + "_max"] = figure.max;
}

void add_traffic(Json& line, const ModelOp& op) {
  line["net_row_bytes_per_token"] = op.net_row_bytes_per_token;
  line["link_bytes_max"] = op.link_bytes;
  add_over_ranks(line, "net_sent_bytes", op.net_sent_bytes);
  add_over_ranks(line, "net_received_bytes", op.net_received_bytes);
  add_over_ranks(line, "puts", op.puts);
  add_over_ranks(line, "signals", op.signals);
  add_over_ranks(line, "lsa_sent_bytes", op.lsa_sent_bytes);
  add_over_ranks(line, "lsa_received_bytes", op.lsa_received_bytes);
}

void add_time(Json& line, const ModelOp& op, const LinkCosts& costs) {
  line["estimated_us"] = op.time.total_us();
  line["bound"] = name_of(op.time.bound());
  line["net_bytes_us"] = op.time.net_bytes_us;
  line["net_messages_us"] = op.time.net_messages_us;
  line["lsa_us"] = op.time.lsa_us;
  line["latency_us"] = op.time.latency_us;
  line["message_us"] = costs.message_us;
  line["net_gbps"] = costs.net_gbps;
  line["net_latency_us"] = costs.net_latency_us;
  line["lsa_gbps"] = costs.lsa_gbps(op.movement);
  line["flag_us"] = costs.flag_us;
  line["fixed_us"] = costs.fixed_us;
}

std::string json_line(const Job& job, const ModelPoint& point, const ModelOp& op) {
  Json line;
  line["op"] = name_of(Command::kModel);
  line["what"] = name_of(op.movement);
  add_shape(line, job, point);
  add_rows(line, point);
  add_traffic(line, op);
  add_time(line, op, job.options.model.costs);
  line["commit"] = std::string(git_commit());
  return line.dump();
}

constexpr std::size_t kMaxLine = 256;

void print_heading(const Job& job, std::ostream& out) {
  const Options& options = job.options;
  const LinkCosts& costs = options.model.costs;
  std::array<char, kMaxLine> text{};
  std::snprintf(text.data(), text.size(),
                "NIC %g GB/s, %g us per message, %g us latency; inside a node push %g, pull %g "
                "GB/s, %g us fixed",
                costs.net_gbps, costs.message_us, costs.net_latency_us, costs.push_gbps,
                costs.pull_gbps, costs.fixed_us);
  out << "model: " << with_commas(options.tokens) << " tokens per rank, hidden "
      << with_commas(options.hidden) << ", top-" << options.topk << ", "
      << option_name_of(options.dtype) << ", nodes of " << options.lsa_size.value_or(1)
      << ", chunks of " << options.model.chunk_tokens << " tokens\n"
      << text.data() << "\n\n"
      << "                               rows per token   KB per  MB per rank: sent received      "
         "LSA  "
         "messages  estimate\n"
      << " ranks experts  routing dedup counted   closed    token     mean      max      max      "
         "max  "
         "max sent        us  bound\n";
}

/// In the table only where there is one: of uniform routing.
std::array<char, 16> closed_form(const ModelPoint& point) {
  std::array<char, 16> text = {'-'};
  if (point.expected) {
    std::snprintf(text.data(), text.size(), "%.4f", point.expected->rows_per_token);
  }
  return text;
}

void print_op(const ModelPoint& point, const ModelOp& op, std::ostream& out) {
  constexpr double kKilo = 1e3;
  constexpr double kMega = 1e6;
  const auto mega = [](std::int64_t bytes) { return static_cast<double>(bytes) / kMega; };
  std::array<char, kMaxLine> text{};
  std::snprintf(text.data(), text.size(),
                "%6d %7d %8s %5s %7.4f %8s %8.1f %8.1f %8.1f %8.1f %8.1f %9lld %9.0f  %s\n",
                point.shape.nodes.num_ranks(), point.num_experts, name_of(point.routing),
                name_of(point.shape.dedup), point.net_rows_per_token, closed_form(point).data(),
                op.net_row_bytes_per_token / kKilo, op.net_sent_bytes.mean / kMega,
                mega(op.net_sent_bytes.max), mega(op.net_received_bytes.max),
                mega(std::max(op.lsa_sent_bytes.max, op.lsa_received_bytes.max)),
                static_cast<long long>(op.signals.max), op.time.total_us(),
                name_of(op.time.bound()));
  out << text.data();
}

}  // namespace

std::string model_json_lines(const Job& job, const std::vector<ModelPoint>& points) {
  std::string lines;
  for (const ModelPoint& point : points) {
    for (const ModelOp& op : point.ops) lines += json_line(job, point, op) + "\n";
  }
  return lines;
}

void print_model(const Job& job, const std::vector<ModelPoint>& points, std::ostream& out) {
  print_heading(job, out);
  for (const Movement movement : {Movement::kDispatch, Movement::kCombine}) {
    out << name_of(movement) << "\n";
    for (const ModelPoint& point : points) {
      for (const ModelOp& op : point.ops) {
        if (op.movement == movement) print_op(point, op, out);
      }
    }
  }
  out.flush();
}

}  // namespace ep::bench
