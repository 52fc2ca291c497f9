// SPDX-License-Identifier: Apache-2.0
// Recorded routing of several steps, as CSV or as .ept (docs/trace_format.md).
#pragma once

#include <ep/status.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ep::bench {

/// Row-major [T, K].
struct TraceTokens {
  std::vector<std::int32_t> experts;  ///< -1: no expert
  std::vector<float> weights;
};

struct Trace {
  int num_ranks = 0;
  int num_experts = 0;
  int topk = 0;
  /// [step][rank].
  std::vector<std::vector<TraceTokens>> steps;

  int num_steps() const { return static_cast<int>(steps.size()); }
  std::int64_t num_tokens(int step, int rank) const {
    return static_cast<std::int64_t>(tokens(step, rank).experts.size()) / topk;
  }
  const TraceTokens& tokens(int step, int rank) const {
    return steps[static_cast<std::size_t>(step)][static_cast<std::size_t>(rank)];
  }
  /// Largest num_tokens of all steps and ranks.
  std::int64_t max_tokens() const;
};

/// Bounds of what a file may say, so that a damaged one cannot ask for all memory.
inline constexpr int kMaxTraceSteps = 1 << 20;
inline constexpr int kMaxTraceRanks = 1 << 10;
/// Steps times ranks.
inline constexpr std::int64_t kMaxTraceCells = 1 << 24;
inline constexpr int kMaxTraceExperts = 1 << 16;
inline constexpr int kMaxTraceTopk = 32;

/// By its first bytes: .ept or CSV. Errors: kInvalidArgument with path, line (CSV) or byte offset
/// (.ept), and the value.
Result<Trace> read_trace(const std::string& path);
/// By the ending of the path: .ept, else CSV.
Status write_trace(const Trace& trace, const std::string& path);

/// `name` stands in the messages.
Result<Trace> parse_trace_csv(const std::string& name, std::string_view content);
Result<Trace> parse_trace_ept(const std::string& name, std::string_view content);
std::string format_trace_csv(const Trace& trace);
std::string format_trace_ept(const Trace& trace);

/// The first bytes of an .ept file.
inline constexpr std::string_view kEptMagic = "EPTRACE1";

}  // namespace ep::bench
