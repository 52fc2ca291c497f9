// SPDX-License-Identifier: Apache-2.0
// Reduces the ranks' results: the slowest rank counts in every iteration.
#include "bench/summary.h"

#include "bench/hash.h"

#include <algorithm>

namespace ep::bench {
namespace {

using Samples = std::vector<double> Timings::*;

std::vector<double> slowest_of(const std::vector<RankResult>& ranks, Samples samples) {
  std::vector<std::vector<double>> by_rank;
  for (const RankResult& rank : ranks) by_rank.push_back(rank.timings.*samples);
  return slowest(by_rank);
}

/// The faster way of copying is the one to compare with.
std::optional<double> copy_median(const std::vector<RankResult>& ranks,
                                  Samples rows,
                                  Samples whole) {
  std::optional<double> best;
  for (Samples samples : {rows, whole}) {
    const std::vector<double> micros = slowest_of(ranks, samples);
    if (micros.empty()) continue;
    const double median = stats_of(micros).median;
    best = std::min(best.value_or(median), median);
  }
  return best;
}

double mean_of(const std::vector<RankResult>& ranks, double RankResult::*value) {
  double sum = 0;
  for (const RankResult& rank : ranks) sum += rank.*value;
  return sum / static_cast<double>(ranks.size());
}

RowCheck check_of(const std::vector<RankResult>& ranks, RowCheck RankResult::*check) {
  RowCheck all;
  for (const RankResult& rank : ranks) all.add(rank.*check);
  return all;
}

int most_sms(const std::vector<RankResult>& ranks, int RankResult::*sms) {
  int most = 0;
  for (const RankResult& rank : ranks) most = std::max(most, rank.*sms);
  return most;
}

/// In the order of ranks, so that it does not depend on who ended first.
std::uint64_t hash_of(const std::vector<RankResult>& ranks, std::uint64_t RankResult::*hash) {
  Fingerprint all;
  for (const RankResult& rank : ranks) all.add(rank.*hash);
  return all.value();
}

/// Times of the operation, and the median of the memcpy beside it.
void set_figures(OpSummary& op,
                 std::int64_t hidden,
                 const std::vector<RankResult>& ranks,
                 const Stats& micros,
                 std::optional<double> copy_micros) {
  constexpr double kBytesPerMicroToGbps = 1e-3;
  const double rows = mean_of(ranks, &RankResult::rows_per_step);
  const double factor =
      static_cast<double>(hidden * size_of(op.dtype)) * kBytesPerMicroToGbps / micros.median;
  op.micros = micros;
  op.logical_gbps = rows * factor;
  op.moved_gbps = mean_of(ranks, &RankResult::crossing_per_step) * factor;
  if (copy_micros && rows > 0) op.fraction_of_memcpy = *copy_micros / micros.median;
}

/// What has a meaning on a GPU only. `host`: the times of the host.
void set_gpu_figures(OpSummary& op,
                     const Options& options,
                     const std::vector<RankResult>& ranks,
                     Samples host,
                     std::optional<double> ceiling_gbps) {
  if (options.backend != Backend::kCuda) return;
  constexpr double kBytesPerMicroToGbps = 1e-3;
  const std::int64_t scale_bytes =
      num_scales_of(op.dtype, options.hidden) * std::int64_t{sizeof(float)};
  const auto row_bytes = static_cast<double>(options.hidden * size_of(op.dtype) + scale_bytes);
  const double wire_rows = mean_of(ranks, &RankResult::wire_per_step);
  op.physical_gbps = wire_rows * row_bytes * kBytesPerMicroToGbps / op.micros->median;
  if (ceiling_gbps && wire_rows > 0) {
    op.fraction_of_ceiling = *op.physical_gbps / *ceiling_gbps;
    op.fraction_of_memcpy = op.fraction_of_ceiling;
  }
  const std::vector<double> host_micros = slowest_of(ranks, host);
  if (!host_micros.empty()) op.host_us = stats_of(host_micros).median;
}

OpSummary summarise_dispatch(const Options& options,
                             const std::vector<RankResult>& ranks,
                             const Ceilings& ceilings) {
  OpSummary op;
  op.name = "dispatch";
  op.dtype = options.dtype;
  op.sms = most_sms(ranks, &RankResult::dispatch_sms);
  op.check = check_of(ranks, &RankResult::received);
  op.output_hash = hash_of(ranks, &RankResult::received_hash);
  set_figures(op, options.hidden, ranks, stats_of(slowest_of(ranks, &Timings::dispatch)),
              copy_median(ranks, &Timings::copy_in_rows, &Timings::copy_in_whole));
  set_gpu_figures(op, options, ranks, &Timings::dispatch_host, ceilings.push_gbps);
  return op;
}

OpSummary summarise_combine(const Options& options,
                            const std::vector<RankResult>& ranks,
                            const Ceilings& ceilings) {
  OpSummary op;
  op.name = "combine";
  op.dtype = expert_dtype_of(options.dtype);
  op.sms = most_sms(ranks, &RankResult::combine_sms);
  op.check = check_of(ranks, &RankResult::output);
  op.output_hash = hash_of(ranks, &RankResult::output_hash);
  set_figures(op, options.hidden, ranks, stats_of(slowest_of(ranks, &Timings::combine)),
              copy_median(ranks, &Timings::copy_out_rows, &Timings::copy_out_whole));
  set_gpu_figures(op, options, ranks, &Timings::combine_host, ceilings.pull_gbps);
  return op;
}

OpSummary summarise_layer(const Options& options, const std::vector<RankResult>& ranks) {
  OpSummary op;
  op.name = "moe";
  op.dtype = options.dtype;
  op.sms = std::max(most_sms(ranks, &RankResult::dispatch_sms),
                    most_sms(ranks, &RankResult::combine_sms));
  op.micros = stats_of(slowest_of(ranks, &Timings::layer));
  op.check = check_of(ranks, &RankResult::output);
  op.output_hash = hash_of(ranks, &RankResult::output_hash);
  return op;
}

}  // namespace

std::optional<std::string> provider_of(const std::vector<RankResult>& ranks) {
  const std::string& provider = ranks.front().net_provider;
  return provider.empty() ? std::nullopt : std::optional(provider);
}

bool Summary::has_wrong_row() const {
  return std::any_of(ops.begin(), ops.end(),
                     [](const OpSummary& op) { return op.check.wrong > 0; });
}

Summary summarise(const Options& options,
                  const std::vector<RankResult>& ranks,
                  const Ceilings& ceilings) {
  Summary summary;
  if (options.command != Command::kCombine)
    summary.ops.push_back(summarise_dispatch(options, ranks, ceilings));
  if (options.command != Command::kDispatch)
    summary.ops.push_back(summarise_combine(options, ranks, ceilings));
  if (options.command == Command::kMoe) summary.ops.push_back(summarise_layer(options, ranks));
  for (OpSummary& op : summary.ops) op.provider = provider_of(ranks);
  for (const RankResult& rank : ranks) {
    summary.arena_bytes = std::max(summary.arena_bytes, rank.arena_bytes);
  }
  return summary;
}

}  // namespace ep::bench
