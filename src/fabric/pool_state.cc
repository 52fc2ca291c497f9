// SPDX-License-Identifier: Apache-2.0
// Best fit with joining of free neighbours, behind a short list of blocks that came back lately.
#include "fabric/pool_state.h"

#include "base/address_sanitizer.h"
#include "base/check.h"

#include <algorithm>
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
  free_bytes_ += segment.bytes;
  total_bytes_ += segment.bytes;
}

std::byte* PoolState::address_of(Location location) const {
  return areas_.at(location.segment).segment.base + location.offset;
}

void PoolState::insert_free(Area& area, std::int64_t offset, std::int64_t bytes) {
  area.free.emplace(offset, bytes);
  fits_.emplace(bytes, area.segment.id, offset);
}

void PoolState::erase_free(Area& area, std::map<std::int64_t, std::int64_t>::iterator block) {
  fits_.erase(FitKey(block->second, area.segment.id, block->first));
  area.free.erase(block);
}

std::optional<Location> PoolState::take_recent(std::int64_t bytes) {
  // The oldest of them: what a call gives back in some order, the next one takes in the same.
  const auto found =
      std::ranges::find_if(recent_, [&](const Recent& block) { return block.bytes == bytes; });
  if (found == recent_.end()) return std::nullopt;
  const Location location = found->location;
  recent_.erase(found);
  return location;
}

std::optional<Location> PoolState::take_best_fit(std::int64_t wanted_bytes) {
  const auto fit = fits_.lower_bound(FitKey(wanted_bytes, 0, 0));
  if (fit == fits_.end()) return std::nullopt;
  const auto [bytes, id, offset] = *fit;
  Area& area = areas_.at(id);
  erase_free(area, area.free.find(offset));
  if (bytes > wanted_bytes) insert_free(area, offset + wanted_bytes, bytes - wanted_bytes);
  return Location{.segment = id, .offset = offset};
}

std::optional<PoolState::Piece> PoolState::take(std::int64_t reserved_bytes) {
  const std::lock_guard lock(mutex_);
  std::optional<Location> location = take_recent(reserved_bytes);
  if (!location) {
    join_recent();
    location = take_best_fit(reserved_bytes);
  }
  if (!location) return std::nullopt;
  free_bytes_ -= reserved_bytes;
  return Piece{.location = *location, .data = address_of(*location)};
}

void PoolState::give_back(Location location, std::int64_t reserved_bytes) {
  const std::lock_guard lock(mutex_);
  base::poison_memory(address_of(location), static_cast<std::size_t>(reserved_bytes));
  if (recent_.size() == kMaxRecent) {
    join(recent_.front());
    recent_.erase(recent_.begin());
  }
  recent_.push_back({.location = location, .bytes = reserved_bytes});
  free_bytes_ += reserved_bytes;
}

void PoolState::join_recent() {
  for (const Recent& freed : recent_) join(freed);
  recent_.clear();
}

void PoolState::join(const Recent& freed) {
  Area& area = areas_.at(freed.location.segment);
  std::int64_t begin = freed.location.offset;
  std::int64_t end = freed.location.offset + freed.bytes;
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

bool PoolState::has_room_for(std::int64_t reserved_bytes) {
  const std::lock_guard lock(mutex_);
  join_recent();
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

int PoolState::num_free_blocks() {
  const std::lock_guard lock(mutex_);
  join_recent();
  return static_cast<int>(fits_.size());
}

}  // namespace ep::fabric
