// SPDX-License-Identifier: Apache-2.0
// The bootstrap over an NCCL that does what a script says, on memory of the host. Whoever loads a
// library is a process of its own, so that no test sees what another one has loaded.
#include "fabric/bootstrap/nccl_bootstrap.h"

#include "base/deadline.h"
#include "fabric/bootstrap/wire.h"
#include "tests/fabric/nccl/fake_nccl.h"
#include "tests/support/ranks.h"

#include <ep/group.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

using std::chrono::milliseconds;
using test::FakeNcclWorld;
using test::Launch;
using test::RankContext;

constexpr milliseconds kPatience{20'000};
constexpr milliseconds kShort{100};
/// Beyond a deadline, on a machine that is busy with other things.
constexpr milliseconds kSlack{5'000};

std::atomic<int> num_live_buffers{0};

/// Buffers of the host; the stream is empty once the fake has ended its work.
class FakeBuffers final : public NcclBuffers {
 public:
  explicit FakeBuffers(int num_ranks)
      : source_(kChunkBytes), target_(kChunkBytes * static_cast<std::size_t>(num_ranks)) {
    num_live_buffers.fetch_add(1);
  }
  ~FakeBuffers() override { num_live_buffers.fetch_sub(1); }

  void enter() override {}
  const void* source() const override { return source_.data(); }
  void* target() const override { return target_.data(); }
  void* stream() const override { return &stream_; }
  Status send(std::span<const std::byte> mine) override {
    std::copy(mine.begin(), mine.end(), source_.begin());
    return Status();
  }
  Status receive(std::size_t bytes) override {
    received_bytes_ = bytes;
    return Status();
  }
  Result<bool> has_arrived() override { return stream_.num_pending.load() == 0; }
  std::span<const std::byte> received() const override {
    return std::span(target_).first(received_bytes_);
  }

 private:
  std::vector<std::byte> source_;
  mutable std::vector<std::byte> target_;
  mutable test::FakeStream stream_;
  std::size_t received_bytes_ = 0;
};

Result<std::unique_ptr<NcclBuffers>> make_fake_buffers(int /*device*/, int num_ranks) {
  return std::unique_ptr<NcclBuffers>(std::make_unique<FakeBuffers>(num_ranks));
}

/// Shared with the processes that are forked later.
class SharedWorld {
 public:
  SharedWorld()
      : memory_(::mmap(nullptr,
                       sizeof(FakeNcclWorld),
                       PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS,
                       -1,
                       0)),
        world_(new (memory_) FakeNcclWorld()) {}
  ~SharedWorld() { ::munmap(memory_, sizeof(FakeNcclWorld)); }
  SharedWorld(const SharedWorld&) = delete;
  SharedWorld& operator=(const SharedWorld&) = delete;

  FakeNcclWorld& operator*() const { return *world_; }

 private:
  void* const memory_;
  FakeNcclWorld* const world_;
};

NcclBootstrapConfig fake_config(milliseconds timeout = kPatience) {
  return {.timeout = timeout, .library = EP_FAKE_NCCL};
}

using Script = std::function<void(ncclComm&)>;
using BootstrapBody = std::function<void(RankContext&, Bootstrap&)>;

/// Ranks with communicators of one world, as processes, and as threads of one.
class Ranks {
 public:
  explicit Ranks(int num_ranks, Script script = {})
      : num_ranks_(num_ranks), script_(std::move(script)) {}

  /// The body gets a communicator.
  void run(Launch launch, const std::function<void(RankContext&, ncclComm&)>& body) const {
    const SharedWorld world;
    const auto on_rank = [&](RankContext& context) {
      ncclComm comm(*world, context.rank(), context.num_ranks());
      if (script_) script_(comm);
      body(context, comm);
    };
    if (launch == Launch::kForks) {
      test::check_ranks({.num_ranks = num_ranks_, .launch = launch}, on_rank);
      return;
    }
    test::check_ranks({.num_ranks = 1, .launch = Launch::kForks}, [&](RankContext& outer) {
      const auto reports = test::run_ranks({.num_ranks = num_ranks_, .launch = launch}, on_rank);
      for (const test::RankReport& report : reports) {
        for (const std::string& failure : report.failures) outer.fail("thread: " + failure);
      }
    });
  }

  /// The body gets a bootstrap.
  void meet(Launch launch, const BootstrapBody& body) const {
    run(launch, [&](RankContext& context, ncclComm& comm) {
      const auto bootstrap = open_nccl_bootstrap(&comm, fake_config(), make_fake_buffers);
      if (context.expect_ok(bootstrap.status(), "open")) body(context, **bootstrap);
    });
  }

 private:
  const int num_ranks_;
  const Script script_;
};

/// One rank, in a process of its own.
void in_child(const std::function<void(RankContext&)>& body) {
  test::check_ranks({.num_ranks = 1, .launch = Launch::kForks}, body);
}

/// What opening gives on a single rank whose communicator follows the script.
void expect_open_fails(const Script& script, Errc code, const std::string& message) {
  Ranks(1, script).run(Launch::kForks, [&](RankContext& context, ncclComm& comm) {
    const auto opened = open_nccl_bootstrap(&comm, fake_config(), make_fake_buffers);
    context.expect(opened.status().code() == code, opened.status().to_string());
    context.expect(opened.status().message() == message, opened.status().message());
  });
}

Bootstrap::Bytes bytes_of(int rank, std::size_t size) {
  Bootstrap::Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(rank) * 31 + (i >> 8));
  }
  return bytes;
}

