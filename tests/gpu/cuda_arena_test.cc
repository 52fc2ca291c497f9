// SPDX-License-Identifier: Apache-2.0
// Arenas on GPUs, their ranks threads or processes, spread over the GPUs there are.
#include "base/deadline.h"
#include "fabric/cuda/arena.h"
#include "fabric/segment.h"
#include "tests/gpu/device_memory.h"
#include "tests/support/process_state.h"
#include "tests/support/ranks.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

using test::Launch;
using test::RankContext;

constexpr std::chrono::milliseconds kPatience{20'000};
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kControlBytes = 5000;
/// The last number that lies within kControlBytes.
constexpr std::int64_t kEndOffset = kControlBytes - 8;
constexpr std::uint64_t kFlagLimitNs = 10'000'000'000;

base::Deadline patient() { return base::Deadline::after(kPatience); }

/// A number that tells which rank wrote what into whose segment.
std::uint64_t stamp_of(int writer, int owner, int segment) {
  return 0x5eed'0000'0000'0000U + static_cast<std::uint64_t>(writer) * 1'000'000 +
         static_cast<std::uint64_t>(owner) * 1000 + static_cast<std::uint64_t>(segment);
}

/// Runs `body` in a child: the process of the tests never calls CUDA, so that it can be forked.
test::RankReport run_in_child(const test::RankBody& body) {
  return test::run_ranks({.num_ranks = 1, .launch = Launch::kForks}, body).front();
}

int num_gpus() {
  static const int kNumGpus = [] {
    const auto report = run_in_child([](RankContext& context) {
      context.bytes.assign(1, static_cast<std::byte>(test::count_gpus()));
    });
    return report.bytes.empty() ? 0 : std::to_integer<int>(report.bytes.front());
  }();
  return kNumGpus;
}

int device_of(int rank) { return rank % num_gpus(); }

/// Threads, too, live in a child.
std::vector<test::RankReport> run_ranks(int num_ranks, Launch launch, const test::RankBody& body) {
  if (launch == Launch::kForks) {
    return test::run_ranks({.num_ranks = num_ranks, .launch = launch}, body);
  }
  return {run_in_child([&](RankContext& outer) {
    const auto reports = test::run_ranks({.num_ranks = num_ranks, .launch = launch}, body);
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      for (const std::string& failure : reports[rank].failures) {
        outer.fail("thread of rank " + std::to_string(rank) + " " + failure);
      }
    }
  })};
}

void check_ranks(int num_ranks, Launch launch, const test::RankBody& body) {
  SCOPED_TRACE(std::to_string(num_ranks) + " ranks as " + test::name_of(launch));
  test::expect_fine(run_ranks(num_ranks, launch, body));
}

/// nullptr, with a finding, where creation fails.
std::unique_ptr<CudaArena> create(RankContext& context,
                                  std::int64_t control_bytes = kControlBytes) {
  auto arena =
      CudaArena::create(context.bootstrap(), device_of(context.rank()), control_bytes, patient());
  context.expect_ok(arena.status(), "create");
  return arena.ok() ? std::move(*arena) : nullptr;
}

bool expect_barrier(RankContext& context) {
  return context.expect_ok(context.bootstrap().barrier(kPatience), "barrier");
}

class CudaArenaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (num_gpus() == 0) GTEST_SKIP() << "needs a GPU";
  }
};

/// Every rank writes a number of its own into a segment of every rank, by copy engine and by a
/// kernel that reads the device's table; then the owners read.
void exchange_stamps(RankContext& context, const CudaArena& arena, int segment) {
  const int rank = context.rank();
  const int num_ranks = context.num_ranks();
  for (int peer = 0; peer < num_ranks; ++peer) {
    std::byte* const base = arena.base(peer, segment);
    if (!context.expect(base != nullptr, "a peer's segment is not mapped")) continue;
    test::write_number(device_of(rank), base + 8 * rank, stamp_of(rank, peer, segment));
    test::store_through_table(device_of(rank), arena.role_view().peer_table,
                              std::int64_t{peer} * kMaxSegments + segment, kEndOffset - 8 * rank,
                              stamp_of(rank, peer, segment));
  }
  if (!expect_barrier(context)) return;
  const std::byte* const own = arena.base(rank, segment);
  for (int peer = 0; peer < num_ranks; ++peer) {
    context.expect(
        test::read_number(device_of(rank), own + 8 * peer) == stamp_of(peer, rank, segment),
        "what a peer copied is not here");
    context.expect(test::read_number(device_of(rank), own + kEndOffset - 8 * peer) ==
                       stamp_of(peer, rank, segment),
                   "what a peer's kernel stored is not here");
  }
  expect_barrier(context);
}

