// SPDX-License-Identifier: Apache-2.0
// The p2p subcommand: what links and memory of the GPUs can do, whoever drives them.
#pragma once

#include "bench/job.h"

#include <ep/status.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace ep::bench {

/// One figure. Rates count every byte once.
struct LinkSample {
  std::string what;        ///< push, pull, local_copy, copy_engine, flag_relaxed, flag_ordered
  int sms = 0;             ///< 0: none
  int directions = 1;      ///< 2: both GPUs at once; the slower one counts
  double micros = 0;       ///< median of a run; of a flag: one way
  std::int64_t bytes = 0;  ///< of one direction; 0 for a flag

  double gbps() const;
};

struct LinkPlan {
  std::vector<int> sms;
  int repetitions = 1;
};

/// A row of the measured copies.
inline constexpr int kLinkRowBytes = 14'336;

/// Runs all samples, each checked to have copied every byte. With one GPU only local_copy. Errors:
/// as read_gpus(); kUnsupported if GPUs 0 and 1 do not reach each other; kInternal for a wrong
/// byte.
Result<std::vector<LinkSample>> measure_links(const LinkPlan& plan);

/// A table for people.
void print_links(const std::vector<LinkSample>& samples, std::ostream& out);
/// A line for each sample.
std::string link_json_lines(const Job& job, const std::vector<LinkSample>& samples);

/// Errors as measure_links().
Status run_p2p(const Job& job, std::ostream& out);

}  // namespace ep::bench
