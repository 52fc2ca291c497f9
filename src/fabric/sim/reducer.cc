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

std::int64_t row_bytes_of(const primitives::SumSpec& spec) {
  return spec.num_elems * size_of(spec.dtype);
}

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
  while (num_finished_ < num_loaded_) await_terms(num_finished_++);
}

void RowReducer::load(const Group& group, const Sum& sum, const At& at) {
  const std::uint64_t number = num_loaded_++;
  if (!group.is_leader()) return;
  const SiteId site = Machine::current()->sites().of(at);
  const CopyUnit::Piece none{nullptr, 0};
  for (int term = 0; term < sum.num_terms; ++term) {
    const CopyUnit::Piece row{sum.terms[term].row, row_bytes_of(spec_)};
    copies_->load(first_slot_of(number) + term, kind_of(number), term > 0, row, none, site);
  }
  if (sum.num_terms == 0) copies_->load(first_slot_of(number), kind_of(number), false, none, none, site);
}

void RowReducer::await_terms(std::uint64_t sum) {
  const std::uint64_t lot = copies_->first_lot(kind_of(sum)) + sum / kSumsUnderWay + 1;
  copies_->await_loaded(kind_of(sum), lot);
}

void RowReducer::finish(const Group& group, const Sum& sum, const At& at) {
  const std::uint64_t number = num_finished_++;
  Machine::current()->step();
  await_terms(number);
  add_part(sum, first_slot_of(number), Machine::current()->sites().of(at));
  group.join();  // all threads have read the slots: they may be loaded again
}

void RowReducer::add_part(const Sum& sum, int first_slot, SiteId site) const {
  const RowShare share(group_, row_bytes_of(spec_));
  if (share.size() == 0) return;
  std::array<primitives::RowTerm, primitives::kMaxTopk> terms;
  const auto num_terms = static_cast<std::size_t>(sum.num_terms);
  for (std::size_t i = 0; i < num_terms; ++i) {
    terms[i] = sum.terms[i];
    terms[i].row = copies_->slot(first_slot + static_cast<int>(i)) + share.begin;
  }
  Machine& machine = *Machine::current();
  const Checker::Actor actor = machine.checker().actor(machine.running().agent);
  const auto bytes = static_cast<std::size_t>(share.size());
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
  if (group_.is_leader() && !sites.is_weakened(sites.of(at), Order::kFenceAcquired))
    copies_->fence_acquired();
}

}  // namespace ep::fabric::sim
