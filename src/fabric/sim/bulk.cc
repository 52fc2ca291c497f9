// SPDX-License-Identifier: Apache-2.0
// Bulk copies as a pipe asks for them.
#include "fabric/sim/bulk.h"

#include "fabric/sim/machine.h"
#include "fabric/sim/reducer.h"

#include <cstring>

namespace ep::fabric::sim {

namespace {

SiteId caller() { return Machine::current()->running().call_site; }

}  // namespace

bool Bulk::has_order(Order order) const {
  if (!lane_->has_copy_unit) return false;
  return caller() == 0 || !Machine::current()->sites().is_weakened(caller(), order);
}

void Bulk::load(int stage, const primitives::RowParts& parts) {
  const auto index = static_cast<std::size_t>(stage);
  ++num_loads_[index];
  parts_[index] = parts;
  if (!lane_->has_copy_unit || !group_.is_leader()) return;
  lane_->copies.load(stage, stage, false, {parts.row, parts.row_bytes},
                     {parts.tail, parts.tail_bytes}, caller());
}

void Bulk::wait_loaded(int stage) {
  Machine::current()->step();
  if (!has_order(Order::kWaitLoaded)) return;
  const std::uint64_t lot =
      lane_->copies.first_lot(stage) + num_loads_[static_cast<std::size_t>(stage)];
  lane_->copies.await_loaded(stage, lot);
}

void Bulk::store(std::byte* dst, int stage, primitives::StageSlice slice) {
  if (!lane_->has_copy_unit) {
    const std::byte* src = parts_[static_cast<std::size_t>(stage)].at(slice.offset);
    copy_share(dst, src, slice.bytes);
  } else if (group_.is_leader()) {
    lane_->copies.store(dst, stage, slice.offset, slice.bytes, caller());
  }
}

void Bulk::copy_share(std::byte* dst, const std::byte* src, std::int64_t bytes) const {
  const RowShare share(group_, bytes);
  const auto size = static_cast<std::size_t>(share.size());
  Machine& machine = *Machine::current();
  const Checker::Actor actor = machine.checker().actor(machine.running().agent);
  machine.checker().read(actor, src + share.begin, size, caller());
  machine.checker().write(actor, dst + share.begin, size, caller());
  std::memcpy(dst + share.begin, src + share.begin, size);
}

void Bulk::commit() {
  if (lane_->has_copy_unit && group_.is_leader()) lane_->copies.commit();
}

void Bulk::wait_read(int num_pending) {
  if (group_.is_leader() && has_order(Order::kWaitRead)) lane_->copies.await_read(num_pending);
}

void Bulk::wait_landed(int num_pending) {
  if (group_.is_leader() && has_order(Order::kWaitLanded)) lane_->copies.await_landed(num_pending);
}

void Bulk::wait_all() {
  if (group_.is_leader() && has_order(Order::kWaitAll)) lane_->copies.await_landed(0);
}

void Bulk::fence() {
  if (group_.is_leader() && has_order(Order::kFence)) lane_->copies.fence();
}

void Bulk::fence_acquired() {
  if (group_.is_leader() && has_order(Order::kFenceAcquired)) lane_->copies.fence_acquired();
}

RowPipe::Base& RowPipe::called_at(const At& at) {
  note_caller(Machine::current()->sites().of(at));
  return *this;
}

void RowPipe::note_caller(SiteId site) { Machine::current()->running().call_site = site; }

}  // namespace ep::fabric::sim
