// SPDX-License-Identifier: Apache-2.0
// Places in the sources where roles touch memory or order it, and how one of them is weakened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ep::fabric::sim {

using SiteId = std::uint32_t;

/// What orders memory at a site, and can be left out.
enum class Order : std::uint8_t {
  kRelease,
  kAcquire,
  kSync,           ///< of a group: its threads neither wait for each other nor see each other
  kExchange,       ///< of a group that also hands on a value: that remains
  kFence,          ///< BulkEngine::fence
  kFenceAcquired,  ///< BulkEngine::fence_acquired
  kWaitRead,
  kWaitLoaded,
  kWaitLanded,
  kWaitAll,
  kNetStrength,  ///< a strong signal becomes a weak one
  kNum
};
const char* name_of(Order order);

/// One order at one site: "release@intranode/arrivals.h:71", or "...:71#pulled".
struct Mutation {
  Order order = Order::kNum;
  std::string file;  ///< from src/ on
  int line = 0;
  std::string region{};  ///< of memory, where one site serves several; empty: wherever it is

  std::string to_string() const;
  /// Of to_string(); false where the text is none.
  static bool parse(const std::string& text, Mutation& mutation);
  friend bool operator==(const Mutation&, const Mutation&) = default;
};

/// All sites that were met, by any run of the process.
class Sites {
 public:
  Sites();

  SiteId of(const std::source_location& at) { return find({at.file_name(), at.line()}); }
  /// A plain access of compiled code.
  SiteId of_code(std::uintptr_t pc) { return find({nullptr, pc}); }

  /// Notes that this orders memory; true if it is to be left out in this run. `region` must be a
  /// literal, null where nobody names regions.
  bool is_weakened(SiteId site, Order order, const char* region = nullptr) {
    note(site, order, region);
    return site == weakened_site_ && order == weakened_order_ &&
           (mutation_.region.empty() || (region != nullptr && mutation_.region == region));
  }
  /// For the runs that follow; Order::kNum: nothing.
  void weaken(const Mutation& mutation);

  /// Everything that could be left out, in the order of the sources.
  std::vector<Mutation> orders_met() const;
  /// "intranode/stage.h:24", and the tags that stand there.
  std::string describe(SiteId site) const;

 private:
  struct Key {
    const char* file;
    std::uintptr_t place;  ///< line, or the program counter where there is no file
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return (reinterpret_cast<std::uintptr_t>(key.file) * 31) ^ (key.place * 0x9E3779B97F4A7C15U);
    }
  };
  struct Entry {
    Key key;
    std::uint32_t orders = 0;
    std::vector<std::pair<Order, const char*>> regions{};  ///< orders that met a named one
  };
  struct Cached {
    Key key{};
    SiteId site = 0;
  };
  static constexpr std::size_t kCacheSize = 4096;

  SiteId find(const Key& key) {
    Cached& cached = cache_[(Hash{}(key) >> 7) % kCacheSize];
    if (!(cached.key == key)) cached = {key, look_up(key)};
    return cached.site;
  }
  void note(SiteId site, Order order, const char* region) {
    Entry& entry = entries_[site];
    entry.orders |= 1U << static_cast<int>(order);
    if (region == nullptr) return;
    for (const auto& known : entry.regions) {
      if (known.first == order && known.second == region) return;
    }
    entry.regions.emplace_back(order, region);
  }
  SiteId look_up(const Key& key);
  void match(SiteId site);

  std::vector<Entry> entries_;
  std::unordered_map<Key, SiteId, Hash> ids_;
  std::vector<Cached> cache_;
  Mutation mutation_;
  SiteId weakened_site_ = 0;
  Order weakened_order_ = Order::kNum;
};

}  // namespace ep::fabric::sim
