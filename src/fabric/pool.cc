// SPDX-License-Identifier: Apache-2.0
// Blocks of a rank's arena.
#include "fabric/pool.h"

#include "base/address_sanitizer.h"
#include "base/check.h"
#include "base/deadline.h"
#include "fabric/pool_state.h"
#include "layout/announcement.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace ep::fabric {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// 0 bytes reserve a unit too, so that every block has an address of its own.
std::int64_t reserved_bytes_of(std::int64_t bytes) {
  return round_up(std::max<std::int64_t>(bytes, 1), Pool::kAlignment);
}

Status check_size(std::int64_t bytes) {
  // Half of the range: rounding up cannot overflow.
  constexpr std::int64_t kMaxBytes = std::numeric_limits<std::int64_t>::max() / 2;
  if (bytes < 0) {
    return Status(Errc::kInvalidArgument,
                  "pool: block of " + std::to_string(bytes) + " bytes, expected at least 0");
  }
  if (bytes <= kMaxBytes) return Status();
  return Status(Errc::kOutOfMemory, "pool: block of " + std::to_string(bytes) + " bytes");
}

}  // namespace

Block::Block(std::shared_ptr<PoolState> owner,
             Location where,
             std::int64_t num_bytes,
             std::byte* address)
    : location(where), bytes(num_bytes), data(address), owner_(std::move(owner)) {
  base::unpoison_memory(data, static_cast<std::size_t>(bytes));
}

Block::~Block() { owner_->give_back(location, reserved_bytes_of(bytes)); }

Pool::Pool(SegmentSource& source, const PoolOptions& options)
    : source_(source), options_(options), state_(std::make_shared<PoolState>()) {}

Pool::~Pool() = default;

Result<std::shared_ptr<Block>> Pool::allocate(std::int64_t bytes) {
  while (true) {
    EP_TRY_ASSIGN(std::shared_ptr<Block> block, allocate_in_place(bytes));
    if (block) return block;
    // Another thread may take the new memory first; then once more.
    EP_TRY(grow(reserved_bytes_of(bytes)));
  }
}

Result<std::shared_ptr<Block>> Pool::allocate_in_place(std::int64_t bytes) {
  EP_TRY(check_size(bytes));
  const std::optional<PoolState::Piece> piece = state_->take(reserved_bytes_of(bytes));
  if (!piece) return std::shared_ptr<Block>();
  return std::make_shared<Block>(state_, piece->location, bytes, piece->data);
}

Status Pool::reserve(std::int64_t bytes) {
  EP_TRY(check_size(bytes));
  return bytes == 0 ? Status() : grow(reserved_bytes_of(bytes));
}

/// Returns with room for a block of that size, unless others take it.
Status Pool::grow(std::int64_t reserved_bytes) {
  const std::lock_guard lock(growing_);
  if (state_->has_room_for(reserved_bytes)) return Status();
  const std::int64_t bytes = segment_bytes_for(reserved_bytes, options_.growth_bytes);
  if (bytes > layout::kMaxSegmentBytes) {
    return Status(Errc::kOutOfMemory,
                  "pool: a block of " + std::to_string(reserved_bytes) + " bytes, at most " +
                      std::to_string(layout::kMaxSegmentBytes) + " are possible");
  }
  EP_TRY_ASSIGN(const Segment segment,
                source_.add_segment(bytes, base::Deadline::after(options_.timeout)));
  state_->add(segment);
  return Status();
}

std::optional<Location> Pool::locate(const void* address, std::int64_t bytes) const {
  return source_.locate(address, bytes);
}

std::int64_t Pool::total_bytes() const { return state_->total_bytes(); }

std::int64_t Pool::used_bytes() const { return state_->total_bytes() - state_->free_bytes(); }

int Pool::num_free_blocks() const { return state_->num_free_blocks(); }

std::int64_t Pool::segment_bytes_for(std::int64_t bytes, std::int64_t growth_bytes) {
  return round_up(std::max(reserved_bytes_of(bytes), growth_bytes), kSegmentGranule);
}

}  // namespace ep::fabric
