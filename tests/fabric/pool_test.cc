// SPDX-License-Identifier: Apache-2.0
// The pool over segments of ordinary memory: no overlap, joining of neighbours, growth, lifetime.
#include "fabric/pool.h"

#include "base/address_sanitizer.h"
#include "tests/support/property.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

/// Segments from the heap; refuses beyond a limit.
class HeapSource final : public SegmentSource {
 public:
  explicit HeapSource(std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max())
      : limit_bytes_(limit_bytes) {}

  Result<Segment> add_segment(std::int64_t bytes, base::Deadline /*deadline*/) override {
    const std::lock_guard lock(mutex_);
    if (total_bytes_ + bytes > limit_bytes_) return Status(Errc::kOutOfMemory, "limit");
    total_bytes_ += bytes;
    void* const memory = std::aligned_alloc(4096, static_cast<std::size_t>(bytes));
    segments_.push_back({.id = static_cast<int>(segments_.size()) + 1,
                         .base = static_cast<std::byte*>(memory),
                         .bytes = bytes,
                         .keep_alive = std::shared_ptr<const void>(memory, [](const void* freed) {
                           std::free(const_cast<void*>(freed));
                         })});
    return segments_.back();
  }

  std::optional<Location> locate(const void* address, std::int64_t bytes) const override {
    const auto* const at = static_cast<const std::byte*>(address);
    for (const Segment& segment : segments_) {
      if (at >= segment.base && at + bytes <= segment.base + segment.bytes) {
        return Location{.segment = segment.id, .offset = at - segment.base};
      }
    }
    return std::nullopt;
  }

  const std::vector<Segment>& segments() const { return segments_; }

 private:
  const std::int64_t limit_bytes_;
  std::mutex mutex_;
  std::int64_t total_bytes_ = 0;
  std::vector<Segment> segments_;
};

constexpr PoolOptions kSmallGrowth{.growth_bytes = 1, .timeout = std::chrono::milliseconds(1000)};

std::shared_ptr<Block> must_allocate(Pool& pool, std::int64_t bytes) {
  auto block = pool.allocate(bytes);
  EXPECT_TRUE(block.ok()) << block.status().to_string();
  return block.ok() ? *block : nullptr;
}

TEST(Pool, GivesAlignedMemoryThatIsWhereItSays) {
  HeapSource source;
  Pool pool(source, kSmallGrowth);
  const auto block = must_allocate(pool, 1000);
  EXPECT_EQ(block->bytes, 1000);
  EXPECT_EQ(block->location.offset % Pool::kAlignment, 0);
  EXPECT_EQ(block->data, source.segments()[0].base + block->location.offset);
  EXPECT_EQ(pool.locate(block->data + 10, 990),
            (Location{.segment = 1, .offset = block->location.offset + 10}));
  EXPECT_EQ(pool.used_bytes(), 1024);
  std::fill_n(block->data, 1000, std::byte{1});
}

TEST(Pool, BlocksOfNoBytesHaveAddressesOfTheirOwn) {
  HeapSource source;
  Pool pool(source, kSmallGrowth);
  const auto first = must_allocate(pool, 0);
  const auto second = must_allocate(pool, 0);
  EXPECT_NE(first->data, second->data);
  EXPECT_EQ(first->bytes, 0);
}

TEST(Pool, GrowsByItsUnitOrByTheRequest) {
  HeapSource source;
  Pool pool(source, {.growth_bytes = 3 << 20, .timeout = std::chrono::milliseconds(1000)});
  const auto small = must_allocate(pool, 1);
  const auto large = must_allocate(pool, 5 << 20);
  ASSERT_EQ(source.segments().size(), 2u);
  EXPECT_EQ(source.segments()[0].bytes, 4 << 20);
  EXPECT_EQ(source.segments()[1].bytes, 6 << 20);
  EXPECT_EQ(pool.total_bytes(), 10 << 20);
  EXPECT_EQ(Pool::segment_bytes_for(1, 3 << 20), 4 << 20);
  EXPECT_EQ(Pool::segment_bytes_for(5 << 20, 3 << 20), 6 << 20);
}

