// SPDX-License-Identifier: Apache-2.0
// Groups whose ranks meet over a communicator of the NCCL that this host has.
#include "tests/moe/sample_problems.h"
#include "tests/support/device.h"
#include "tests/support/moe_ops.h"

#include <ep/bootstrap.h>
#include <ep/group.h>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ep::test {
namespace {

constexpr std::chrono::milliseconds kPatience{60'000};

/// ncclUniqueId.
struct UniqueId {
  std::array<char, 128> internal{};
};

/// What a user of NCCL calls before ep is there.
struct UserNccl {
  int (*get_unique_id)(UniqueId* id) = nullptr;
  int (*comm_init_rank)(ncclComm** comm, int num_ranks, UniqueId id, int rank) = nullptr;
  int (*comm_destroy)(ncclComm* comm) = nullptr;
  int (*comm_abort)(ncclComm* comm) = nullptr;

  bool is_complete() const {
    return get_unique_id != nullptr && comm_init_rank != nullptr && comm_destroy != nullptr &&
           comm_abort != nullptr;
  }
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

/// Loads it, as torch does.
UserNccl load_nccl() {
  UserNccl nccl;
  void* const library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nccl;
  find(library, "ncclGetUniqueId", nccl.get_unique_id);
  find(library, "ncclCommInitRank", nccl.comm_init_rank);
  find(library, "ncclCommDestroy", nccl.comm_destroy);
  find(library, "ncclCommAbort", nccl.comm_abort);
  return nccl;
}

/// In a child: the process of the tests can be forked only while it has used neither.
bool has_nccl() {
  const auto reports = run_ranks({.num_ranks = 1, .launch = Launch::kForks}, [](RankContext& rank) {
    if (load_nccl().is_complete()) rank.bytes.resize(1);
  });
  return !reports.front().bytes.empty();
}

/// This rank's end of a communicator of all ranks, on the device that is current.
class Communicator {
 public:
  explicit Communicator(RankContext& context) : nccl_(load_nccl()) {
    UniqueId id;
    if (context.rank() == 0) context.expect(nccl_.get_unique_id(&id) == 0, "ncclGetUniqueId");
    const auto ids =
        context.bootstrap().all_gather(std::as_bytes(std::span(id.internal)), kPatience);
    if (!context.expect_ok(ids.status(), "exchange of the id")) return;
    std::memcpy(&id, ids->front().data(), sizeof(id));
    const int result = nccl_.comm_init_rank(&comm_, context.num_ranks(), id, context.rank());
    context.expect(result == 0, "ncclCommInitRank: " + std::to_string(result));
  }
  ~Communicator() {
    if (comm_ != nullptr) nccl_.comm_destroy(comm_);
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  ncclComm* get() const { return comm_; }
  int abort() { return nccl_.comm_abort(std::exchange(comm_, nullptr)); }

 private:
  const UserNccl nccl_;
  ncclComm* comm_ = nullptr;
};

/// Dispatch and combine by a group that met over NCCL, whose communicator is gone by then.
void run_layer(RankContext& context, const Oracle& oracle) {
  const std::shared_ptr<DeviceMirror> mirror = DeviceMirror::of_rank(context.rank());
  std::unique_ptr<Group> group;
  {
    const Communicator comm(context);
    if (comm.get() == nullptr) return;
    const auto bootstrap = make_nccl_bootstrap(comm.get());
    if (!context.expect_ok(bootstrap.status(), "make_nccl_bootstrap")) return;
    context.expect((*bootstrap)->rank() == context.rank(), "rank");
    auto made = ep::Group::create(**bootstrap, {.backend = Backend::kCuda, .max_tokens = 64});
    if (!context.expect_ok(made.status(), "Group::create")) return;
    group = std::make_unique<Group>(std::move(*made), mirror);
  }
  const auto received = checked_dispatch(context, *group, oracle);
  if (received) checked_combine(context, *group, oracle, received->handle, {});
}

class NcclGpu : public testing::Test {
 protected:
  void SetUp() override {
    // Multicast stays off: nothing here needs it, and some machines forbid it.
    ::setenv("NCCL_NVLS_ENABLE", "0", 0);
    if (Device::count() == 0) GTEST_SKIP() << "needs a GPU";
    if (!has_nccl()) GTEST_SKIP() << "needs libnccl.so.2";
  }

  /// NCCL puts no two ranks on one GPU.
  static bool fit(int num_ranks) { return Device::count() >= num_ranks; }
};

TEST_F(NcclGpu, OneRankDispatchesAndCombines) {
  const Oracle oracle(sample_problem(Layout::kFlat, 1));
  check_ranks({.num_ranks = 1, .launch = Launch::kForks},
              [&](RankContext& context) { run_layer(context, oracle); });
}

TEST_F(NcclGpu, ProcessesDispatchAndCombine) {
  if (!fit(2)) GTEST_SKIP() << "needs 2 GPUs";
  const Oracle oracle(sample_problem(Layout::kExpertMajor, 2));
  check_ranks({.num_ranks = 2, .launch = Launch::kForks},
              [&](RankContext& context) { run_layer(context, oracle); });
}

TEST_F(NcclGpu, ThreadsDispatchAndCombine) {
  if (!fit(2)) GTEST_SKIP() << "needs 2 GPUs";
  const Oracle oracle(sample_problem(Layout::kFlat, 2));
  check_ranks({.num_ranks = 1, .launch = Launch::kForks}, [&](RankContext& outer) {
    const auto reports = run_ranks({.num_ranks = 2, .launch = Launch::kThreads},
                                   [&](RankContext& context) { run_layer(context, oracle); });
    for (const RankReport& report : reports) {
      for (const std::string& failure : report.failures) outer.fail("thread: " + failure);
    }
  });
}

TEST_F(NcclGpu, BytesOfAnyNumberArrive) {
  if (!fit(2)) GTEST_SKIP() << "needs 2 GPUs";
  check_ranks({.num_ranks = 2, .launch = Launch::kForks}, [](RankContext& context) {
    const std::shared_ptr<DeviceMirror> mirror = DeviceMirror::of_rank(context.rank());
    const Communicator comm(context);
    const auto bootstrap = make_nccl_bootstrap(comm.get());
    if (!context.expect_ok(bootstrap.status(), "make_nccl_bootstrap")) return;
    for (const std::size_t size : {0, 1, 65'536, 300'000}) {
      const auto value = static_cast<std::byte>(1 + context.rank());
      const Bootstrap::Bytes mine(size * static_cast<std::size_t>(1 + context.rank()), value);
      const auto all = (*bootstrap)->all_gather(mine, kPatience);
      if (!context.expect_ok(all.status(), "all_gather")) return;
      context.expect((*all)[0] == Bootstrap::Bytes(size, std::byte{1}), "bytes of rank 0");
      context.expect((*all)[1] == Bootstrap::Bytes(2 * size, std::byte{2}), "bytes of rank 1");
    }
  });
}

TEST_F(NcclGpu, ARankThatDoesNotComeIsATimeoutAndTheUserMayAbort) {
  if (!fit(2)) GTEST_SKIP() << "needs 2 GPUs";
  check_ranks({.num_ranks = 2, .launch = Launch::kForks}, [](RankContext& context) {
    const std::shared_ptr<DeviceMirror> mirror = DeviceMirror::of_rank(context.rank());
    Communicator comm(context);
    const auto bootstrap = make_nccl_bootstrap(comm.get());
    if (!context.expect_ok(bootstrap.status(), "make_nccl_bootstrap")) return;
    if (context.rank() == 0) {
      const Status status = (*bootstrap)->barrier(std::chrono::milliseconds(500));
      context.expect(status.code() == Errc::kPeerTimeout, status.to_string());
    }
    context.expect_ok(context.bootstrap().barrier(kPatience), "barrier of the test");
    context.expect(comm.abort() == 0, "ncclCommAbort");
  });
}

}  // namespace
}  // namespace ep::test