TEST_F(CudaArenaTest, EveryRankReadsAndWritesTheSegmentsOfAll) {
  for (const Launch launch : {Launch::kForks, Launch::kThreads}) {
    for (const int num_ranks : {1, 2, 3, 5}) {
      check_ranks(num_ranks, launch, [](RankContext& context) {
        const auto arena = create(context);
        if (arena == nullptr) return;
        context.expect(test::is_zeroed(device_of(context.rank()), arena->base(context.rank(), 0),
                                       CudaArena::segment_bytes(kControlBytes)),
                       "not zeroed");
        if (expect_barrier(context)) exchange_stamps(context, *arena, 0);
      });
    }
  }
}

TEST_F(CudaArenaTest, AnAddedSegmentIsMappedEverywhereWhenAddReturns) {
  constexpr int kNumAdded = 4;
  const auto body = [](RankContext& context) {
    const auto arena = create(context);
    if (arena == nullptr) return;
    for (int added = 1; added <= kNumAdded; ++added) {
      context.step("segment", added);
      const auto segment = arena->add_segment(added * 3 * kMiB, patient());
      if (!context.expect_ok(segment.status(), "add_segment")) return;
      context.expect(segment->id == added, "ids are not consecutive");
      context.expect(segment->bytes == CudaArena::segment_bytes(added * 3 * kMiB), "size");
      context.expect(segment->base == arena->base(context.rank(), added), "base");
      context.expect(test::is_zeroed(device_of(context.rank()), segment->base, segment->bytes),
                     "not zeroed");
      if (!expect_barrier(context)) return;
      exchange_stamps(context, *arena, added);
    }
    context.expect(arena->num_segments() == 1 + kNumAdded, "num_segments");
    context.expect(arena->total_bytes() == (2 + 4 + 6 + 10 + 12) * kMiB, "total_bytes");
  };
  for (const Launch launch : {Launch::kForks, Launch::kThreads}) check_ranks(3, launch, body);
}

TEST_F(CudaArenaTest, LocatesOnlyWhatLiesWhollyInOneSegment) {
  check_ranks(2, Launch::kThreads, [](RankContext& context) {
    const auto arena = create(context);
    if (arena == nullptr) return;
    const std::byte* const base = arena->base(context.rank(), 0);
    context.expect(arena->locate(base + 100, 50) == Location{.segment = 0, .offset = 100}, "own");
    context.expect(arena->locate(base, 2 * kMiB) == Location{.segment = 0, .offset = 0}, "all");
    context.expect(!arena->locate(base + 1, 2 * kMiB), "one byte too many");
    context.expect(!arena->locate(arena->base(1 - context.rank(), 0), 8), "a peer's");
    expect_barrier(context);
  });
}

TEST_F(CudaArenaTest, AddsSegmentsWhileKernelsRunOnEveryDevice) {
  for (const Launch launch : {Launch::kForks, Launch::kThreads}) {
    check_ranks(3, launch, [](RankContext& context) {
      test::warm_up_gpu(device_of(context.rank()));
      auto arena = create(context);
      if (arena == nullptr) return;
      {
        test::BusyGpu busy(device_of(context.rank()));
        if (!expect_barrier(context)) return;
        busy.start();
        if (!expect_barrier(context)) return;
        const auto segment = arena->add_segment(64 * kMiB, patient());
        context.expect_ok(segment.status(), "add_segment");
        context.expect(busy.is_running(), "it waited for the kernel of another stream");
        expect_barrier(context);
        arena.reset();
        context.expect(busy.is_running(), "destruction waited for the kernel of another stream");
        expect_barrier(context);
      }
      expect_barrier(context);
    });
  }
}

