// SPDX-License-Identifier: Apache-2.0
// The control region: where its parts lie, and that every call within the maxima finds its words
// there.
#include "layout/control.h"

#include "tests/layout/region_list.h"
#include "tests/support/property.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ep::test {
namespace {

using layout::ControlLayout;
using layout::ControlShape;
using layout::Counter;
using layout::kChunkTokens;
using layout::kNumBanks;

ControlShape arbitrary_shape() {
  return {.num_ranks = *rc::gen::inRange(1, 20),
          .max_tokens = *rc::gen::inRange<std::int64_t>(0, 5'000),
          .max_experts = *rc::gen::inRange(0, 300),
          .max_row_bytes = 16 * *rc::gen::inRange<std::int64_t>(0, 4'000),
          .ring_slots = *rc::gen::inRange(1, 9)};
}

/// The parts in order, with sizes from the comments of ControlLayout.
std::vector<NamedRegion> parts_of(const ControlLayout& layout) {
  const std::int64_t num_ranks = layout.shape.num_ranks;
  const std::int64_t columns = num_ranks + layout.shape.max_experts;
  const std::int64_t tokens = num_ranks * layout.shape.max_tokens;
  const std::int64_t flag_tokens = layout::kDispatchChunkTokens;
  const std::int64_t flag_words =
      8 * num_ranks * ((layout.shape.max_tokens + flag_tokens - 1) / flag_tokens);
  const std::int64_t counters = num_ranks * static_cast<std::int64_t>(sizeof(Counter));
  return {
      {"local", layout.local, sizeof(layout::LocalState)},
      {"fault", layout.fault, sizeof(layout::FaultRecord)},
      {"abort", layout.abort, sizeof(Counter)},
      {"ops", layout.ops, 128 * num_ranks * kNumBanks},
      {"blocks", layout.blocks, 256 * num_ranks * kNumBanks},
      {"counts", layout.counts, 8 * num_ranks * kNumBanks * columns},
      {"totals", layout.totals, std::int64_t{4} * layout.shape.max_experts},
      {"arrived", layout.arrived, counters},
      {"arrived_base", layout.arrived_base, 8 * num_ranks},
      {"pulled", layout.pulled, counters},
      {"pulled_base", layout.pulled_base, 8 * num_ranks},
      {"returned", layout.returned, counters},
      {"returned_base", layout.returned_base, 8 * num_ranks},
      {"chunk_flags", layout.chunk_flags, flag_words},
      {"ring_ready", layout.ring_ready, 8 * tokens},
      {"ring_freed", layout.ring_freed, 8 * tokens},
      {"pair_index", layout.pair_index, 4 * tokens},
      {"ring_payload", layout.ring_payload,
       num_ranks * layout.shape.ring_slots * kChunkTokens * layout.shape.max_row_bytes},
  };
}

TEST(ControlLayout, PartsFollowEachOtherAndFillTheSize) {
  check_property(scaled_rounds(2'000, 100'000), 3, [] {
    const ControlLayout layout = layout::make_control_layout(arbitrary_shape());
    RC_ASSERT(layout_mismatch(parts_of(layout), layout.total_bytes) == std::string{});
    RC_ASSERT(layout.control_bytes == layout.ring_payload);
    RC_ASSERT(layout.control_bytes + layout.ring_bytes == layout.total_bytes);
  });
}

TEST(ControlLayout, SizesGoBeyond32Bits) {
  const ControlLayout layout = layout::make_control_layout({.num_ranks = 1'024,
                                                            .max_tokens = std::int64_t{1} << 28,
                                                            .max_experts = 1 << 20,
                                                            .max_row_bytes = 1 << 20,
                                                            .ring_slots = 64});
  EXPECT_EQ(layout_mismatch(parts_of(layout), layout.total_bytes), "");
  EXPECT_EQ(layout.ring_bytes, std::int64_t{1'024} * 64 * 8 << 20);
  EXPECT_EQ(layout.token_index(1'023, (std::int64_t{1} << 28) - 1), (std::int64_t{1} << 38) - 1);
}

TEST(ControlLayout, EveryChunkOfEveryPeerHasAWordOfItsOwn) {
  check_property(scaled_rounds(1'000, 50'000), 4, [] {
    const ControlShape shape = arbitrary_shape();
    const ControlLayout layout = layout::make_control_layout(shape);
    std::int64_t next_flag = 0;
    for (int peer = 0; peer < shape.num_ranks; ++peer) {
      for (std::int64_t chunk = 0; chunk * layout::kDispatchChunkTokens < shape.max_tokens;
           ++chunk) {
        RC_ASSERT(layout.chunk_flag_index(peer, chunk) == next_flag);
        ++next_flag;
      }
    }
    RC_ASSERT(layout.ring_ready - layout.chunk_flags >= 8 * next_flag);
  });
}

TEST(ControlLayout, EveryTokenOfEveryPeerHasAWordOfItsOwn) {
  check_property(scaled_rounds(1'000, 50'000), 6, [] {
    const ControlShape shape = arbitrary_shape();
    const ControlLayout layout = layout::make_control_layout(shape);
    const std::int64_t all = shape.num_ranks * shape.max_tokens;
    const int peer = *rc::gen::inRange(0, shape.num_ranks);
    RC_ASSERT(layout.token_index(peer, 0) == peer * shape.max_tokens);
    RC_ASSERT(layout.token_index(peer, shape.max_tokens) <= all);
    RC_ASSERT(layout.ring_freed - layout.ring_ready >= 8 * all);
    RC_ASSERT(layout.pair_index - layout.ring_freed >= 8 * all);
    RC_ASSERT(layout.ring_payload - layout.pair_index >= 4 * all);
  });
}

TEST(ControlLayout, PairsShareARowOfTheRingWhereTheirNumbersDo) {
  check_property(scaled_rounds(2'000, 100'000), 5, [] {
    const ControlShape shape = arbitrary_shape();
    const ControlLayout layout = layout::make_control_layout(shape);
    const std::int64_t num_rows = std::int64_t{8} * shape.ring_slots;
    RC_ASSERT(shape.ring_rows() == num_rows && num_rows >= kChunkTokens);
    const int peer = *rc::gen::inRange(0, shape.num_ranks);
    const auto pair = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 28);
    const std::int64_t row = layout.ring_row(peer, pair);
    const std::int64_t first = layout.ring_payload + peer * num_rows * shape.max_row_bytes;
    RC_ASSERT(row == first + pair % num_rows * shape.max_row_bytes);
    RC_ASSERT(row + shape.max_row_bytes <= layout.total_bytes);
    RC_ASSERT(layout.ring_row(peer, pair + num_rows) == row);
  });
}

/// Words that different ranks or roles write share no line.
TEST(ControlLayout, CountersHaveLinesOfTheirOwn) {
  EXPECT_EQ(sizeof(Counter), 128U);
  EXPECT_EQ(alignof(layout::LocalState), 128U);
  EXPECT_EQ(sizeof(layout::LocalState) % 128, 0U);
  EXPECT_EQ(sizeof(layout::FaultRecord) % 128, 0U);
}

static_assert(layout::make_control_layout({.num_ranks = 2}).total_bytes > 0,
              "layouts are constant expressions");

}  // namespace
}  // namespace ep::test
