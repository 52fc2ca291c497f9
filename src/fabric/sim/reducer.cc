// SPDX-License-Identifier: Apache-2.0
// Sums of rows, in the arithmetic of primitives/row_math.h.
#include "fabric/sim/reducer.h"

#include "fabric/sim/machine.h"

#include <array>

namespace ep::fabric::sim {
namespace {

// Slots and kinds of loads alternate from sum to sum.
constexpr int kSumsUnderWay = 2;
int kind_of(std::uint64_t sum) { return static_cast<int>(sum % kSumsUnderWay); }
int first_slot_of(std::uint64_t sum) { return kind_of(sum) * primitives::kMaxTopk; }

}  // namespace

RowShare::RowShare(const Group& group, std::int64_t bytes) {
  const std::int64_t unit = bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : bytes;
  const std::int64_t num_units = unit == 0 ? 0 : bytes / unit;
  const std::int64_t each = (num_units + group.size() - 1) / group.size();
  const auto at = [&](int thread) {
    const std::int64_t first = each * thread;
    return (first < num_units ? first : num_units) * unit;
  };
  begin = at(group.thread_rank());
  end = at(group.thread_rank() + 1);
}

RowReducer::~RowReducer() {
  while (lane_->has_copy_unit && num_finished_ < num_loaded_) await_terms(num_finished_++);
}

void RowReducer::load(const Group& group, const Sum& sum, const At& at) {
  const std::uint64_t number = num_loaded_++;
  if (!lane_->has_copy_unit || !group.is_leader()) return;
  const SiteId site = Machine::current()->sites().of(at);
  const CopyUnit::Piece none{nullptr, 0};
  for (int term = 0; term < sum.num_terms; ++term) {
    const CopyUnit::Piece row{sum.terms[term].row, primitives::row_bytes_of(spec_)};
    lane_->copies.load(first_slot_of(number) + term, kind_of(number), term > 0, row, none, site);
  }
  if (sum.num_terms == 0)
    lane_->copies.load(first_slot_of(number), kind_of(number), false, none, none, site);
}

void RowReducer::await_terms(std::uint64_t sum) {
  const std::uint64_t lot = lane_->copies.first_lot(kind_of(sum)) + sum / kSumsUnderWay + 1;
  lane_->copies.await_loaded(kind_of(sum), lot);
}

void RowReducer::finish(const Group& group, const Sum& sum, const At& at) {
  const std::uint64_t number = num_finished_++;
  Machine::current()->step();
  if (lane_->has_copy_unit) await_terms(number);
  add_share(sum, first_slot_of(number), Machine::current()->sites().of(at));
  if (lane_->has_copy_unit)
    group.join();  // all threads have read the slots: they may be loaded again
}

void RowReducer::add_share(const Sum& sum, int first_slot, SiteId site) const {
  const RowShare share(group_, primitives::row_bytes_of(spec_));
  if (share.size() == 0) return;
  Machine& machine = *Machine::current();
  const Checker::Actor actor = machine.checker().actor(machine.running().agent);
  const auto bytes = static_cast<std::size_t>(share.size());
  std::array<primitives::RowTerm, primitives::kMaxTopk> terms;
  const auto num_terms = static_cast<std::size_t>(sum.num_terms);
  for (std::size_t i = 0; i < num_terms; ++i) {
    terms[i] = sum.terms[i];
    if (lane_->has_copy_unit) {
      terms[i].row = lane_->copies.slot(first_slot + static_cast<int>(i));
    } else {
      machine.checker().read(actor, terms[i].row + share.begin, bytes, site);
    }
    terms[i].row += share.begin;
  }
  if (sum.bias != nullptr) machine.checker().read(actor, sum.bias + share.begin, bytes, site);
  machine.checker().write(actor, sum.out + share.begin, bytes, site);
  primitives::reduce_row(sum.out + share.begin,
                         {.terms = {terms.data(), num_terms},
                          .bias = sum.bias == nullptr ? nullptr : sum.bias + share.begin,
                          .dtype = spec_.dtype,
                          .num_elems = share.size() / size_of(spec_.dtype),
                          .weighted = spec_.weighted},
                         primitives::RowStore::kCached);
}

void RowReducer::fence_acquired(const At& at) const {
  Sites& sites = Machine::current()->sites();
  // TermRing's loads are started by thread 0, behind its fence.
  if (!lane_->has_copy_unit || !group_.is_leader()) return;
  if (!sites.is_weakened(sites.of(at), Order::kFenceAcquired)) lane_->copies.fence_acquired();
}

}  // namespace ep::fabric::sim