void expect_gathered(RankContext& context, Bootstrap& bootstrap, int round) {
  constexpr std::size_t kChunk = NcclBuffers::kChunkBytes;
  constexpr std::array<std::size_t, 7> kSizes{0, 1, 100, kChunk - 1, kChunk, kChunk + 1, 200'000};
  const auto size_of_rank = [&](int rank) {
    return kSizes[static_cast<std::size_t>(rank * 3 + round) % kSizes.size()];
  };
  const int rank = bootstrap.rank();
  const auto all = bootstrap.all_gather(bytes_of(rank, size_of_rank(rank)), kPatience);
  if (!context.expect_ok(all.status(), "all_gather")) return;
  for (int peer = 0; peer < bootstrap.num_ranks(); ++peer) {
    context.expect((*all)[static_cast<std::size_t>(peer)] == bytes_of(peer, size_of_rank(peer)),
                   "wrong bytes of rank " + std::to_string(peer));
  }
}

void expect_all_sizes_gathered(RankContext& context, Bootstrap& bootstrap) {
  context.expect(bootstrap.rank() == context.rank(), "rank");
  context.expect(bootstrap.num_ranks() == context.num_ranks(), "num_ranks");
  for (int round = 0; round < 7; ++round) expect_gathered(context, bootstrap, round);
  context.expect_ok(bootstrap.barrier(kPatience), "barrier");
}

TEST(NcclBootstrap, GathersBytesOfAnyNumberInRankOrder) {
  for (const Launch launch : {Launch::kForks, Launch::kThreads}) {
    for (const int num_ranks : {1, 2, 5}) {
      SCOPED_TRACE(std::to_string(num_ranks) + " ranks as " + test::name_of(launch));
      Ranks(num_ranks).meet(launch, expect_all_sizes_gathered);
    }
  }
}

TEST(NcclBootstrap, WaitsForACommunicatorThatDoesNotBlock) {
  const Ranks ranks(3, [](ncclComm& comm) { comm.busy_answers = 5 + comm.rank; });
  ranks.meet(Launch::kThreads, expect_all_sizes_gathered);
}

TEST(NcclBootstrap, ServesAGroup) {
  Ranks(3).meet(Launch::kForks, [](RankContext& context, Bootstrap& bootstrap) {
    const auto group = Group::create(bootstrap, {.max_tokens = 16});
    if (!context.expect_ok(group.status(), "Group::create")) return;
    context.expect_ok((*group)->reserve(1 << 20), "reserve");
    context.expect_ok(bootstrap.barrier(kPatience), "barrier");
  });
}

TEST(NcclBootstrap, LeavesNothingOnceItIsGone) {
  in_child([](RankContext& context) {
    const SharedWorld world;
    ncclComm comm(*world, 0, 1);
    for (int round = 0; round < 3; ++round) {
      const auto bootstrap = open_nccl_bootstrap(&comm, fake_config(), make_fake_buffers);
      context.expect_ok(bootstrap.status(), "open");
      context.expect(num_live_buffers.load() == 1, "buffers");
    }
    context.expect(num_live_buffers.load() == 0, "something is left");
  });
}

TEST(NcclBootstrap, ARankThatDoesNotComeIsATimeoutForGood) {
  Ranks(3).meet(Launch::kForks, [](RankContext& context, Bootstrap& bootstrap) {
    if (context.rank() != 1) {
      const base::Deadline limit = base::Deadline::after(kShort + kSlack);
      const Status status = bootstrap.barrier(kShort);
      context.expect(!limit.expired(), "it waited too long");
      context.expect(status.code() == Errc::kPeerTimeout, status.to_string());
      context.expect(status.peer() == Status::kNoPeer, "NCCL does not tell who");
      context.expect(status.message() ==
                         "bootstrap: ncclAllGather did not end within 0.1 s: a rank did not come, "
                         "or other work of the communicator comes first",
                     status.message());
      context.expect(bootstrap.barrier(kPatience).message() == status.message(), "later calls");
    }
    context.expect_ok(context.bootstrap().barrier(kPatience), "barrier of the test");
  });
}

TEST(NcclBootstrap, BuffersOfAnAllGatherThatDoesNotEndAreKept) {
  in_child([](RankContext& context) {
    const SharedWorld world;
    ncclComm comm(*world, 0, 1);
    comm.hangs_at = 1;
    auto bootstrap = open_nccl_bootstrap(&comm, fake_config(), make_fake_buffers);
    if (!context.expect_ok(bootstrap.status(), "open")) return;
    context.expect(!(*bootstrap)->barrier(kShort).ok(), "it ended");
    bootstrap->reset();
    context.expect(num_live_buffers.load() == 1, "the device may still write to it");
  });
}

TEST(NcclBootstrap, ACallThatDoesNotReturnIsATimeoutAndIsLeftBehind) {
  in_child([](RankContext& context) {
    const SharedWorld world;
    ncclComm comm(*world, 0, 1);
    comm.blocks_at = 1;
    auto bootstrap = open_nccl_bootstrap(&comm, fake_config(), make_fake_buffers);
    if (!context.expect_ok(bootstrap.status(), "open")) return;
    const base::Deadline limit = base::Deadline::after(kShort + kSlack);
    const Status status = (*bootstrap)->barrier(kShort);
    context.expect(!limit.expired(), "it waited too long");
    context.expect(status.code() == Errc::kPeerTimeout, status.to_string());
    context.expect(
        status.message().find("ncclAllGather did not return within 0.1 s") != std::string::npos,
        status.message());
    bootstrap->reset();
    // As ncclCommAbort() does.
    const int num_calls = comm.num_calls.load();
    comm.is_released.store(true);
    while (comm.is_blocked.load()) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(50));
    context.expect(comm.num_calls.load() == num_calls, "the communicator may be gone by now");
  });
}

