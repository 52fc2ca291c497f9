// SPDX-License-Identifier: Apache-2.0
// all_gather of bytes of any number by all-gathers of chunks: first the sizes, then the bytes.
#include "fabric/bootstrap/nccl_exchange.h"

#include "base/blocked_signals.h"
#include "base/byte_io.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "fabric/bootstrap/rank_list.h"
#include "fabric/bootstrap/wire.h"

#include <algorithm>
#include <future>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace ep::fabric {
namespace {

constexpr std::uint32_t kNcclMagic = 0x4e425045;  // "EPBN"
constexpr std::uint32_t kNcclWireVersion = 1;
/// Magic, version, sequence, rank, bytes.
constexpr std::size_t kHeaderFieldBytes = 4 + 4 + 8 + 4 + 8;

/// How long the thread may take beyond the deadline by which it ends by itself.
constexpr std::chrono::milliseconds kReturnGrace{500};
constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};

constexpr const char* kPossibleCauses =
    ": a rank did not come, or other work of the communicator comes first";

Status late(const std::string& what, std::chrono::milliseconds timeout) {
  return Status(Errc::kPeerTimeout,
                "bootstrap: " + what + " within " + text_of(timeout) + kPossibleCauses);
}

/// Until `is_done` says so, the communicator fails or the time is up.
template <class IsDone>
Status poll_comm(const NcclLibrary& library,
                 ncclComm* comm,
                 base::Deadline deadline,
                 const Status& too_late,
                 IsDone is_done) {
  std::chrono::microseconds pause = kFirstPause;
  while (true) {
    int state = kNcclSuccess;
    EP_TRY(
        nccl_status(library, library.comm_get_async_error(comm, &state), "ncclCommGetAsyncError"));
    if (state != kNcclInProgress) EP_TRY(nccl_status(library, state, "the communicator"));
    EP_TRY_ASSIGN(const bool is_over, is_done(state));
    if (is_over) return Status();
    if (deadline.expired()) return too_late;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

/// One collective call, on a thread of its own.
class Exchange {
 public:
  Exchange(std::shared_ptr<NcclLink> link,
           std::span<const std::byte> mine,
           std::uint64_t sequence,
           std::chrono::milliseconds timeout)
      : link_(std::move(link)),
        mine_(mine.begin(), mine.end()),
        sequence_(sequence),
        timeout_(timeout),
        deadline_(base::Deadline::after(timeout)) {}

  Result<std::vector<Bootstrap::Bytes>> run();

  base::Deadline deadline() const { return deadline_; }
  NcclLink& link() const { return *link_; }

 private:
  Result<std::vector<std::size_t>> gather_sizes();
  Result<std::size_t> size_from(int rank, std::span<const std::byte> header) const;
  Status check_sizes(const std::vector<std::size_t>& sizes) const;
  Status gather_chunk(std::span<const std::byte> chunk);

  const std::shared_ptr<NcclLink> link_;
  const Bootstrap::Bytes mine_;
  const std::uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  const base::Deadline deadline_;
};

/// Every rank gives as many bytes; they are in NcclBuffers::received() in rank order.
Status Exchange::gather_chunk(std::span<const std::byte> chunk) {
  const NcclLibrary& library = link_->library;
  NcclBuffers& buffers = *link_->buffers;
  EP_TRY(buffers.send(chunk));
  link_->has_pending.store(true);
  const int result = library.all_gather(buffers.source(), buffers.target(), chunk.size(),
                                        kNcclUint8, link_->comm, buffers.stream());
  if (link_->is_abandoned.load()) return Status(Errc::kAborted, "bootstrap: given up");
  if (result != kNcclInProgress) EP_TRY(nccl_status(library, result, "ncclAllGather"));
  // A communicator that does not block queues the kernel later.
  EP_TRY(poll_comm(library, link_->comm, deadline_, late("ncclAllGather was not queued", timeout_),
                   [](int state) -> Result<bool> { return state != kNcclInProgress; }));
  EP_TRY(buffers.receive(chunk.size() * static_cast<std::size_t>(link_->num_ranks)));
  EP_TRY(poll_comm(library, link_->comm, deadline_, late("ncclAllGather did not end", timeout_),
                   [&buffers](int) { return buffers.has_arrived(); }));
  link_->has_pending.store(false);
  return Status();
}

Result<std::size_t> Exchange::size_from(int rank, std::span<const std::byte> header) const {
  base::ByteReader reader(header);
  const bool is_header = reader.get<std::uint32_t>() == kNcclMagic;
  const auto version = reader.get<std::uint32_t>();
  const auto sequence = reader.get<std::uint64_t>();
  const auto sender = reader.get<std::int32_t>();
  const auto bytes = reader.get<std::uint64_t>();
  const std::string who = "bootstrap: rank " + std::to_string(rank);
  Status wrong;
  if (!is_header || sender != rank) {
    wrong =
        Status(Errc::kFabric,
               who + " sent something else: is the communicator in use, or of another library?");
  } else if (version != kNcclWireVersion) {
    wrong = Status(Errc::kUnsupported, who + " speaks version " + std::to_string(version) +
                                           ", this rank " + std::to_string(kNcclWireVersion));
  } else if (sequence != sequence_) {
    wrong = Status(Errc::kFabric, who + " is at exchange " + std::to_string(sequence) +
                                      ", this rank at " + std::to_string(sequence_));
  } else {
    return static_cast<std::size_t>(bytes);
  }
  return wrong.set_peer(rank);
}

/// All ranks see the same sizes, and fail alike.
Status Exchange::check_sizes(const std::vector<std::size_t>& sizes) const {
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] <= kMaxContributionBytes) continue;
    Status status(Errc::kInvalidArgument, "bootstrap: all_gather of " +
                                              std::to_string(sizes[rank]) + " bytes by rank " +
                                              std::to_string(rank) + ", at most " +
                                              std::to_string(kMaxContributionBytes) + " allowed");
    return status.set_peer(static_cast<int>(rank));
  }
  const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  if (total <= kMaxResultBytes) return Status();
  return Status(Errc::kInvalidArgument, "bootstrap: all_gather of " + std::to_string(total) +
                                            " bytes in all, at most " +
                                            std::to_string(kMaxResultBytes) + " allowed");
}

