// SPDX-License-Identifier: Apache-2.0
// Tables and bars of a run.
#include "bench/report.h"

#include "bench/launch.h"

#include <ep/expert_map.h>

#include <algorithm>
#include <cstdio>
#include <ostream>

namespace ep::bench {
namespace {

constexpr int kMaxBars = 16;
constexpr std::int64_t kBarWidth = 40;
constexpr int kMaxRanksListed = 16;
constexpr double kMiB = 1024.0 * 1024.0;

template <class... Args>
std::string format(const char* pattern, Args... args) {
  constexpr std::size_t kMaxLine = 256;
  std::string text(kMaxLine, '\0');
  const int size = std::snprintf(text.data(), text.size(), pattern, args...);
  text.resize(std::min(static_cast<std::size_t>(std::max(size, 0)), kMaxLine - 1));
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string or_dash(const std::optional<double>& value, const char* pattern) {
  return value ? format(pattern, *value) : "-";
}

/// "16 SMs", or "14 SMs (dispatch), 12 SMs (combine)" where they differ.
std::string sms_text(const Options& options, const Summary& summary) {
  const char* unit = options.backend == Backend::kHost ? " channel(s)" : " SM(s)";
  std::string each;
  bool is_one = true;
  for (const OpSummary& op : summary.ops) {
    is_one = is_one && op.sms == summary.ops.front().sms;
    each += (each.empty() ? "" : ", ") + std::to_string(op.sms.value_or(0)) + unit + " (" +
            op.name + ")";
  }
  return is_one ? std::to_string(summary.ops.front().sms.value_or(0)) + unit : each;
}

void print_heading(const Job& job,
                   const BufferPlan& plan,
                   const Summary& summary,
                   std::ostream& out) {
  const Options& options = job.options;
  out << name_of(options.command) << ": " << options.ranks << " ranks ("
      << (joins_launcher(options) ? "launcher" : name_of(options.launch)) << "), "
      << with_commas(options.tokens) << " tokens per rank, hidden " << with_commas(options.hidden)
      << ", top-" << options.topk << " of " << options.experts << " experts, "
      << option_name_of(options.dtype) << ", " << option_name_of(options.layout) << ", "
      << sms_text(options, summary) << " per rank\n";
  if (has_nodes(options)) {
    out << "nodes: " << nodes_text(options) << ", provider "
        << summary.ops.front().provider.value_or("none") << "\n";
  }
  if (job.text) {
    out << "text: " << job.text->name() << ", " << with_commas(job.text->num_words()) << " words, "
        << with_commas(job.text->num_distinct()) << " different\n";
  }
  if (job.trace) {
    out << "trace: " << options.trace.value_or("") << ", " << job.trace->num_steps()
        << " step(s)\n";
  }
  const double total = static_cast<double>(plan.set_bytes) * plan.num_sets;
  out << format("buffers: %d sets of at least %.1f MiB in turn", plan.num_sets,
                static_cast<double>(plan.set_bytes) / kMiB);
  if (plan.is_capped) {
    out << format(" (%.0f MiB in all, capped: the last-level cache has %.0f MiB)", total / kMiB,
                  static_cast<double>(plan.cache_bytes) / kMiB);
  }
  out << "\n";
}

void print_traffic(const std::vector<OpSummary>& ops, std::ostream& out) {
  for (const OpSummary& op : ops) {
    if (!op.net_bytes_per_token && !op.traffic) continue;
    out << "between nodes, " << op.name << ": " << or_dash(op.net_bytes_per_token, "%.1f")
        << " bytes per token";
    if (op.traffic) out << "; " << op.traffic->describe();
    out << "\n";
  }
}

void print_ranks(const std::vector<RankResult>& ranks, std::ostream& out) {
  out << "\n" << right("rank", 6) << right("tokens", 12) << right("rows received", 16) << "\n";
  const std::size_t num_listed = std::min<std::size_t>(ranks.size(), kMaxRanksListed);
  for (std::size_t rank = 0; rank < num_listed; ++rank) {
    out << right(std::to_string(rank), 6) << right(with_commas(ranks[rank].num_tokens), 12)
        << right(with_commas(ranks[rank].num_received), 16) << "\n";
  }
  if (num_listed < ranks.size()) out << "   ... " << ranks.size() - num_listed << " more\n";
}

/// (token, expert) pairs of every expert in the first step.
std::vector<std::int64_t> loads_of(const Options& options, const std::vector<RankResult>& ranks) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(options.experts), 0);
  const auto map = ExpertMap::balanced(options.experts, options.ranks);
  if (!map.ok()) return loads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const std::vector<std::int64_t>& counts = ranks[static_cast<std::size_t>(rank)].expert_counts;
    const std::span<const int> experts = map->experts_of(rank);
    for (std::size_t local = 0; local < std::min(counts.size(), experts.size()); ++local) {
      loads[static_cast<std::size_t>(experts[local])] = counts[local];
    }
  }
  return loads;
}