TEST(NcclBootstrap, AFailedCallSaysWhatNcclSays) {
  expect_open_fails([](ncclComm& comm) { comm.fails_at = 0; }, Errc::kNccl,
                    "bootstrap: ncclAllGather: unhandled system error (ncclResult 2); last error "
                    "of NCCL: the fake is to blame");
}

TEST(NcclBootstrap, AnErrorOfTheCommunicatorEndsTheWait) {
  Ranks(2, [](ncclComm& comm) {
    comm.breaks_at = comm.rank == 0 ? 1 : ncclComm::kNever;
  }).meet(Launch::kForks, [](RankContext& context, Bootstrap& bootstrap) {
    if (context.rank() == 0) {
      const Status status = bootstrap.barrier(kPatience);
      context.expect(status.code() == Errc::kNccl, status.to_string());
      context.expect(status.native_code() == 6, "ncclRemoteError");
      context.expect(
          status.message().find("the communicator: remote process exited") != std::string::npos,
          status.message());
    }
    context.expect_ok(context.bootstrap().barrier(kPatience), "barrier of the test");
  });
}

TEST(NcclBootstrap, WhatIsNoHeaderOfEpIsRefusedOnTheRankThatSeesIt) {
  Ranks(2, [](ncclComm& comm) {
    comm.spoils_at = comm.rank == 1 ? 1 : ncclComm::kNever;
  }).meet(Launch::kForks, [](RankContext& context, Bootstrap& bootstrap) {
    const Status status = bootstrap.barrier(kPatience);
    if (context.rank() == 0) {
      context.expect_ok(status, "barrier");
      return;
    }
    context.expect(status.code() == Errc::kFabric && status.peer() == 0, status.to_string());
    context.expect(status.message().find("rank 0 sent something else") != std::string::npos,
                   status.message());
  });
}

TEST(NcclBootstrap, RanksThatAreNotAtTheSameExchangeSaySo) {
  Ranks(2).run(Launch::kForks, [](RankContext& context, ncclComm& comm) {
    auto bootstrap = open_nccl_bootstrap(&comm, fake_config(), make_fake_buffers);
    if (!context.expect_ok(bootstrap.status(), "open")) return;
    if (context.rank() == 0) {
      const Status status = (*bootstrap)->barrier(kPatience);
      context.expect(status.code() == Errc::kFabric, status.to_string());
      context.expect(status.message() == "bootstrap: rank 1 is at exchange 0, this rank at 1",
                     status.message());
    } else {
      const auto again = open_nccl_bootstrap(&comm, fake_config(), make_fake_buffers);
      context.expect(
          again.status().message() == "bootstrap: rank 0 is at exchange 1, this rank at 0",
          again.status().message());
    }
  });
}

