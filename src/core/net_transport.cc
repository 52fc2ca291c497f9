// SPDX-License-Identifier: Apache-2.0
// Makes the transport that the options ask for.
#include "core/net_transport.h"

#include "base/check.h"
#include "fabric/net/local_meeting.h"

#include <chrono>

namespace ep::core {

Result<std::unique_ptr<fabric::Transport>> make_net_transport(Bootstrap& bootstrap,
                                                              const NetOptions& options,
                                                              int num_contexts,
                                                              base::Deadline deadline) {
  const fabric::ArrivalOrder order =
      options.is_unordered ? fabric::ArrivalOrder::kUnordered : fabric::ArrivalOrder::kOrdered;
  const fabric::TransportTraits traits{
      .name = "local", .order = order, .num_contexts = num_contexts};
  return fabric::meet_locally(bootstrap, traits,
                              std::chrono::milliseconds(deadline.remaining_ms()));
}

}  // namespace ep::core
