// SPDX-License-Identifier: Apache-2.0
// Bulk copies as a pipe asks for them.
#include "fabric/sim/bulk.h"

#include "fabric/sim/machine.h"

namespace ep::fabric::sim {

namespace {

SiteId caller() { return Machine::current()->running().call_site; }

/// Unless the order is left out here.
bool has_order(Order order) {
  return caller() == 0 || !Machine::current()->sites().is_weakened(caller(), order);
}

}  // namespace

void Bulk::load(int stage, const primitives::RowParts& parts) {
  ++num_loads_[static_cast<std::size_t>(stage)];
  if (group_.is_leader())
    copies_->load(stage, stage, false, {parts.row, parts.row_bytes},
                  {parts.tail, parts.tail_bytes}, caller());
}

void Bulk::wait_loaded(int stage) {
  Machine::current()->step();
  if (!has_order(Order::kWaitLoaded)) return;
  copies_->await_loaded(stage,
                        copies_->first_lot(stage) + num_loads_[static_cast<std::size_t>(stage)]);
}

void Bulk::store(std::byte* dst, int stage, primitives::StageSlice slice) {
  if (group_.is_leader()) copies_->store(dst, stage, slice.offset, slice.bytes, caller());
}

void Bulk::commit() {
  if (group_.is_leader()) copies_->commit();
}

void Bulk::wait_read(int num_pending) {
  if (group_.is_leader() && has_order(Order::kWaitRead)) copies_->await_read(num_pending);
}

void Bulk::wait_landed(int num_pending) {
  if (group_.is_leader() && has_order(Order::kWaitLanded)) copies_->await_landed(num_pending);
}

void Bulk::wait_all() {
  if (group_.is_leader() && has_order(Order::kWaitAll)) copies_->await_landed(0);
}

void Bulk::fence() {
  if (group_.is_leader() && has_order(Order::kFence)) copies_->fence();
}

void Bulk::fence_acquired() {
  if (group_.is_leader() && has_order(Order::kFenceAcquired)) copies_->fence_acquired();
}

RowPipe::Base& RowPipe::called_at(const At& at) {
  note_caller(Machine::current()->sites().of(at));
  return *this;
}

void RowPipe::note_caller(SiteId site) { Machine::current()->running().call_site = site; }

}  // namespace ep::fabric::sim
