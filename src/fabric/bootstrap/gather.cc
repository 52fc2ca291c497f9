// SPDX-License-Identifier: Apache-2.0
// all_gather over a star.
#include "fabric/bootstrap/gather.h"

#include "base/byte_io.h"
#include "base/check.h"
#include "fabric/bootstrap/rank_list.h"
#include "fabric/bootstrap/rendezvous.h"
#include "fabric/bootstrap/wire.h"

#include <algorithm>
#include <poll.h>
#include <string>

namespace ep::fabric {
namespace {

/// For telling the others of a failure.
constexpr std::chrono::milliseconds kErrorTimeout{1000};
/// What a gather frame carries besides the contribution: the time that the rank has left.
constexpr std::size_t kGatherFieldBytes = sizeof(std::int64_t);

Status about_rank(int rank, const Status& status) {
  Status named(status.code(), "bootstrap: rank " + std::to_string(rank) + ": " + status.message(),
               status.native_code());
  return named.set_peer(rank);
}

Status check_contribution(std::size_t bytes) {
  if (bytes <= kMaxContributionBytes) return Status();
  return Status(Errc::kInvalidArgument, "bootstrap: all_gather of " + std::to_string(bytes) +
                                            " bytes, at most " +
                                            std::to_string(kMaxContributionBytes) + " allowed");
}

/// The collection of one round's contributions at rank 0.
class Collection {
 public:
  Collection(const std::vector<base::UniqueFd>& connections,
             std::uint64_t sequence,
             base::Deadline deadline,
             std::vector<Bootstrap::Bytes>& contributions);

  Status run(std::chrono::milliseconds timeout);

 private:
  Status serve_once();
  Status advance(int rank);
  Status take(int rank, Frame frame);

  const std::vector<base::UniqueFd>& connections_;
  const std::uint64_t sequence_;
  /// The earliest of those of all ranks that have come, so that each gets its answer in time.
  base::Deadline deadline_;
  std::vector<Bootstrap::Bytes>& contributions_;
  std::vector<FrameReader> readers_;
  std::vector<int> pending_;
};

Collection::Collection(const std::vector<base::UniqueFd>& connections,
                       std::uint64_t sequence,
                       base::Deadline deadline,
                       std::vector<Bootstrap::Bytes>& contributions)
    : connections_(connections),
      sequence_(sequence),
      deadline_(deadline),
      contributions_(contributions),
      readers_(connections.size(), FrameReader(kMaxContributionBytes + kGatherFieldBytes)) {
  for (std::size_t rank = 1; rank < connections.size(); ++rank) {
    pending_.push_back(static_cast<int>(rank));
  }
}

Status Collection::run(std::chrono::milliseconds timeout) {
  while (!pending_.empty()) {
    // Looked at before the clock: whoever is there in time counts, however late this rank looks.
    EP_TRY(serve_once());
    if (!pending_.empty() && deadline_.expired()) {
      Status status(Errc::kPeerTimeout, "bootstrap: all_gather: did not come within " +
                                            text_of(timeout) + ": rank " + list_ranks(pending_));
      return status.set_peer(pending_.front());
    }
  }
  return Status();
}

Status Collection::serve_once() {
  std::vector<pollfd> entries;
  for (int rank : pending_) {
    const int fd = connections_[static_cast<std::size_t>(rank)].get();
    entries.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
  static_cast<void>(::poll(entries.data(), entries.size(), deadline_.remaining_ms()));
  const std::vector<int> looked_at = pending_;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].revents != 0) EP_TRY(advance(looked_at[i]));
  }
  return Status();
}

Status Collection::advance(int rank) {
  FrameReader& reader = readers_[static_cast<std::size_t>(rank)];
  const auto progress = reader.read_from(connections_[static_cast<std::size_t>(rank)].get());
  if (!progress.ok()) return about_rank(rank, progress.status());
  if (*progress == FrameReader::Progress::kClosed) {
    return about_rank(rank, Status(Errc::kPeerTimeout, "died or left (closed the connection)"));
  }
  if (*progress == FrameReader::Progress::kIncomplete) return Status();
  std::erase(pending_, rank);
  return take(rank, reader.take());
}

Status Collection::take(int rank, Frame frame) {
  if (frame.kind == FrameKind::kError) return about_rank(rank, decode_status(frame.payload));
  if (frame.kind != FrameKind::kGather || frame.sequence != sequence_ ||
      frame.payload.size() < kGatherFieldBytes) {
    return about_rank(
        rank,
        Status(Errc::kFabric, "frame of kind " + std::to_string(static_cast<int>(frame.kind)) +
                                  ", sequence " + std::to_string(frame.sequence) +
                                  ", expected a contribution to " + std::to_string(sequence_)));
  }
  const auto left_ms = base::ByteReader(frame.payload).get<std::int64_t>();
  deadline_ = base::Deadline::earlier(
      deadline_,
      base::Deadline::after(std::chrono::milliseconds(std::max<std::int64_t>(left_ms, 0))));
  frame.payload.erase(frame.payload.begin(), frame.payload.begin() + kGatherFieldBytes);
  contributions_[static_cast<std::size_t>(rank)] = std::move(frame.payload);
  return Status();
}

}  // namespace

