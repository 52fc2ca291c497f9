// SPDX-License-Identifier: Apache-2.0
// Rendezvous of the threads of a lane.
#include "fabric/sim/group.h"

#include "fabric/sim/machine.h"

namespace ep::fabric::sim {

const Rendezvous::Round& Rendezvous::meet(std::uint64_t value, bool orders, SiteId site) {
  Machine& machine = *Machine::current();
  machine.step();
  const Fiber& fiber = machine.running();
  const auto thread = static_cast<std::size_t>(fiber.thread_rank);
  const std::uint64_t number = next_[thread]++;
  Round& round = rounds_[number % 2];
  if (round.num_here == 0) {
    round.site = site;
    round.view = {};
  } else if (round.site != site) {
    machine.checker().report(
        fiber.agent, site,
        "the group diverged: others are at " + machine.sites().describe(round.site));
  }
  round.values[thread] = value;
  if (orders) {
    round.view.join(machine.checker().view(fiber.agent));
    machine.checker().tick(fiber.agent);
  }
  if (++round.num_here == size_) {
    round.num_here = 0;
    ++num_complete_;
  } else {
    machine.block("the others of its group", [this, number] { return num_complete_ > number; });
  }
  if (orders) machine.checker().view(fiber.agent).join(round.view);
  return round;
}

void Group::sync(const At& at) const {
  Sites& sites = Machine::current()->sites();
  const SiteId site = sites.of(at);
  if (!sites.is_weakened(site, Order::kSync)) rendezvous_->meet(0, true, site);
}

void Group::join(const At& at) const {
  rendezvous_->meet(0, true, Machine::current()->sites().of(at));
}

/// `self` is the function whose sync() can be left out: one for all its callers, as on a GPU.
const Rendezvous::Round& Group::exchange(std::uint64_t value, const At& at, const At& self) const {
  Sites& sites = Machine::current()->sites();
  const bool orders = !sites.is_weakened(sites.of(self), Order::kExchange);
  return rendezvous_->meet(value, orders, sites.of(at));
}

std::uint64_t Group::broadcast(std::uint64_t value, const At& at) const {
  return exchange(value, at, At::current()).values[0];
}

std::int64_t Group::broadcast_last(std::int64_t value, const At& at) const {
  const auto last = static_cast<std::size_t>(size()) - 1;
  const Rendezvous::Round& round = exchange(static_cast<std::uint64_t>(value), at, At::current());
  return static_cast<std::int64_t>(round.values[last]);
}

bool Group::all(bool is_true, const At& at) const {
  const Rendezvous::Round& round = exchange(is_true ? 1 : 0, at, At::current());
  bool are_true = true;
  for (int thread = 0; thread < size(); ++thread)
    are_true &= round.values[static_cast<std::size_t>(thread)] != 0;
  return are_true;
}

std::int64_t Group::last_of(std::int64_t value, const At& at) const {
  const Rendezvous::Round& round = rendezvous_->meet(static_cast<std::uint64_t>(value), false,
                                                     Machine::current()->sites().of(at));
  return static_cast<std::int64_t>(round.values[static_cast<std::size_t>(size()) - 1]);
}

std::int64_t Group::inclusive_sum(std::int64_t value, const At& at) const {
  const SiteId site = Machine::current()->sites().of(at);
  const Rendezvous::Round& round =
      rendezvous_->meet(static_cast<std::uint64_t>(value), false, site);
  std::int64_t sum = 0;
  for (int thread = 0; thread <= thread_rank_; ++thread)
    sum += static_cast<std::int64_t>(round.values[static_cast<std::size_t>(thread)]);
  return sum;
}

}  // namespace ep::fabric::sim
