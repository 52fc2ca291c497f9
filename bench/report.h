// SPDX-License-Identifier: Apache-2.0
// Figures as JSON lines and as tables for people.
#pragma once

#include "bench/buffer_plan.h"
#include "bench/job.h"
#include "bench/summary.h"

#include <ep/sm_budget.h>

#include <iosfwd>
#include <string>
#include <vector>

namespace ep::bench {

/// SMs (on the host: channels) per rank where no group says what is in force: the option, else what
/// the library takes for this shape, as far as the GPUs go.
int planned_sms(const Job& job, Movement movement);

/// One line with every key of bench/README.md, null where it has no meaning.
std::string json_line(const Job& job, const OpSummary& op, std::int64_t arena_bytes);

/// The lines of all operations, each with its end.
std::string json_lines(const Job& job, const Summary& summary);

/// Writes to the file that --json names; - is stdout. Nothing without --json.
Status write_json_lines(const Options& options, const std::string& lines);

/// What a person wants to see; the last line of moe is "N rows checked, W wrong".
void print_report(const Job& job,
                  const BufferPlan& plan,
                  const std::vector<RankResult>& ranks,
                  const Summary& summary,
                  std::ostream& out);

/// "2 of at most 4 ranks, network chaos (seed 7)". Precondition: has_nodes().
std::string nodes_text(const Options& options);

/// "1,234,567".
std::string with_commas(std::int64_t value);

}  // namespace ep::bench
