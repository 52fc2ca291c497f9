// SPDX-License-Identifier: Apache-2.0
// Bootstrap of ranks that are processes: rendezvous, then a star around rank 0.
#include "base/check.h"
#include "base/deadline.h"
#include "fabric/bootstrap/environment.h"
#include "fabric/bootstrap/gather.h"
#include "fabric/bootstrap/rendezvous.h"

#include <ep/bootstrap.h>

#include <memory>
#include <utility>
#include <vector>

namespace ep {

Result<std::unique_ptr<Bootstrap>> make_tcp_bootstrap(const TcpBootstrapConfig& config) {
  EP_TRY_ASSIGN(const fabric::RendezvousSettings settings, fabric::resolve_settings(config));
  const base::Deadline deadline = base::Deadline::after(settings.timeout);
  std::unique_ptr<Bootstrap> bootstrap;
  if (settings.num_ranks == 1) {
    bootstrap = std::make_unique<fabric::HubBootstrap>(std::vector<base::UniqueFd>(1));
  } else if (settings.rank == 0) {
    EP_TRY_ASSIGN(std::vector<base::UniqueFd> connections,
                  fabric::host_rendezvous(settings, deadline));
    bootstrap = std::make_unique<fabric::HubBootstrap>(std::move(connections));
  } else {
    EP_TRY_ASSIGN(base::UniqueFd hub, fabric::join_rendezvous(settings, deadline));
    bootstrap = std::make_unique<fabric::MemberBootstrap>(settings.rank, settings.num_ranks,
                                                          std::move(hub));
  }
  return bootstrap;
}

}  // namespace ep
