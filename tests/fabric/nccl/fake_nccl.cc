// SPDX-License-Identifier: Apache-2.0
// A library with the names of NCCL. Variants have another version (FAKE_NCCL_VERSION) or lack a
// function (FAKE_NCCL_LACKS_ALL_GATHER).
#include "tests/fabric/nccl/fake_nccl.h"

#include <chrono>
#include <cstring>

#pragma GCC visibility push(default)
extern "C" {
int ncclGetVersion(int* version);
const char* ncclGetErrorString(int result);
const char* ncclGetLastError(ncclComm* comm);
int ncclCommCount(ncclComm* comm, int* count);
int ncclCommCuDevice(ncclComm* comm, int* device);
int ncclCommUserRank(ncclComm* comm, int* rank);
int ncclCommGetAsyncError(ncclComm* comm, int* result);
int ncclAllGather(
    const void* source, void* target, std::size_t count, int dtype, ncclComm* comm, void* stream);
}
#pragma GCC visibility pop

namespace {

constexpr int kSuccess = 0;
constexpr int kSystemError = 2;
constexpr int kRemoteError = 6;
constexpr int kInProgress = 7;

int note_call(ncclComm* comm) {
  comm->num_calls.fetch_add(1);
  return kSuccess;
}

}  // namespace

int ncclGetVersion(int* version) {
  *version = FAKE_NCCL_VERSION;
  return kSuccess;
}

const char* ncclGetErrorString(int result) {
  if (result == kSystemError) return "unhandled system error";
  return result == kRemoteError ? "remote process exited" : "some error";
}

const char* ncclGetLastError(ncclComm* /*comm*/) { return "the fake is to blame"; }

int ncclCommCount(ncclComm* comm, int* count) {
  *count = comm->count;
  return comm->count_result;
}

int ncclCommCuDevice(ncclComm* comm, int* device) {
  *device = comm->rank;
  return note_call(comm);
}

int ncclCommUserRank(ncclComm* comm, int* rank) {
  *rank = comm->reported_rank;
  return note_call(comm);
}

int ncclCommGetAsyncError(ncclComm* comm, int* result) {
  *result = comm->state.load();
  if (comm->num_busy.load() < comm->busy_answers) {
    comm->num_busy.fetch_add(1);
    *result = kInProgress;
  }
  return note_call(comm);
}

#ifndef FAKE_NCCL_LACKS_ALL_GATHER
namespace {

constexpr int kInvalidArgument = 4;

struct Gather {
  const void* source;
  void* target;
  std::size_t bytes;
  ep::test::FakeStream* stream;
  bool is_spoiled;
};

/// False if the communicator ended before.
template <class Condition>
bool await(const ncclComm& comm, Condition condition) {
  while (!condition()) {
    if (comm.is_ending.load()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

template <class Counter>
bool await_all(const ncclComm& comm, Counter counter, std::uint64_t least) {
  return await(comm, [&] {
    for (int rank = 0; rank < comm.count; ++rank) {
      if (counter(comm.world.ranks[static_cast<std::size_t>(rank)]).load() < least) return false;
    }
    return true;
  });
}

void run_gather(ncclComm& comm, const Gather& gather) {
  using Rank = ep::test::FakeNcclWorld::Rank;
  Rank& own = comm.world.ranks[static_cast<std::size_t>(comm.rank)];
  const std::uint64_t before = own.num_taken.load();
  if (!await_all(
          comm, [](const Rank& rank) -> auto& { return rank.num_taken; }, before))
    return;
  std::memcpy(own.bytes.data(), gather.source, gather.bytes);
  own.num_sent.store(before + 1);
  if (!await_all(
          comm, [](const Rank& rank) -> auto& { return rank.num_sent; }, before + 1))
    return;
  for (int rank = 0; rank < comm.count; ++rank) {
    auto* const to =
        static_cast<std::byte*>(gather.target) + static_cast<std::size_t>(rank) * gather.bytes;
    std::memcpy(to, comm.world.ranks[static_cast<std::size_t>(rank)].bytes.data(), gather.bytes);
  }
  if (gather.is_spoiled) std::memset(gather.target, 0, gather.bytes);
  own.num_taken.store(before + 1);
  gather.stream->num_pending.fetch_sub(1);
}

}  // namespace

int ncclAllGather(
    const void* source, void* target, std::size_t count, int dtype, ncclComm* comm, void* stream) {
  constexpr int kUint8 = 1;
  const int number = comm->num_gathers.fetch_add(1);
  static_cast<void>(note_call(comm));
  if (dtype != kUint8 || count > ep::test::FakeNcclWorld::kMaxBytes) return kInvalidArgument;
  if (number == comm->fails_at) return kSystemError;
  auto* const fake_stream = static_cast<ep::test::FakeStream*>(stream);
  fake_stream->num_pending.fetch_add(1);
  if (number == comm->blocks_at) {
    comm->is_blocked.store(true);
    while (!comm->is_released.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm->is_blocked.store(false);
    return kSystemError;
  }
  if (number == comm->breaks_at) comm->state.store(kRemoteError);
  if (number == comm->breaks_at || number == comm->hangs_at) return kSuccess;
  const Gather gather{source, target, count, fake_stream, number == comm->spoils_at};
  const std::lock_guard lock(comm->mutex);
  comm->workers.emplace_back([comm, gather] { run_gather(*comm, gather); });
  comm->num_busy.store(0);
  return comm->busy_answers > 0 ? kInProgress : kSuccess;
}
#endif
