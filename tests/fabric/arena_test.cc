// SPDX-License-Identifier: Apache-2.0
// Arenas of ranks that are threads or processes: every peer's memory is there, and nothing is left.
#include "fabric/host/arena.h"

#include "tests/fabric/arena_ranks.h"
#include "tests/support/process_state.h"
#include "tests/support/ranks.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ep::fabric {
namespace {

using test::kArenaPatience;
using test::Launch;
using test::patient;
using test::RankContext;

constexpr std::int64_t kControlBytes = 5000;

/// nullptr, with a finding, where creation fails.
std::unique_ptr<HostArena> create(RankContext& context,
                                  std::int64_t control_bytes = kControlBytes) {
  auto arena = HostArena::create(context.bootstrap(), control_bytes, patient());
  context.expect_ok(arena.status(), "create");
  return arena.ok() ? std::move(*arena) : nullptr;
}

void expect_barrier(RankContext& context) {
  context.expect_ok(context.bootstrap().barrier(kArenaPatience), "barrier");
}

/// Every byte of segment 0 is zero at first; then each rank writes, and all read all.
void exchange_stamps(RankContext& context) {
  const auto arena = create(context);
  if (arena == nullptr) return;
  const int rank = context.rank();
  std::byte* const own = arena->base(rank, 0);
  context.expect(
      std::all_of(own, own + kControlBytes, [](std::byte b) { return b == std::byte{0}; }),
      "control segment is not zeroed");
  expect_barrier(context);
  test::write_stamp(own + kControlBytes - 8, test::stamp_of(rank, 0));
  expect_barrier(context);
  for (int peer = 0; peer < context.num_ranks(); ++peer) {
    const std::byte* const base = arena->base(peer, 0);
    if (!context.expect(base != nullptr, "segment 0 of a peer is not mapped")) continue;
    context.expect(test::read_stamp(base + kControlBytes - 8) == test::stamp_of(peer, 0),
                   "another rank's bytes");
  }
  expect_barrier(context);
}

TEST(HostArena, EveryRankSeesEveryControlSegment) {
  for (const Launch launch : {Launch::kThreads, Launch::kForks}) {
    for (int num_ranks : {1, 2, 5}) {
      test::check_ranks({.num_ranks = num_ranks, .launch = launch}, exchange_stamps);
    }
  }
}

/// All ranks add segments at the same time and look at those of the others as soon as they are told
/// of them.
void add_segments(RankContext& context) {
  constexpr int kNumAdded = 20;
  const auto arena = create(context);
  if (arena == nullptr) return;
  const int rank = context.rank();
  for (int added = 1; added <= kNumAdded; ++added) {
    const auto segment = arena->add_segment(4096 * added, patient());
    if (!context.expect_ok(segment.status(), "add_segment")) return;
    context.expect(segment->id == added, "ids are not consecutive");
    context.expect(segment->base == arena->base(rank, added), "own base differs from the table");
    test::write_stamp(segment->base + 4096 * added - 8, test::stamp_of(rank, added));
    expect_barrier(context);
    for (int peer = 0; peer < context.num_ranks(); ++peer) {
      const std::byte* const base = arena->base(peer, added);
      if (!context.expect(base != nullptr, "acknowledged but not in the table")) continue;
      context.expect(test::read_stamp(base + 4096 * added - 8) == test::stamp_of(peer, added),
                     "another segment's bytes");
    }
  }
  context.expect(arena->num_segments() == 1 + kNumAdded, "num_segments");
  context.expect(arena->total_bytes() == kControlBytes + 4096 * kNumAdded * (kNumAdded + 1) / 2,
                 "total_bytes");
  expect_barrier(context);
}

TEST(HostArena, AnAddedSegmentIsMappedEverywhereWhenAddReturns) {
  for (const Launch launch : {Launch::kThreads, Launch::kForks}) {
    test::check_ranks({.num_ranks = 4, .launch = launch}, add_segments);
  }
}

TEST(HostArena, RanksOfOneProcessShareTheOwnersMapping) {
  std::vector<std::byte*> own(3);
  test::check_ranks({.num_ranks = 3, .launch = Launch::kThreads}, [&own](RankContext& context) {
    const auto arena = create(context);
    if (arena == nullptr) return;
    own[static_cast<std::size_t>(context.rank())] = arena->base(context.rank(), 0);
    expect_barrier(context);
    for (int peer = 0; peer < 3; ++peer) {
      context.expect(arena->base(peer, 0) == own[static_cast<std::size_t>(peer)],
                     "another address than the owner's");
      context.expect(arena->peer_table()[peer * kMaxSegments].load() == arena->base(peer, 0),
                     "table and base() differ");
    }
    expect_barrier(context);
  });
}

TEST(HostArena, ADestroyedArenaIsGoneForItsPeers) {
  for (const Launch launch : {Launch::kThreads, Launch::kForks}) {
    test::check_ranks({.num_ranks = 3, .launch = launch}, [](RankContext& context) {
      auto arena = create(context);
      if (arena == nullptr) return;
      expect_barrier(context);
      if (context.rank() == 1) {
        arena.reset();
      } else {
        context.expect(test::await_gone(*arena, 1, kArenaPatience), "rank 1 is not gone");
        const auto segment = arena->add_segment(4096, patient());
        context.expect(segment.status().code() == Errc::kPeerTimeout, "add_segment went well");
        context.expect(segment.status().peer() == 1, "blames another rank");
        context.expect(arena->base(1, 0) != nullptr, "its memory must stay mapped here");
        test::write_stamp(arena->base(1, 0) + 8 * context.rank(), 1);
        const int other = 2 - context.rank();
        context.expect(arena->gone_flags()[other].load() == 0, "another rank is gone");
      }
      expect_barrier(context);
    });
  }
}

TEST(HostArena, SizesThatDifferAreAnErrorOnAllRanks) {
  test::check_ranks({.num_ranks = 3, .launch = Launch::kThreads}, [](RankContext& context) {
    const std::int64_t bytes = context.rank() == 2 ? 8192 : 4096;
    const auto arena = HostArena::create(context.bootstrap(), bytes, patient());
    context.expect(arena.status().code() == Errc::kInvalidArgument, "accepted");
    context.expect(
        arena.status().message() == "arena: control_bytes = 8192 on rank 2, 4096 on rank 0",
        arena.status().message());
  });
}

TEST(HostArena, NoSizeIsAnErrorOnAllRanks) {
  test::check_ranks({.num_ranks = 2, .launch = Launch::kThreads}, [](RankContext& context) {
    const auto arena = HostArena::create(context.bootstrap(), 0, patient());
    context.expect(arena.status().code() == Errc::kInvalidArgument, "accepted");
  });
}

TEST(HostArena, MoreThanTheMachineHasIsOutOfMemoryOnAllRanks) {
  test::check_ranks({.num_ranks = 2, .launch = Launch::kForks}, [](RankContext& context) {
    const auto huge = HostArena::create(context.bootstrap(), std::int64_t{1} << 50, patient());
    context.expect(huge.status().code() == Errc::kOutOfMemory, huge.status().to_string());
    const auto arena = create(context);
    if (arena == nullptr) return;
    for (const std::int64_t bytes :
         {std::int64_t{1} << 50, std::numeric_limits<std::int64_t>::max()}) {
      context.expect(arena->add_segment(bytes, patient()).status().code() == Errc::kOutOfMemory,
                     "add_segment");
    }
    for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{-4096}}) {
      context.expect(arena->add_segment(bytes, patient()).status().code() == Errc::kInvalidArgument,
                     "add_segment of nothing");
    }
    context.expect(arena->num_segments() == 1, "a refused request used an id");
    expect_barrier(context);
  });
}