TEST_F(CudaArenaTest, ADestroyedArenaIsGoneForThePeersKernels) {
  for (const Launch launch : {Launch::kForks, Launch::kThreads}) {
    check_ranks(3, launch, [](RankContext& context) {
      auto arena = create(context);
      if (arena == nullptr || !expect_barrier(context)) return;
      if (context.rank() == 1) {
        arena.reset();
      } else {
        const int device = device_of(context.rank());
        const void* const flags = arena->role_view().gone_flags;
        context.expect(test::await_flag_on_gpu(device, flags, 1, kFlagLimitNs), "not gone");
        context.expect(!test::await_flag_on_gpu(device, flags, 2 - context.rank(), 0),
                       "another rank is gone");
        const auto segment = arena->add_segment(kMiB, patient());
        context.expect(
            segment.status().code() == Errc::kPeerTimeout && segment.status().peer() == 1,
            segment.status().to_string());
        test::write_number(device_of(context.rank()), arena->base(1, 0), 7);
        context.expect(test::read_number(device_of(context.rank()), arena->base(1, 0)) == 7,
                       "its memory must stay mapped here");
      }
      expect_barrier(context);
    });
  }
}

TEST_F(CudaArenaTest, AKilledRankIsGoneForThePeersKernels) {
  constexpr int kVictim = 1;
  auto reports = run_ranks(3, Launch::kForks, [](RankContext& context) {
    const auto arena = create(context);
    if (arena == nullptr) return;
    if (context.rank() == kVictim) ::raise(SIGKILL);
    const bool is_gone = test::await_flag_on_gpu(
        device_of(context.rank()), arena->role_view().gone_flags, kVictim, kFlagLimitNs);
    context.expect(is_gone, "the victim is not gone");
    test::write_number(device_of(context.rank()), arena->base(kVictim, 0), 9);
    context.expect(test::read_number(device_of(context.rank()), arena->base(kVictim, 0)) == 9,
                   "the victim's memory must stay while a peer maps it");
  });
  EXPECT_EQ(std::exchange(reports[kVictim].exit_signal, 0), SIGKILL);
  test::expect_fine(reports);
}

TEST_F(CudaArenaTest, MemoryOutlivesItsArenaInAnyOrderOfDestruction) {
  for (const Launch launch : {Launch::kForks, Launch::kThreads}) {
    check_ranks(3, launch, [](RankContext& context) {
      auto arena = create(context);
      if (arena == nullptr) return;
      auto segment = arena->add_segment(kMiB, patient());
      if (!context.expect_ok(segment.status(), "add")) return;
      if (!expect_barrier(context)) return;
      // One after the other, the last rank first.
      for (int turn = context.num_ranks() - 1; turn >= 0; --turn) {
        if (turn == context.rank()) arena.reset();
        if (!expect_barrier(context)) return;
      }
      test::write_number(device_of(context.rank()), segment->base, 11);
      context.expect(test::read_number(device_of(context.rank()), segment->base) == 11, "unmapped");
    });
  }
}

TEST_F(CudaArenaTest, SizesThatDifferAreAnErrorOnAllRanks) {
  check_ranks(3, Launch::kThreads, [](RankContext& context) {
    const std::int64_t bytes = context.rank() == 2 ? 8192 : 4096;
    const auto arena =
        CudaArena::create(context.bootstrap(), device_of(context.rank()), bytes, patient());
    context.expect(arena.status().code() == Errc::kInvalidArgument, "accepted");
    context.expect(
        arena.status().message() == "arena: control_bytes = 8192 on rank 2, 4096 on rank 0",
        arena.status().message());
  });
}

TEST_F(CudaArenaTest, ADeviceThatThereIsNotIsAnErrorOnAllRanks) {
  check_ranks(2, Launch::kThreads, [](RankContext& context) {
    const int device = context.rank() == 1 ? num_gpus() : 0;
    const auto arena = CudaArena::create(context.bootstrap(), device, 4096, patient());
    context.expect(arena.status().code() == Errc::kInvalidArgument, arena.status().to_string());
    context.expect(arena.status().message() == "rank 1: device = " + std::to_string(num_gpus()) +
                                                   ", this process sees " +
                                                   std::to_string(num_gpus()),
                   arena.status().message());
  });
}