Bootstrap::Bytes encode_result(const std::vector<Bootstrap::Bytes>& contributions) {
  base::ByteWriter writer;
  writer.put(static_cast<std::uint32_t>(contributions.size()));
  for (const Bootstrap::Bytes& part : contributions) writer.put(std::uint64_t{part.size()});
  for (const Bootstrap::Bytes& part : contributions) writer.put_bytes(part);
  return writer.take();
}

Result<std::vector<Bootstrap::Bytes>> decode_result(std::span<const std::byte> payload,
                                                    int num_ranks) {
  const Status malformed(Errc::kFabric, "bootstrap: malformed result of all_gather");
  base::ByteReader reader(payload);
  if (reader.get<std::uint32_t>() != static_cast<std::uint32_t>(num_ranks)) return malformed;
  std::vector<std::size_t> sizes;
  for (int rank = 0; rank < num_ranks && !reader.has_failed(); ++rank) {
    sizes.push_back(static_cast<std::size_t>(reader.get<std::uint64_t>()));
  }
  std::vector<Bootstrap::Bytes> contributions;
  for (std::size_t size : sizes) {
    const std::span<const std::byte> part = reader.get_bytes(size);
    contributions.emplace_back(part.begin(), part.end());
  }
  if (!reader.is_complete()) return malformed;
  return contributions;
}

std::vector<int> HubBootstrap::open_fds() const {
  std::vector<int> fds;
  for (const base::UniqueFd& connection : connections_) fds.push_back(connection.get());
  return fds;
}

Result<std::vector<Bootstrap::Bytes>> HubBootstrap::all_gather(std::span<const std::byte> mine,
                                                               std::chrono::milliseconds timeout) {
  if (!failure_.ok()) return failure_;
  ++sequence_;
  Result<std::vector<Bytes>> result = gather_and_send(mine, timeout);
  if (!result.ok()) {
    failure_ = result.status();
    const Frame verdict{
        .kind = FrameKind::kError, .sequence = sequence_, .payload = encode_status(failure_)};
    // Best effort: a rank that cannot be told runs into its deadline.
    send_to_each(open_fds(), encode(verdict), base::Deadline::after(kErrorTimeout));
  }
  return result;
}

Result<std::vector<Bootstrap::Bytes>> HubBootstrap::gather_and_send(
    std::span<const std::byte> mine, std::chrono::milliseconds timeout) {
  EP_TRY(check_contribution(mine.size()));
  const base::Deadline deadline = base::Deadline::after(timeout);
  std::vector<Bytes> contributions(connections_.size());
  contributions[0].assign(mine.begin(), mine.end());
  EP_TRY(Collection(connections_, sequence_, deadline, contributions).run(timeout));
  EP_TRY(send_result(contributions, base::Deadline::after(timeout)));
  return contributions;
}

Status HubBootstrap::send_result(const std::vector<Bytes>& contributions,
                                 base::Deadline deadline) const {
  Frame frame{
      .kind = FrameKind::kResult, .sequence = sequence_, .payload = encode_result(contributions)};
  if (frame.payload.size() > kMaxResultBytes) {
    return Status(Errc::kInvalidArgument,
                  "bootstrap: all_gather of " + std::to_string(frame.payload.size()) +
                      " bytes in all, at most " + std::to_string(kMaxResultBytes) + " allowed");
  }
  const std::vector<Status> statuses = send_to_each(open_fds(), encode(frame), deadline);
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    if (!statuses[rank].ok()) return about_rank(static_cast<int>(rank), statuses[rank]);
  }
  return Status();
}

Result<std::vector<Bootstrap::Bytes>> MemberBootstrap::all_gather(
    std::span<const std::byte> mine, std::chrono::milliseconds timeout) {
  if (!failure_.ok()) return failure_;
  ++sequence_;
  Result<std::vector<Bytes>> result = exchange(mine, timeout);
  failure_ = result.status();
  return result;
}

Result<std::vector<Bootstrap::Bytes>> MemberBootstrap::exchange(std::span<const std::byte> mine,
                                                                std::chrono::milliseconds timeout) {
  const base::Deadline deadline = base::Deadline::after(timeout);
  const base::Deadline verdict_deadline = deadline.plus(kVerdictGrace);
  Frame frame{.kind = FrameKind::kGather, .sequence = sequence_, .payload = {}};
  const Status acceptable = check_contribution(mine.size());
  if (acceptable.ok()) {
    frame.payload = base::ByteWriter().put(std::int64_t{timeout.count()}).put_bytes(mine).take();
  } else {
    // The others wait for this rank: they hear of it through rank 0.
    frame.kind = FrameKind::kError;
    frame.payload = encode_status(acceptable);
  }
  const Status sent = send_all(hub_.get(), encode(frame), deadline);
  // Also where sending failed: rank 0 may have said why it no longer listens.
  const Result<Frame> answer = receive_frame(hub_.get(), kMaxResultBytes, verdict_deadline);
  if (!answer.ok()) return about_rank(0, sent.ok() ? answer.status() : sent);
  if (answer->kind == FrameKind::kError) return decode_status(answer->payload);
  if (answer->kind != FrameKind::kResult || answer->sequence != sequence_) {
    return about_rank(0, Status(Errc::kFabric, "frame that is no result"));
  }
  return decode_result(answer->payload, num_ranks_);
}

}  // namespace ep::fabric
