// SPDX-License-Identifier: Apache-2.0
// Best fit with joining of free neighbours.
#include "fabric/pool_state.h"

#include "base/address_sanitizer.h"
#include "base/check.h"

#include <iterator>

namespace ep::fabric {

PoolState::~PoolState() {
  // The addresses will serve other mappings, also where free ones were poisoned.
  for (const auto& [id, area] : areas_) {
    base::unpoison_memory(area.segment.base, static_cast<std::size_t>(area.segment.bytes));
  }
}

void PoolState::add(const Segment& segment) {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = areas_.try_emplace(segment.id, Area{.segment = segment, .free = {}});
  EP_CHECK(is_new, "a segment id was used twice");
  base::poison_memory(segment.base, static_cast<std::size_t>(segment.bytes));
  insert_free(entry->second, 0, segment.bytes);
  total_bytes_ += segment.bytes;
}

void PoolState::insert_free(Area& area, std::int64_t offset, std::int64_t bytes) {
  area.free.emplace(offset, bytes);
  fits_.emplace(bytes, area.segment.id, offset);
  free_bytes_ += bytes;
}

void PoolState::erase_free(Area& area, std::map<std::int64_t, std::int64_t>::iterator block) {
  fits_.erase(FitKey(block->second, area.segment.id, block->first));
  free_bytes_ -= block->second;
  area.free.erase(block);
}

std::optional<PoolState::Piece> PoolState::take(std::int64_t reserved_bytes) {
  const std::lock_guard lock(mutex_);
  const auto fit = fits_.lower_bound(FitKey(reserved_bytes, 0, 0));
  if (fit == fits_.end()) return std::nullopt;
  const auto [bytes, id, offset] = *fit;
  Area& area = areas_.at(id);
  erase_free(area, area.free.find(offset));
  if (bytes > reserved_bytes) insert_free(area, offset + reserved_bytes, bytes - reserved_bytes);
  return Piece{.location = {.segment = id, .offset = offset}, .data = area.segment.base + offset};
}

void PoolState::give_back(Location location, std::int64_t reserved_bytes) {
  const std::lock_guard lock(mutex_);
  Area& area = areas_.at(location.segment);
  base::poison_memory(area.segment.base + location.offset,
                      static_cast<std::size_t>(reserved_bytes));
  std::int64_t begin = location.offset;
  std::int64_t end = location.offset + reserved_bytes;
  const auto next = area.free.lower_bound(begin);
  EP_CHECK(next == area.free.end() || next->first >= end, "a block was freed twice");
  if (next != area.free.begin()) {
    const auto previous = std::prev(next);
    EP_CHECK(previous->first + previous->second <= begin, "a block was freed twice");
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      erase_free(area, previous);
    }
  }
  if (next != area.free.end() && next->first == end) {
    end += next->second;
    erase_free(area, next);
  }
  insert_free(area, begin, end - begin);
}

bool PoolState::has_room_for(std::int64_t reserved_bytes) const {
  const std::lock_guard lock(mutex_);
  return fits_.lower_bound(FitKey(reserved_bytes, 0, 0)) != fits_.end();
}

std::int64_t PoolState::total_bytes() const {
  const std::lock_guard lock(mutex_);
  return total_bytes_;
}

std::int64_t PoolState::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return free_bytes_;
}

int PoolState::num_free_blocks() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(fits_.size());
}

}  // namespace ep::fabric
