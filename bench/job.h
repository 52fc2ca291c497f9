// SPDX-License-Identifier: Apache-2.0
// A command line together with the files that it names.
#pragma once

#include "bench/ceilings.h"
#include "bench/gpu_info.h"
#include "bench/host_info.h"
#include "bench/options.h"
#include "bench/routing.h"
#include "bench/row_source.h"
#include "bench/text.h"
#include "bench/trace.h"

#include <ep/status.h>

#include <memory>
#include <optional>

namespace ep::bench {

struct Job {
  /// ranks, tokens, topk and experts are those of the trace if there is one.
  Options options;
  std::shared_ptr<const Text> text;
  std::shared_ptr<const Trace> trace;
  HostInfo host;
  Ceilings ceilings;
  /// Of a rank of --backend cuda; empty until the ranks have started.
  std::optional<GpuMachine> gpus;

  RowFormat row_format() const;
  RoutingConfig routing_config() const;
  std::unique_ptr<Routing> make_routing() const;
};

/// Reads text, trace and ceilings. Errors: kInvalidArgument for a file that cannot be read or is
/// malformed, and for options that contradict it; errors of validate().
Result<Job> make_job(const Options& options);

/// Takes ranks, tokens, topk and experts from the trace. Errors: kInvalidArgument if the command
/// line names another value.
Status apply_trace(const Trace& trace, Options& options);

}  // namespace ep::bench