TEST_F(CudaArenaTest, MoreThanTheDeviceHasIsOutOfMemory) {
  check_ranks(2, Launch::kForks, [](RankContext& context) {
    const auto arena = create(context);
    if (arena == nullptr) return;
    for (const std::int64_t bytes :
         {std::int64_t{1} << 50, std::numeric_limits<std::int64_t>::max()}) {
      const auto segment = arena->add_segment(bytes, patient());
      context.expect(segment.status().code() == Errc::kOutOfMemory, segment.status().to_string());
    }
    context.expect(arena->add_segment(0, patient()).status().code() == Errc::kInvalidArgument,
                   "a segment of nothing");
    context.expect(arena->num_segments() == 1, "a refused request used an id");
    expect_barrier(context);
  });
}

/// What a rank's arena takes of a device that no other rank uses.
TEST_F(CudaArenaTest, TakesOfTheDeviceWhatItSays) {
  check_ranks(1, Launch::kForks, [](RankContext& context) {
    test::warm_up_gpu(0);
    const auto create_and_add = [&context] {
      auto arena = create(context);
      if (arena == nullptr) return arena;
      context.expect_ok(arena->add_segment(33 * kMiB, patient()).status(), "add");
      return arena;
    };
    // Afterwards the driver has the page tables, and keeps them.
    create_and_add().reset();
    const std::int64_t before = test::free_gpu_bytes(0);
    const auto arena = create_and_add();
    if (arena == nullptr) return;
    const std::int64_t taken = before - test::free_gpu_bytes(0);
    const std::int64_t expected = arena->total_bytes() + CudaArena::overhead_bytes(1);
    context.expect(taken == expected, "took " + std::to_string(taken) + " bytes, expected " +
                                          std::to_string(expected));
  });
}

/// One life of an arena, with a segment added.
void live_once(RankContext& context) {
  const auto arena = create(context, kMiB);
  if (arena == nullptr) return;
  context.expect_ok(arena->add_segment(8 * kMiB, patient()).status(), "add");
  expect_barrier(context);
}

TEST_F(CudaArenaTest, LeavesNothingBehindInManyCycles) {
  const int num_cycles = test::scaled_rounds(30, 1000);
  check_ranks(3, Launch::kForks, [num_cycles](RankContext& context) {
    const int device = device_of(context.rank());
    test::warm_up_gpu(device);
    live_once(context);
    live_once(context);
    if (!expect_barrier(context)) return;
    const test::ProcessState before = test::process_state();
    const std::int64_t free_before = test::free_gpu_bytes(device);
    for (int cycle = 0; cycle < num_cycles; ++cycle) {
      context.step("cycle", cycle);
      live_once(context);
    }
    if (!expect_barrier(context)) return;
    context.expect(test::process_state().num_fds == before.num_fds, "descriptors");
    context.expect(test::await_num_threads(before.num_threads, kPatience), "threads");
    // The driver and the allocator may map a few more, but not one per cycle.
    constexpr int kMargin = 16;
    context.expect(test::process_state().num_mappings <= before.num_mappings + kMargin, "mappings");
    const std::int64_t lost = free_before - test::free_gpu_bytes(device);
    context.expect(lost < 8 * kMiB, "lost " + std::to_string(lost) + " bytes of the device");
    expect_barrier(context);
  });
}

/// Needs no GPU: it is what a host without one answers.
TEST(CudaArenaWithoutGpu, IsUnsupportedOnAllRanks) {
  if (num_gpus() > 0) GTEST_SKIP() << "needs a host without a GPU";
  check_ranks(2, Launch::kThreads, [](RankContext& context) {
    const auto arena = CudaArena::create(context.bootstrap(), 0, 4096, patient());
    context.expect(arena.status().code() == Errc::kUnsupported, arena.status().to_string());
    context.expect(arena.status().message().find("rank 0: no CUDA d") == 0,
                   arena.status().message());
  });
}

TEST(CudaArenaSizes, AreWholeGranules) {
  EXPECT_EQ(CudaArena::segment_bytes(1), 2 * kMiB);
  EXPECT_EQ(CudaArena::segment_bytes(2 * kMiB), 2 * kMiB);
  EXPECT_EQ(CudaArena::segment_bytes(2 * kMiB + 1), 4 * kMiB);
  EXPECT_EQ(CudaArena::overhead_bytes(1), 2 * kMiB);
  EXPECT_EQ(CudaArena::overhead_bytes(1024), 2 * kMiB);
}

}  // namespace
}  // namespace ep::fabric
