// SPDX-License-Identifier: Apache-2.0
// Checks every step once, then times the operations beside the memcpy baseline.
#pragma once

#include "bench/device.h"
#include "bench/memcpy_baseline.h"
#include "bench/rank_scope.h"
#include "bench/row_check.h"
#include "bench/workload.h"

#include <ep/status.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ep::bench {

/// Microseconds of every timed iteration; empty for what the command does not run.
struct Timings {
  std::vector<double> dispatch;
  std::vector<double> combine;
  std::vector<double> layer;
  // Of the host, where operations are queued on a GPU.
  std::vector<double> dispatch_host{};
  std::vector<double> combine_host{};
  // Rows take the even iterations, whole buffers the odd ones.
  std::vector<double> copy_in_rows;
  std::vector<double> copy_in_whole;
  std::vector<double> copy_out_rows;
  std::vector<double> copy_out_whole;
};

/// What a rank has put on the network between nodes.
struct PutCounts {
  std::int64_t bytes = 0;
  std::int64_t puts = 0;
  std::int64_t signals = 0;
};

/// What a rank tells the others.
struct RankResult {
  Timings timings;
  RowCheck received;
  RowCheck output;
  std::uint64_t received_hash = 0;
  std::uint64_t output_hash = 0;
  std::int64_t num_tokens = 0;              ///< of the first step
  std::int64_t num_received = 0;            ///< rows, of the first step
  std::vector<std::int64_t> expert_counts;  ///< by local expert, of the first step
  double rows_per_step = 0;                 ///< RowPlaces::Traffic, mean of all steps
  double crossing_per_step = 0;
  double wire_per_step = 0;
  int dispatch_sms = 0;  ///< in force, as the group says
  int combine_sms = 0;
  std::int64_t arena_bytes = 0;
  std::string net_provider;  ///< empty: one node
  // Of all timed iterations.
  PutCounts dispatch_puts;
  PutCounts combine_puts;
};

/// What a rank measures with.
struct Bench {
  const Job& job;
  RankScope& scope;
  Group& group;
  Device& device;
  Workload& workload;
  MemcpyBaseline* baseline = nullptr;  ///< null: nothing is compared with memcpy
};

enum class FirstChecks : std::uint8_t {
  kAllRows,  ///< of every step, before anything is timed
  kNone,     ///< the steps ran before with all rows checked; the last results are checked anyhow
};

/// Collective: all ranks, in step. Errors as the operations, and of the meeting.
Result<RankResult> measure(const Bench& bench, FirstChecks first_checks);

/// Collective: the results of all ranks, in rank order. Errors as Bootstrap::all_gather.
Result<std::vector<RankResult>> gather_results(const RankResult& mine,
                                               Bootstrap& bootstrap,
                                               std::chrono::milliseconds timeout);

std::vector<std::byte> encode_result(const RankResult& result);
/// Errors: kInternal for bytes that encode_result() did not make.
Result<RankResult> decode_result(std::span<const std::byte> bytes);

}  // namespace ep::bench
