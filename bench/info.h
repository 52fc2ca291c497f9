// SPDX-License-Identifier: Apache-2.0
// The info subcommand: machine, versions, and the memory that a run would take.
#pragma once

#include "bench/job.h"

#include <ep/status.h>

#include <iosfwd>

namespace ep::bench {

/// Starts no rank. Errors as Group::plan.
Status run_info(const Job& job, std::ostream& out);

}  // namespace ep::bench