TEST(Pool, DoesNotGrowInASteadyState) {
  HeapSource source;
  Pool pool(source, kSmallGrowth);
  for (int round = 0; round < 1000; ++round) {
    const auto first = must_allocate(pool, 700'000);
    const auto second = must_allocate(pool, 900'000);
  }
  EXPECT_EQ(source.segments().size(), 1u);
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(Pool, ReservesOnceAndOnlyWhatIsMissing) {
  HeapSource source;
  Pool pool(source, kSmallGrowth);
  ASSERT_TRUE(pool.reserve(0).ok());
  EXPECT_EQ(source.segments().size(), 0u);
  ASSERT_TRUE(pool.reserve(3 << 20).ok());
  ASSERT_TRUE(pool.reserve(3 << 20).ok());
  EXPECT_EQ(source.segments().size(), 1u);
  const auto block = must_allocate(pool, 3 << 20);
  EXPECT_EQ(source.segments().size(), 1u);
}

TEST(Pool, AllocatesInPlaceOnlyWhatItHas) {
  HeapSource source;
  Pool pool(source, kSmallGrowth);
  const auto none = pool.allocate_in_place(1000);
  ASSERT_TRUE(none.ok()) << none.status().to_string();
  EXPECT_EQ(*none, nullptr);
  EXPECT_TRUE(source.segments().empty());
  ASSERT_TRUE(pool.reserve(1000).ok());
  const auto block = pool.allocate_in_place(1000);
  ASSERT_TRUE(block.ok() && *block != nullptr);
  EXPECT_EQ((*block)->bytes, 1000);
  EXPECT_EQ(pool.allocate_in_place(-1).status().code(), Errc::kInvalidArgument);
}

TEST(Pool, TakesTheSmallestBlockThatFits) {
  HeapSource source;
  Pool pool(source, kSmallGrowth);
  auto large_hole = must_allocate(pool, 4096);
  const auto wall_one = must_allocate(pool, 256);
  auto small_hole = must_allocate(pool, 1024);
  const auto wall_two = must_allocate(pool, 256);
  const Location small_location = small_hole->location;
  large_hole.reset();
  small_hole.reset();
  EXPECT_EQ(must_allocate(pool, 900)->location, small_location);
}

TEST(Pool, PassesErrorsOn) {
  HeapSource source(4 << 20);
  Pool pool(source, kSmallGrowth);
  EXPECT_EQ(pool.allocate(-1).status().code(), Errc::kInvalidArgument);
  EXPECT_EQ(pool.reserve(-1).code(), Errc::kInvalidArgument);
  EXPECT_EQ(pool.allocate(5 << 20).status().code(), Errc::kOutOfMemory);
  EXPECT_EQ(pool.allocate(std::numeric_limits<std::int64_t>::max()).status().code(),
            Errc::kOutOfMemory);
  EXPECT_TRUE(pool.allocate(4 << 20).ok()) << "an error must not spoil the pool";
}

TEST(Pool, BlocksOutliveThePoolAndItsSource) {
  auto source = std::make_unique<HeapSource>();
  auto pool = std::make_unique<Pool>(*source, kSmallGrowth);
  auto block = must_allocate(*pool, 5000);
  auto other = must_allocate(*pool, 5000);
  pool.reset();
  source.reset();
  other.reset();
  std::fill_n(block->data, 5000, std::byte{2});
  EXPECT_EQ(block->data[4999], std::byte{2});
}

TEST(Pool, FreeMemoryIsPoisonedUnderAddressSanitizer) {
  if (!base::kHasAddressSanitizer) GTEST_SKIP() << "needs AddressSanitizer";
  HeapSource source;
  Pool pool(source, kSmallGrowth);
  auto block = must_allocate(pool, 1000);
  std::byte* const data = block->data;
  EXPECT_FALSE(base::is_memory_poisoned(data + 999));
  EXPECT_TRUE(base::is_memory_poisoned(data + 1000)) << "the padding is not the caller's";
  block.reset();
  EXPECT_TRUE(base::is_memory_poisoned(data));
}

/// Live blocks do not overlap and lie within their segments; free and used bytes add up.
void check_books(const Pool& pool, const std::vector<std::shared_ptr<Block>>& live) {
  std::map<const std::byte*, std::int64_t> by_address;
  std::int64_t used_bytes = 0;
  for (const auto& block : live) {
    const std::int64_t reserved =
        std::max<std::int64_t>((block->bytes + Pool::kAlignment - 1) / Pool::kAlignment, 1) *
        Pool::kAlignment;
    RC_ASSERT(by_address.emplace(block->data, reserved).second);
    RC_ASSERT(pool.locate(block->data, reserved) == block->location);
    used_bytes += reserved;
  }
  const std::byte* end = nullptr;
  for (const auto& [address, bytes] : by_address) {
    RC_ASSERT(end == nullptr || std::less_equal<const std::byte*>()(end, address));
    end = address + bytes;
  }
  RC_ASSERT(pool.used_bytes() == used_bytes);
}

TEST(PoolProperty, LiveBlocksNeverOverlapAndFreeOnesJoin) {
  test::check_property(test::scaled_rounds(300, 5000), 8, [] {
    HeapSource source;
    Pool pool(source, kSmallGrowth);
    std::vector<std::shared_ptr<Block>> live;
    const auto steps = *rc::gen::container<std::vector<std::pair<bool, int>>>(
        rc::gen::pair(rc::gen::arbitrary<bool>(), rc::gen::inRange(0, 400'000)));
    for (const auto& [is_release, number] : steps) {
      if (is_release && !live.empty()) {
        const auto at = static_cast<std::size_t>(number) % live.size();
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        live.push_back(*pool.allocate(number));
      }
      check_books(pool, live);
    }
    live.clear();
    RC_ASSERT(pool.used_bytes() == 0);
    RC_ASSERT(pool.num_free_blocks() == static_cast<int>(source.segments().size()));
  });
}

TEST(Pool, ServesSeveralThreads) {
  HeapSource source;
  Pool pool(source, kSmallGrowth);
  const int rounds = test::scaled_rounds(2'000, 20'000);
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&pool, thread, rounds] {
        std::mt19937 random(thread);
        std::vector<std::shared_ptr<Block>> mine;
        for (int round = 0; round < rounds; ++round) {
          mine.push_back(*pool.allocate(random() % 50'000));
          std::fill_n(mine.back()->data, mine.back()->bytes, static_cast<std::byte>(thread));
          if (mine.size() < 16) continue;
          const auto& oldest = mine.front();
          EXPECT_TRUE(
              std::all_of(oldest->data, oldest->data + oldest->bytes,
                          [thread](std::byte b) { return b == static_cast<std::byte>(thread); }));
          mine.erase(mine.begin());
        }
      });
    }
  }
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_EQ(pool.num_free_blocks(), static_cast<int>(source.segments().size()));
}

}  // namespace
}  // namespace ep::fabric
