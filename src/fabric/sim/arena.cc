// SPDX-License-Identifier: Apache-2.0
// Segments cut from a rank's part of the watched memory.
#include "fabric/sim/arena.h"

#include "base/check.h"

#include <numeric>
#include <utility>

namespace ep::fabric::sim {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t index_of(int rank, int segment) {
  return static_cast<std::size_t>(rank) * static_cast<std::size_t>(kMaxSegments) +
         static_cast<std::size_t>(segment);
}

}  // namespace

ArenaTable::ArenaTable(Space& of_machine, int of_ranks)
    : space(&of_machine),
      num_ranks(of_ranks),
      bases(index_of(of_ranks, 0)),
      used(static_cast<std::size_t>(of_ranks), kPage) {
  for (int rank = 0; rank < of_ranks; ++rank)
    gone.push_back(reinterpret_cast<std::uint32_t*>(of_machine.part(rank)));
}

Arena::Arena(std::shared_ptr<ArenaTable> table, int rank, std::int64_t control_bytes)
    : table_(std::move(table)), rank_(rank) {
  const Result<Segment> made = cut(control_bytes);
  EP_CHECK(made.ok(), made.status().message());
}

std::byte* Arena::base(int peer, int segment) const {
  return table_->bases[index_of(peer, segment)];
}

Arena::RoleView Arena::role_view() const {
  return {table_->bases.data(), table_->gone[static_cast<std::size_t>(rank_)]};
}

Result<Segment> Arena::add_segment(std::int64_t bytes, base::Deadline /*deadline*/) {
  return cut(bytes);
}

Result<Segment> Arena::cut(std::int64_t bytes) {
  std::size_t& used = table_->used[static_cast<std::size_t>(rank_)];
  const std::size_t size = (static_cast<std::size_t>(bytes) + kPage - 1) / kPage * kPage;
  if (used + size > table_->space->part_bytes() || num_segments() == kMaxSegments) {
    return Status(Errc::kOutOfMemory,
                  "a simulated rank has " + std::to_string(table_->space->part_bytes()) + " bytes");
  }
  const int id = num_segments();
  std::byte* const memory = table_->space->part(rank_) + used;
  used += size;
  table_->bases[index_of(rank_, id)] = memory;
  sizes_.push_back(bytes);
  return Segment{.id = id, .base = memory, .bytes = bytes, .keep_alive = table_};
}

std::optional<Location> Arena::locate(const void* address, std::int64_t bytes) const {
  for (int id = 0; id < num_segments(); ++id) {
    const std::int64_t offset = static_cast<const std::byte*>(address) - base(rank_, id);
    if (offset >= 0 && offset + bytes <= sizes_[static_cast<std::size_t>(id)])
      return Location{id, offset};
  }
  return std::nullopt;
}

std::int64_t Arena::total_bytes() const {
  return std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0});
}

}  // namespace ep::fabric::sim