/// One bar per expert, or per group of consecutive experts if there are many.
void print_loads(const std::vector<std::int64_t>& loads, std::ostream& out) {
  const int num_experts = static_cast<int>(loads.size());
  const int per_bar = (num_experts + kMaxBars - 1) / kMaxBars;
  std::vector<std::int64_t> bars;
  for (int first = 0; first < num_experts; first += per_bar) {
    const auto end = loads.begin() + std::min(first + per_bar, num_experts);
    bars.push_back(*std::max_element(loads.begin() + first, end));
  }
  const std::int64_t most = std::max<std::int64_t>(*std::max_element(bars.begin(), bars.end()), 1);
  out << "\nload of the experts (tokens" << (per_bar > 1 ? ", the busiest of each group" : "")
      << ")\n";
  for (std::size_t bar = 0; bar < bars.size(); ++bar) {
    const int first = static_cast<int>(bar) * per_bar;
    const int last = std::min(first + per_bar, num_experts) - 1;
    std::string name = std::to_string(first);
    if (last > first) name += "-" + std::to_string(last);
    const auto width = static_cast<std::size_t>((bars[bar] * kBarWidth + most - 1) / most);
    out << right(name, 9) << right(with_commas(bars[bar]), 9) << "  " << std::string(width, '#')
        << "\n";
  }
}

/// What only a GPU has.
void print_gpu_figures(const std::vector<OpSummary>& ops, std::ostream& out) {
  out << right("", 9) << right("GB/s physical", 15) << right("of ceiling", 12)
      << right("host us", 10) << "\n";
  for (const OpSummary& op : ops) {
    out << right(op.name, 9) << right(or_dash(op.physical_gbps, "%.1f"), 15)
        << right(or_dash(op.fraction_of_ceiling, "%.3f"), 12)
        << right(or_dash(op.host_us, "%.1f"), 10) << "\n";
  }
  out << "\n";
}

void print_figures(const std::vector<OpSummary>& ops, std::ostream& out) {
  out << "\n"
      << right("", 9) << right("dtype", 6) << right("min us", 11) << right("median us", 11)
      << right("p90 us", 11) << right("GB/s logical", 14) << right("GB/s moved", 12)
      << right("of memcpy", 11) << "\n";
  for (const OpSummary& op : ops) {
    const Stats micros = op.micros.value_or(Stats());
    out << right(op.name, 9) << right(option_name_of(op.dtype), 6)
        << right(format("%.1f", micros.min), 11) << right(format("%.1f", micros.median), 11)
        << right(format("%.1f", micros.p90), 11) << right(or_dash(op.logical_gbps, "%.2f"), 14)
        << right(or_dash(op.moved_gbps, "%.2f"), 12)
        << right(or_dash(op.fraction_of_memcpy, "%.2f"), 11) << "\n";
  }
  out << "\n";
}

void print_checks(const std::vector<OpSummary>& ops, std::ostream& out) {
  for (const OpSummary& op : ops) {
    if (op.check.wrong > 0)
      out << "first wrong row of " << op.name << ": " << op.check.first_wrong << "\n";
  }
  if (ops.front().name == "dispatch" && ops.size() > 1) {
    const RowCheck& received = ops.front().check;
    out << with_commas(received.checked) << " received rows compared bitwise, "
        << with_commas(received.wrong) << " wrong\n";
  }
  const RowCheck& last = ops.back().check;
  out << last.checked << " rows checked, " << last.wrong << " wrong\n";
}

}  // namespace

std::string nodes_text(const Options& options) {
  const int lsa_size = lsa_size_of(options);
  std::string text = std::to_string((options.ranks + lsa_size - 1) / lsa_size) + " of at most " +
                     std::to_string(lsa_size) + " ranks, network " + name_of(options.net);
  if (options.chaos_seed) text += " (seed " + std::to_string(*options.chaos_seed) + ")";
  return text;
}

std::string with_commas(std::int64_t value) {
  std::string text = std::to_string(value);
  const std::size_t first_digit = value < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first_digit + 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

void print_report(const Job& job,
                  const BufferPlan& plan,
                  const std::vector<RankResult>& ranks,
                  const Summary& summary,
                  std::ostream& out) {
  print_heading(job, plan, summary, out);
  print_ranks(ranks, out);
  print_loads(loads_of(job.options, ranks), out);
  print_figures(summary.ops, out);
  print_traffic(summary.ops, out);
  if (job.gpus) print_gpu_figures(summary.ops, out);
  print_checks(summary.ops, out);
  out.flush();
}

}  // namespace ep::bench
