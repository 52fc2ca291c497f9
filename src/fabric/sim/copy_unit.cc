// SPDX-License-Identifier: Apache-2.0
// Bulk copies that happen late.
#include "fabric/sim/copy_unit.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ep::fabric::sim {

CopyUnit::CopyUnit(Machine& machine, int rank, std::string name)
    : machine_(machine),
      rank_(rank),
      name_(std::move(name)),
      store_agent_(machine.checker().add_agent(rank, name_ + ", bulk stores")) {
  machine.add_device(this);
}

CopyUnit::Kind& CopyUnit::kind_of(int index) {
  while (kinds_.size() <= static_cast<std::size_t>(index)) {
    const std::string name = name_ + ", bulk loads " + std::to_string(kinds_.size());
    kinds_.push_back({.agent = machine_.checker().add_agent(rank_, name)});
  }
  return kinds_[static_cast<std::size_t>(index)];
}

CopyUnit::Slot& CopyUnit::slot_of(int index) {
  if (slots_.size() <= static_cast<std::size_t>(index))
    slots_.resize(static_cast<std::size_t>(index) + 1);
  return slots_[static_cast<std::size_t>(index)];
}

const std::byte* CopyUnit::slot(int index) const {
  return slots_[static_cast<std::size_t>(index)].bytes.data();
}

std::uint64_t CopyUnit::load(
    int slot, int kind, bool joins, const Piece& row, const Piece& tail, SiteId site) {
  Kind& loads = kind_of(kind);
  Slot& target = slot_of(slot);
  if (target.read_by > read_)
    machine_.checker().report(thread().agent, site,
                              "a stage is loaded before its stores were awaited to have read it");
  if (!joins) ++loads.newest;
  target.kind = kind;
  target.lot = loads.newest;
  target.bytes.resize(static_cast<std::size_t>(row.bytes + tail.bytes));
  add_load(slot, 0, row, site);
  if (tail.bytes > 0) add_load(slot, row.bytes, tail, site);
  return loads.newest;
}

void CopyUnit::add_load(int slot, std::int64_t offset, const Piece& piece, SiteId site) {
  copies_.push_back({.slot = slot,
                     .kind = slot_of(slot).kind,
                     .moment = slot_of(slot).lot,
                     .offset = offset,
                     .src = piece,
                     .view = std::make_shared<const VectorClock>(thread().async_view),
                     .site = site});
}

bool CopyUnit::is_complete(int kind, std::uint64_t lot) const {
  if (kinds_[static_cast<std::size_t>(kind)].newest < lot) return false;
  return std::none_of(copies_.begin(), copies_.end(), [&](const Copy& copy) {
    return !copy.is_store && copy.kind == kind && copy.moment == lot;
  });
}

void CopyUnit::await_loaded(int kind, std::uint64_t lot) {
  kind_of(kind);
  machine_.block("bulk loads", [this, kind, lot] { return is_complete(kind, lot); });
  Fiber& fiber = thread();
  Kind& loads = kind_of(kind);
  machine_.checker().view(fiber.agent).raise(loads.agent, static_cast<Clock>(lot));
  if (fiber.thread_rank != 0) return;
  fiber.async_view.raise(loads.agent, static_cast<Clock>(lot));
  loads.awaited = std::max(loads.awaited, lot);
}

void CopyUnit::store(
    std::byte* dst, int slot, std::int64_t offset, std::int64_t bytes, SiteId site) {
  Slot& source = slot_of(slot);
  if (kind_of(source.kind).awaited < source.lot)
    machine_.checker().report(thread().agent, site,
                              "a stage is stored before its load was awaited");
  source.read_by = open_group_;
  copies_.push_back({.is_store = true,
                     .slot = slot,
                     .moment = open_group_,
                     .offset = offset,
                     .dst = dst,
                     .bytes = std::vector<std::byte>(static_cast<std::size_t>(bytes)),
                     .view = std::make_shared<const VectorClock>(thread().async_view),
                     .site = site});
}

template <class Done>
bool CopyUnit::are_groups(std::uint64_t last, Done done) const {
  return std::none_of(copies_.begin(), copies_.end(), [&](const Copy& copy) {
    return copy.is_store && copy.moment <= last && !done(copy);
  });
}

void CopyUnit::await_read(int num_pending) {
  const std::uint64_t closed = open_group_ - 1;
  const std::uint64_t last = closed - std::min(closed, static_cast<std::uint64_t>(num_pending));
  machine_.block("bulk stores to read", [this, last] {
    return are_groups(last, [](const Copy& copy) { return copy.has_read; });
  });
  read_ = std::max(read_, last);
}

void CopyUnit::await_landed(int num_pending) {
  const std::uint64_t closed = open_group_ - 1;
  const std::uint64_t last = closed - std::min(closed, static_cast<std::uint64_t>(num_pending));
  machine_.block("bulk stores to land",
                 [this, last] { return are_groups(last, [](const Copy&) { return false; }); });
  read_ = std::max(read_, last);
  landed_ = std::max(landed_, last);
  thread().async_view.raise(store_agent_, static_cast<Clock>(landed_));
}

void CopyUnit::fence() {
  machine_.checker().view(thread().agent).raise(store_agent_, static_cast<Clock>(landed_));
}

void CopyUnit::fence_acquired() {
  Fiber& fiber = thread();
  fiber.async_view.join(machine_.checker().view(fiber.agent));
  machine_.checker().tick(fiber.agent);
}

void CopyUnit::begin() {
  for (Kind& loads : kinds_) loads.before_launch = loads.newest;
}

void CopyUnit::end() {
  Checker& checker = machine_.checker();
  const AgentId agent = thread().agent;
  if (!copies_.empty()) {
    checker.report(agent, copies_.front().site, "the lane ended while a copy was under way");
    while (!copies_.empty()) act(machine_.random());
  }
  checker.view(agent).raise(store_agent_, static_cast<Clock>(open_group_));
  for (const Kind& loads : kinds_)
    checker.view(agent).raise(loads.agent, static_cast<Clock>(loads.newest));
  ++open_group_;
}

void CopyUnit::act(Random& random) {
  const std::size_t index = random.below(copies_.size());
  Copy& copy = copies_[index];
  if (copy.is_store && !copy.has_read) {
    const std::byte* from = slot(copy.slot) + copy.offset;
    std::memcpy(copy.bytes.data(), from, copy.bytes.size());
    copy.has_read = true;
    return;
  }
  perform(copy);
  std::swap(copy, copies_.back());
  copies_.pop_back();
}

void CopyUnit::perform(Copy& copy) {
  Checker& checker = machine_.checker();
  const AgentId agent = copy.is_store ? store_agent_ : kind_of(copy.kind).agent;
  const Checker::Actor actor{agent, static_cast<Clock>(copy.moment), copy.view.get(), true};
  if (copy.is_store) {
    checker.write(actor, copy.dst, copy.bytes.size(), copy.site);
    std::memcpy(copy.dst, copy.bytes.data(), copy.bytes.size());
  } else {
    const auto bytes = static_cast<std::size_t>(copy.src.bytes);
    checker.read(actor, copy.src.src, bytes, copy.site);
    std::memcpy(slot_of(copy.slot).bytes.data() + copy.offset, copy.src.src, bytes);
  }
  if (machine_.trace() != nullptr)
    machine_.trace()->add(rank_, agent, machine_.now_ns(), copy.is_store ? "landed" : "loaded",
                          machine_.sites().describe(copy.site));
}

}  // namespace ep::fabric::sim
