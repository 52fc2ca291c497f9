// SPDX-License-Identifier: Apache-2.0
// Which options contradict each other.
#include "base/check.h"
#include "bench/gpu_info.h"
#include "bench/options.h"

#include <string>

namespace ep::bench {
namespace {

constexpr std::int64_t kRowGranuleBytes = 16;

Status invalid(const std::string& message) { return Status(Errc::kInvalidArgument, message); }

Status unsupported(const std::string& message) { return Status(Errc::kUnsupported, message); }

Status validate_backend(const Options& options) {
  const bool needs_cuda = options.backend == Backend::kCuda || options.command == Command::kP2p;
  if (needs_cuda && !has_cuda()) {
    const char* what = options.command == Command::kP2p ? "p2p" : "--backend cuda";
    return unsupported(std::string(what) + ": this ep-bench was built without EP_WITH_CUDA");
  }
  if (options.mode == Mode::kEager) return {};
  if (options.backend != Backend::kCuda) return unsupported("--mode graph needs --backend cuda");
  if (options.trace) return unsupported("--mode graph has one routing per graph, not a --trace");
  if (options.capacity.kind == Capacity::Kind::kExact) {
    return unsupported("--mode graph needs a --capacity: exact sizes are read by the host");
  }
  return {};
}

Status validate_lists(const Options& options) {
  const bool is_sweep = options.command == Command::kSweep;
  const bool is_model = options.command == Command::kModel;
  if (options.tokens_list.size() > 1 && !is_sweep) {
    return invalid("--tokens takes a list only for sweep");
  }
  if (options.sms_list.size() > 1 && !is_sweep && options.command != Command::kP2p) {
    return invalid("--sms takes a list only for sweep and p2p");
  }
  if (options.ranks_list.size() > 1 && !is_model) {
    return invalid("--ranks takes a list only for model");
  }
  if (options.ranks_list.size() > 1 && options.given.ranks && options.trace) {
    return invalid("--ranks takes no list beside a --trace, which has ranks of its own");
  }
  if (options.plot && !is_sweep && !is_model) {
    return invalid("--plot " + *options.plot + " is for sweep and model");
  }
  if (options.command == Command::kSoak && options.trace) {
    return invalid("soak chooses its own routing, not a --trace");
  }
  if (is_sweep && options.trace) return invalid("sweep chooses the tokens, not a --trace");
  return {};
}

Status validate_net(const Options& options) {
  if (options.chaos_seed && options.net != NetKind::kChaos) {
    return invalid("--chaos-seed " + std::to_string(*options.chaos_seed) +
                   " needs --net chaos, not --net " + name_of(options.net));
  }
  const bool is_net = options.command == Command::kNet;
  if (options.given.net && !has_group(options.command)) {
    return invalid(std::string("--net ") + name_of(options.net) + " is not for " +
                   name_of(options.command) + (is_net ? "; there is --unordered" : ""));
  }
  if (options.provider && !is_net && !has_group(options.command)) {
    return invalid("--provider " + *options.provider + " is not for " + name_of(options.command));
  }
  if (is_net) {
    if (options.ranks == 2) return {};
    return invalid("net measures 2 ranks, not --ranks " + std::to_string(options.ranks));
  }
  if (!options.sizes.empty()) return invalid("--sizes is for net");
  if (options.unordered) return invalid("--unordered is for net");
  return {};
}

/// Options of the network where there is none.
Status validate_single_node(const Options& options) {
  const char* what = nullptr;
  if (options.given.net) what = "--net";
  if (options.provider) what = "--provider";
  if (what == nullptr) return {};
  return invalid(std::string(what) + " needs several nodes: --lsa-size below --ranks " +
                 std::to_string(options.ranks));
}

}  // namespace

bool has_group(Command command) {
  return command != Command::kModel && command != Command::kP2p && command != Command::kNet;
}

int lsa_size_of(const Options& options) { return options.lsa_size.value_or(options.ranks); }

bool has_nodes(const Options& options) {
  return has_group(options.command) && lsa_size_of(options) < options.ranks;
}

Status validate_topology(const Options& options) {
  const int lsa_size = lsa_size_of(options);
  const std::string values =
      "--lsa-size " + std::to_string(lsa_size) + ", --ranks " + std::to_string(options.ranks);
  if (lsa_size < 1 || (options.command != Command::kModel && lsa_size > options.ranks)) {
    return invalid(values + ": must be 1 to the number of ranks");
  }
  if (!has_nodes(options)) {
    return options.command == Command::kNet ? Status() : validate_single_node(options);
  }
  if (options.backend != Backend::kHost) {
    return unsupported(values + ": --backend cuda has no path between nodes yet");
  }
  return {};
}

Status validate(const Options& options) {
  EP_TRY(validate_backend(options));
  EP_TRY(validate_lists(options));
  EP_TRY(validate_net(options));
  if (options.topk > options.experts) {
    return invalid("--topk " + std::to_string(options.topk) + " is above --experts " +
                   std::to_string(options.experts));
  }
  const std::int64_t row_bytes = options.hidden * size_of(options.dtype);
  if (row_bytes % kRowGranuleBytes != 0) {
    return invalid("--hidden " + std::to_string(options.hidden) + " of --dtype " +
                   option_name_of(options.dtype) + " is " + std::to_string(row_bytes) +
                   " bytes, must be a multiple of " + std::to_string(kRowGranuleBytes));
  }
  if (options.align > 1 && options.layout == Layout::kFlat) {
    return invalid("--align " + std::to_string(options.align) + " needs --layout expert_major");
  }
  return {};
}

}  // namespace ep::bench
