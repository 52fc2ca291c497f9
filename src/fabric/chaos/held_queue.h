// SPDX-License-Identifier: Apache-2.0
// What chaos holds back: items with the poll at which each is due, given out in order or not.
#pragma once

#include "fabric/net/transport.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ep::fabric {

/// Ordered: first in, first out; nothing leaves before it is due. Unordered: of what is due, the
/// least key leaves first, but nothing overtakes an item that came `window` items before it.
template <class Item>
class HeldQueue {
 public:
  HeldQueue(ArrivalOrder order, int window)
      : order_(order), window_(static_cast<std::uint64_t>(window)) {}

  void push(Item item, std::uint64_t due, std::uint64_t key) {
    held_.push_back({std::move(item), due, key, next_number_++});
  }

  /// Where the item lies that leaves next; none: nothing is due.
  std::optional<std::size_t> ready(std::uint64_t now) const {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < held_.size(); ++i) {
      if (order_ == ArrivalOrder::kOrdered && i > 0) break;
      if (held_[i].number - held_.front().number >= window_) break;
      if (held_[i].due <= now && (!best || held_[i].key < held_[*best].key)) best = i;
    }
    return best;
  }

  const Item& item(std::size_t index) const { return held_[index].item; }
  Item take(std::size_t index) {
    Item item = std::move(held_[index].item);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(index));
    return item;
  }

  bool is_empty() const { return held_.empty(); }
  std::size_t size() const { return held_.size(); }
  void clear() { held_.clear(); }
  template <class Predicate>
  void erase_if(Predicate predicate) {
    std::erase_if(held_, [&](const Held& held) { return predicate(held.item); });
  }

 private:
  struct Held {
    Item item;
    std::uint64_t due;
    std::uint64_t key;
    std::uint64_t number;
  };

  ArrivalOrder order_;
  std::uint64_t window_;
  std::uint64_t next_number_ = 0;
  std::vector<Held> held_;
};

}  // namespace ep::fabric