TEST(HostArena, EndsWithAnErrorWhenAllIdsAreUsed) {
  test::check_ranks({.num_ranks = 2, .launch = Launch::kThreads}, [](RankContext& context) {
    const auto arena = create(context);
    if (arena == nullptr) return;
    for (int segment = 1; segment < kMaxSegments; ++segment) {
      if (!context.expect_ok(arena->add_segment(4096, patient()).status(), "add")) return;
    }
    const auto one_more = arena->add_segment(4096, patient());
    context.expect(one_more.status().code() == Errc::kOutOfMemory, one_more.status().to_string());
    expect_barrier(context);
  });
}

TEST(HostArena, LocatesOnlyWhatLiesWhollyInOneSegment) {
  test::check_ranks({.num_ranks = 2, .launch = Launch::kThreads}, [](RankContext& context) {
    const auto arena = create(context);
    if (arena == nullptr) return;
    const auto segment = arena->add_segment(8192, patient());
    if (!context.expect_ok(segment.status(), "add")) return;
    std::byte* const base = segment->base;
    context.expect(arena->locate(base + 100, 50) == Location{.segment = 1, .offset = 100},
                   "middle");
    context.expect(arena->locate(base, 8192) == Location{.segment = 1, .offset = 0}, "all");
    context.expect(arena->locate(base + 8191, 0) == Location{.segment = 1, .offset = 8191},
                   "empty");
    context.expect(!arena->locate(base + 1, 8192), "one byte too many");
    context.expect(!arena->locate(base - 1, 2), "one byte before");
    context.expect(!arena->locate(base, -1), "negative");
    context.expect(!arena->locate(base, std::numeric_limits<std::int64_t>::max()), "overflow");
    context.expect(!arena->locate(&base, 8), "the stack");
    context.expect(!arena->locate(arena->base(1 - context.rank(), 0), 8), "a peer's");
    expect_barrier(context);
  });
}

