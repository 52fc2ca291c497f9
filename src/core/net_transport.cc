// SPDX-License-Identifier: Apache-2.0
// Makes the transport that the options ask for.
#include "core/net_transport.h"

#include "base/check.h"
#include "base/env.h"
#include "fabric/chaos/chaos.h"
#include "fabric/net/local_meeting.h"
#include "fabric/ofi/ofi.h"

#include <chrono>
#include <string>
#include <utility>

namespace ep::core {
namespace {

using TransportResult = Result<std::unique_ptr<fabric::Transport>>;

constexpr const char* kLocal = "local";

fabric::ArrivalOrder order_of(const NetOptions& options) {
  return options.is_unordered ? fabric::ArrivalOrder::kUnordered : fabric::ArrivalOrder::kOrdered;
}

TransportResult make_local(Bootstrap& bootstrap,
                           const NetOptions& options,
                           int num_contexts,
                           base::Deadline deadline) {
  return fabric::meet_locally(
      bootstrap, {.name = kLocal, .order = order_of(options), .num_contexts = num_contexts},
      std::chrono::milliseconds(deadline.remaining_ms()));
}

TransportResult make_ofi(Bootstrap& bootstrap,
                         const NetOptions& options,
                         int num_contexts,
                         base::Deadline deadline) {
  fabric::OfiConfig config{.num_contexts = num_contexts, .may_be_ordered = !options.is_unordered};
  if (!options.provider.empty()) config.provider = options.provider;
  return fabric::make_ofi_transport(bootstrap, config, deadline);
}

TransportResult make_plain(Bootstrap& bootstrap,
                           const NetOptions& options,
                           int num_contexts,
                           base::Deadline deadline) {
  if (options.provider == kLocal) return make_local(bootstrap, options, num_contexts, deadline);
  const bool is_free = options.provider.empty() && !base::env_text(base::EnvVar::kNetProvider);
  if (is_free) {
    TransportResult local = make_local(bootstrap, options, num_contexts, deadline);
    if (local.status().code() != Errc::kUnsupported) return local;
  }
  return make_ofi(bootstrap, options, num_contexts, deadline);
}

}  // namespace

TransportResult make_net_transport(Bootstrap& bootstrap,
                                   const NetOptions& options,
                                   int num_contexts,
                                   base::Deadline deadline) {
  EP_TRY_ASSIGN(std::unique_ptr<fabric::Transport> transport,
                make_plain(bootstrap, options, num_contexts, deadline));
  if (!options.chaos_seed) return transport;
  EP_TRY_ASSIGN(
      std::unique_ptr<fabric::ChaosTransport> hostile,
      fabric::make_chaos_transport(
          std::move(transport),
          fabric::ChaosConfig::hostile(*options.chaos_seed, fabric::ArrivalOrder::kUnordered)));
  return std::unique_ptr<fabric::Transport>(std::move(hostile));
}

}  // namespace ep::core
