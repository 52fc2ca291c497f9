// SPDX-License-Identifier: Apache-2.0
// Chooses the format of a trace file.
#include "bench/trace.h"

#include "base/check.h"
#include "bench/file_bytes.h"

#include <algorithm>

namespace ep::bench {

std::int64_t Trace::max_tokens() const {
  std::int64_t most = 0;
  for (int step = 0; step < num_steps(); ++step) {
    for (int rank = 0; rank < num_ranks; ++rank) most = std::max(most, num_tokens(step, rank));
  }
  return most;
}

Result<Trace> read_trace(const std::string& path) {
  EP_TRY_ASSIGN(const std::string content, read_file(path));
  const bool is_binary = std::string_view(content).starts_with(kEptMagic);
  return is_binary ? parse_trace_ept(path, content) : parse_trace_csv(path, content);
}

Status write_trace(const Trace& trace, const std::string& path) {
  const bool is_binary = std::string_view(path).ends_with(".ept");
  return write_file(path, is_binary ? format_trace_ept(trace) : format_trace_csv(trace));
}

}  // namespace ep::bench