TEST(HostArena, MemoryOutlivesItsArenaWhileSomeoneHoldsIt) {
  test::check_ranks({.num_ranks = 2, .launch = Launch::kForks}, [](RankContext& context) {
    auto arena = create(context);
    if (arena == nullptr) return;
    auto segment = arena->add_segment(4096, patient());
    if (!context.expect_ok(segment.status(), "add")) return;
    expect_barrier(context);
    arena.reset();
    test::write_stamp(segment->base, 7);
    context.expect(test::read_stamp(segment->base) == 7, "unmapped");
    expect_barrier(context);
  });
}

/// One life of an arena, with a segment added.
void live_once(RankContext& context) {
  const auto arena = create(context, 1 << 20);
  if (arena == nullptr) return;
  context.expect_ok(arena->add_segment(1 << 20, patient()).status(), "add");
  expect_barrier(context);
}

TEST(HostArena, LeavesNothingBehindInManyCycles) {
  const int num_cycles = test::scaled_rounds(200, 2000);
  const auto body = [num_cycles](RankContext& context) {
    const int num_threads = test::process_state().num_threads;
    // The first life fills caches of the C library and of a sanitizer.
    live_once(context);
    const test::ProcessState before = test::process_state();
    context.expect(before.num_mappings > 0, "/proc is not there");
    for (int cycle = 0; cycle < num_cycles; ++cycle) {
      context.step("cycle", cycle);
      live_once(context);
      context.expect(test::process_state().num_fds == before.num_fds, "descriptors");
      context.expect(test::await_num_threads(num_threads, kArenaPatience), "threads");
    }
    // The allocator and a sanitizer may map a few more, but not one per cycle.
    constexpr int kMargin = 16;
    context.expect(test::process_state().num_mappings <= before.num_mappings + kMargin, "mappings");
  };
  test::check_ranks({.num_ranks = 3, .launch = Launch::kForks}, body);
}

}  // namespace
}  // namespace ep::fabric
