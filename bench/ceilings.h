// SPDX-License-Identifier: Apache-2.0
// What the links of this machine can do, as `p2p` has measured it.
#pragma once

#include <ep/status.h>

#include <optional>
#include <string>
#include <string_view>

namespace ep::bench {

/// GB/s per direction with both directions busy, of the best number of SMs.
struct Ceilings {
  std::optional<double> push_gbps;
  std::optional<double> pull_gbps;
};

/// From the JSON lines of a p2p run; lines of other operations are skipped. Errors:
/// kInvalidArgument for text that is no JSON lines or has neither figure.
Result<Ceilings> parse_ceilings(std::string_view lines);
/// Errors also for a file that cannot be read.
Result<Ceilings> read_ceilings(const std::string& path);

}  // namespace ep::bench
