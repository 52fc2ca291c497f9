// SPDX-License-Identifier: Apache-2.0
// What the timed operations of a run have put on the network between nodes, beside what their
// routing predicts.
#pragma once

#include "bench/job.h"
#include "bench/model_compare.h"
#include "bench/summary.h"

#include <ep/status.h>

#include <vector>

namespace ep::bench {

/// Fills the traffic of the summary's operations; of one node nothing. Results are those
/// of all ranks, in rank order. Errors as predict_step().
Status add_node_traffic(const Job& job, const std::vector<RankResult>& ranks, Summary& summary);

}  // namespace ep::bench