Result<std::vector<std::size_t>> Exchange::gather_sizes() {
  base::ByteWriter header;
  header.put(kNcclMagic)
      .put(kNcclWireVersion)
      .put(sequence_)
      .put(std::int32_t{link_->rank})
      .put(std::uint64_t{mine_.size()});
  EP_CHECK(header.bytes().size() == kHeaderFieldBytes);
  EP_TRY(gather_chunk(header.bytes()));
  std::vector<std::size_t> sizes;
  for (int rank = 0; rank < link_->num_ranks; ++rank) {
    const auto theirs = link_->buffers->received().subspan(
        static_cast<std::size_t>(rank) * kHeaderFieldBytes, kHeaderFieldBytes);
    EP_TRY_ASSIGN(const std::size_t size, size_from(rank, theirs));
    sizes.push_back(size);
  }
  EP_TRY(check_sizes(sizes));
  return sizes;
}

Result<std::vector<Bootstrap::Bytes>> Exchange::run() {
  link_->buffers->enter();
  EP_TRY_ASSIGN(const std::vector<std::size_t> sizes, gather_sizes());
  const std::size_t largest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<Bootstrap::Bytes> all(sizes.size());
  for (std::size_t done = 0; done < largest; done += NcclBuffers::kChunkBytes) {
    const std::size_t chunk_bytes = std::min(largest - done, NcclBuffers::kChunkBytes);
    Bootstrap::Bytes chunk(chunk_bytes);
    for (std::size_t i = done; i < std::min(done + chunk_bytes, mine_.size()); ++i) {
      chunk[i - done] = mine_[i];
    }
    EP_TRY(gather_chunk(chunk));
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      const std::size_t left = sizes[rank] - std::min(sizes[rank], done);
      const auto theirs =
          link_->buffers->received().subspan(rank * chunk_bytes, std::min(left, chunk_bytes));
      all[rank].insert(all[rank].end(), theirs.begin(), theirs.end());
    }
  }
  return all;
}

}  // namespace

Status await_comm(const NcclLibrary& library, ncclComm* comm, std::chrono::milliseconds timeout) {
  return poll_comm(library, comm, base::Deadline::after(timeout),
                   late("the communicator was not ready", timeout),
                   [](int state) -> Result<bool> { return state != kNcclInProgress; });
}

Result<std::vector<Bootstrap::Bytes>> exchange_over_nccl(const std::shared_ptr<NcclLink>& link,
                                                         std::span<const std::byte> mine,
                                                         std::uint64_t sequence,
                                                         std::chrono::milliseconds timeout) {
  const auto exchange = std::make_shared<Exchange>(link, mine, sequence, timeout);
  std::packaged_task<Result<std::vector<Bootstrap::Bytes>>()> task(
      [exchange] { return exchange->run(); });
  std::future<Result<std::vector<Bootstrap::Bytes>>> outcome = task.get_future();
  std::thread thread;
  try {
    const base::BlockedSignals blocked;
    thread = std::thread(std::move(task));
  } catch (const std::system_error& error) {
    return base::errno_status("bootstrap: thread", error.code().value());
  }
  const base::Deadline last = exchange->deadline().plus(kReturnGrace);
  if (outcome.wait_until(last.time_point()) == std::future_status::ready) {
    thread.join();
    return outcome.get();
  }
  link->is_abandoned.store(true);
  thread.detach();
  return late("ncclAllGather did not return", timeout);
}

}  // namespace ep::fabric
