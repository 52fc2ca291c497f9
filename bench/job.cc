// SPDX-License-Identifier: Apache-2.0
// Reads the inputs before any rank starts.
#include "bench/job.h"

#include "base/check.h"
#include "bench/launch.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ep::bench {
namespace {

Status conflict(const char* option, std::int64_t given, const char* what, std::int64_t recorded) {
  return Status(Errc::kInvalidArgument, std::string(option) + " " + std::to_string(given) +
                                            ", but the trace has " + std::to_string(recorded) +
                                            " " + what);
}

Result<std::shared_ptr<const Text>> read_text(const Options& options) {
  EP_TRY_ASSIGN(Text text, options.text ? Text::read(*options.text) : Text::read_default());
  return std::make_shared<const Text>(std::move(text));
}

/// Whole passes over the recorded steps, unless the command line says otherwise.
int iters_for(const Trace& trace, const Options& options) {
  if (options.given.iters) return options.iters;
  const int num_passes = (options.iters + trace.num_steps() - 1) / trace.num_steps();
  return num_passes * trace.num_steps();
}

}  // namespace

Status apply_trace(const Trace& trace, Options& options) {
  if (options.given.ranks && options.ranks != trace.num_ranks) {
    return conflict("--ranks", options.ranks, "ranks", trace.num_ranks);
  }
  if (options.given.experts && options.experts != trace.num_experts) {
    return conflict("--experts", options.experts, "experts", trace.num_experts);
  }
  if (options.given.topk && options.topk != trace.topk) {
    return conflict("--topk", options.topk, "choices per token", trace.topk);
  }
  if (options.given.tokens && options.tokens != trace.max_tokens()) {
    return conflict("--tokens", options.tokens, "tokens in its largest step", trace.max_tokens());
  }
  options.ranks = trace.num_ranks;
  options.experts = trace.num_experts;
  options.topk = trace.topk;
  options.tokens = trace.max_tokens();
  options.iters = iters_for(trace, options);
  return {};
}

Result<Job> make_job(const Options& options) {
  Job job;
  job.options = options;
  job.host = read_host_info();
  if (options.trace) {
    EP_TRY_ASSIGN(Trace trace, read_trace(*options.trace));
    EP_TRY(apply_trace(trace, job.options));
    job.trace = std::make_shared<const Trace>(std::move(trace));
  } else if (options.text || options.command == Command::kMoe) {
    EP_TRY_ASSIGN(job.text, read_text(options));
  }
  if (options.ceilings) {
    EP_TRY_ASSIGN(job.ceilings, read_ceilings(*options.ceilings));
  }
  EP_TRY(validate(job.options));
  // How many ranks a launcher has started is known only when they have met.
  if (options.given.ranks || !joins_launcher(options)) EP_TRY(validate_topology(job.options));
  return job;
}

RowFormat Job::row_format() const {
  return {.dtype = options.dtype, .hidden = options.hidden, .exact = options.exact};
}

RoutingConfig Job::routing_config() const {
  return {.num_ranks = options.ranks,
          .num_tokens = options.tokens,
          .topk = options.topk,
          .num_experts = options.experts,
          .seed = options.seed,
          .exact = options.exact};
}

std::unique_ptr<Routing> Job::make_routing() const {
  const RoutingConfig config = routing_config();
  if (trace) return make_trace_routing(config, trace);
  if (text) return make_text_routing(config, row_format(), text);
  return make_random_routing(config);
}

}  // namespace ep::bench