TEST(NcclBootstrap, TooManyBytesOfOneRankAreAnErrorOnAll) {
  Ranks(2).meet(Launch::kForks, [](RankContext& context, Bootstrap& bootstrap) {
    const Bootstrap::Bytes mine(context.rank() == 1 ? kMaxContributionBytes + 1 : 3);
    const auto all = bootstrap.all_gather(mine, kPatience);
    context.expect(all.status().code() == Errc::kInvalidArgument, all.status().to_string());
    context.expect(all.status().message() ==
                       "bootstrap: all_gather of 67108865 bytes by rank 1, at most 67108864 "
                       "allowed",
                   all.status().message());
    context.expect(all.status().peer() == 1, "peer");
  });
}

TEST(NcclBootstrap, ACommunicatorThatIsNoneOrNotReadyIsRefused) {
  EXPECT_EQ(open_nccl_bootstrap(nullptr, fake_config(), make_fake_buffers).status().message(),
            "bootstrap: comm is null");
  expect_open_fails([](ncclComm& comm) { comm.reported_rank = 7; }, Errc::kInvalidArgument,
                    "bootstrap: the communicator has rank 7 of 1; is it one of this NCCL?");
  expect_open_fails([](ncclComm& comm) { comm.count_result = 4; }, Errc::kNccl,
                    "bootstrap: ncclCommCount: some error (ncclResult 4); last error of NCCL: the "
                    "fake is to blame");
  expect_open_fails([](ncclComm& comm) { comm.state.store(6); }, Errc::kNccl,
                    "bootstrap: the communicator: remote process exited (ncclResult 6); last error "
                    "of NCCL: the fake is to blame");
  in_child([](RankContext& context) {
    const SharedWorld world;
    ncclComm comm(*world, 0, 1);
    comm.state.store(7);
    const auto opened = open_nccl_bootstrap(&comm, fake_config(kShort), make_fake_buffers);
    context.expect(opened.status().code() == Errc::kPeerTimeout, opened.status().to_string());
    context.expect(opened.status().message().find("the communicator was not ready within 0.1 s") !=
                       std::string::npos,
                   opened.status().message());
  });
}

TEST(NcclBootstrap, ADeviceThatCannotBeUsedIsAnError) {
  in_child([](RankContext& context) {
    const SharedWorld world;
    ncclComm comm(*world, 0, 1);
    const auto opened = open_nccl_bootstrap(
        &comm, fake_config(), [](int device, int) -> Result<std::unique_ptr<NcclBuffers>> {
          return Status(Errc::kUnsupported, "device " + std::to_string(device));
        });
    context.expect(opened.status().message() == "device 0", opened.status().to_string());
  });
}

/// What opening says with a library that is not right, loaded by `load` or named by `path`.
void expect_library_refused(const std::function<void()>& load,
                            const std::optional<std::string>& path,
                            const std::string& mentions) {
  in_child([&](RankContext& context) {
    load();
    const SharedWorld world;
    ncclComm comm(*world, 0, 1);
    const auto opened = open_nccl_bootstrap(&comm, {.library = path}, make_fake_buffers);
    context.expect(opened.status().code() == Errc::kUnsupported, opened.status().to_string());
    context.expect(opened.status().message().find(mentions) != std::string::npos,
                   opened.status().message());
  });
}

TEST(NcclLibrary, OneThatIsNotRightIsUnsupportedWithTheReason) {
  const auto nothing = [] {};
  expect_library_refused(nothing, "/nowhere/libnccl.so.2", "/nowhere/libnccl.so.2: cannot open");
  expect_library_refused(nothing, EP_FAKE_NCCL_OLD, " is NCCL 2.18.5, expected at least 2.19.0");
  expect_library_refused(nothing, EP_FAKE_NCCL_PARTIAL, " has no ncclAllGather");
}

TEST(NcclLibrary, NoneIsLoadedThatNobodyHasLoaded) {
  expect_library_refused([] {}, std::nullopt,
                         "this process has loaded no libnccl.so.2; name the library");
}

TEST(NcclLibrary, TheOneThatTheProcessHasLoadedIsUsed) {
  in_child([](RankContext& context) {
    context.expect(::dlopen(EP_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL) != nullptr, "dlopen");
    const SharedWorld world;
    ncclComm comm(*world, 0, 1);
    const auto opened = open_nccl_bootstrap(&comm, {}, make_fake_buffers);
    context.expect_ok(opened.status(), "open");
  });
}

TEST(NcclLibrary, TheGlobalScopeIsLookedIntoToo) {
  const auto load = [] { EXPECT_NE(::dlopen(EP_FAKE_NCCL_OLD, RTLD_NOW | RTLD_GLOBAL), nullptr); };
  expect_library_refused(load, std::nullopt, "this process is NCCL 2.18.5");
}

TEST(NcclLibrary, ThePublicCallNeedsOneToo) {
  const SharedWorld world;
  ncclComm comm(*world, 0, 1);
  EXPECT_EQ(make_nccl_bootstrap(&comm).status().code(), Errc::kUnsupported);
}

}  // namespace
}  // namespace ep::fabric
