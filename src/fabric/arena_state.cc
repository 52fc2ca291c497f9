// SPDX-License-Identifier: Apache-2.0
// Adding segments, and the service thread that maps those of the peers.
#include "fabric/arena_state.h"

#include "base/blocked_signals.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "fabric/bootstrap/rank_list.h"

#include <algorithm>
#include <errno.h>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace ep::fabric {
namespace {

/// The service thread answers with this patience. A peer's queue holds many answers and a segment
/// waits for its own answer, so a full queue means a peer that is not alive.
constexpr std::chrono::milliseconds kAnswerTimeout{1000};

std::size_t table_index(int peer, int segment) {
  return static_cast<std::size_t>(peer) * kMaxSegments + static_cast<std::size_t>(segment);
}

Status peer_failure(const char* what, const std::vector<int>& peers) {
  Status status(Errc::kPeerTimeout, std::string("arena: ") + what + ": rank " + list_ranks(peers));
  return status.set_peer(peers.front());
}

}  // namespace

ArenaState::ArenaState(int rank,
                       std::vector<ArenaIdentity> identities,
                       std::vector<ArenaConnection> connections,
                       std::unique_ptr<SegmentMemory> memory)
    : rank_(rank),
      identities_(std::move(identities)),
      connections_(std::move(connections)),
      table_(std::make_unique<std::atomic<std::byte*>[]>(identities_.size() * kMaxSegments)),
      memory_(std::move(memory)),
      mappings_(identities_.size() * kMaxSegments) {}

ArenaState::~ArenaState() {
  if (service_.joinable()) {
    const std::uint64_t one = 1;
    EP_CHECK(::write(stop_.get(), &one, sizeof(one)) == sizeof(one));
    service_.join();
  }
  unregister_arena(identities_[static_cast<std::size_t>(rank_)].token);
  const ArenaMessage goodbye{.kind = ArenaMessageKind::kGoodbye, .rank = rank_};
  const base::Deadline at_once = base::Deadline::after(std::chrono::milliseconds(0));
  // A child process may hold copies of the sockets; peers must see the end all the same.
  for (int peer : peers()) {
    static_cast<void>(send_message(socket_of(peer), goodbye, -1, at_once).ok());
    static_cast<void>(::shutdown(socket_of(peer), SHUT_RDWR));
  }
}

Status ArenaState::start() {
  if (peers().empty()) return Status();
  stop_ = base::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_.is_open()) return base::errno_status("arena: eventfd", errno);
  const base::BlockedSignals blocked;
  try {
    service_ = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    return base::errno_status("arena: service thread", error.code().value());
  }
  return Status();
}

std::vector<int> ArenaState::peers() const {
  std::vector<int> peers;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (peer != rank_ && is_near(peer)) peers.push_back(peer);
  }
  return peers;
}

std::atomic<std::byte*>& ArenaState::entry(int peer, int segment) const {
  return table_[table_index(peer, segment)];
}

std::byte* ArenaState::base(int peer, int segment) const {
  EP_CHECK(peer >= 0 && peer < num_ranks() && segment >= 0 && segment < kMaxSegments);
  return entry(peer, segment).load(std::memory_order_acquire);  // [sync:segment-base]
}

void ArenaState::stand_in(int rank, std::byte* base) {
  EP_CHECK(!is_near(rank));
  entry(rank, 0).store(base, std::memory_order_release);  // [sync:segment-base]
}

void ArenaState::mark_remote_gone(int rank) {
  EP_CHECK(!is_near(rank));
  // [sync:gone] release: whatever of the rank has landed here.
  memory_->gone_flags()[static_cast<std::size_t>(rank)].store(1, std::memory_order_release);
}

/// First where roles read it: what the host knows of, they know of.
Status ArenaState::publish(int peer, int segment, std::byte* base) {
  EP_TRY(memory_->publish(peer, segment, base));
  entry(peer, segment).store(base, std::memory_order_release);  // [sync:segment-base]
  return Status();
}

std::shared_ptr<Mapping>& ArenaState::mapping(int peer, int segment) {
  return mappings_[table_index(peer, segment)];
}

// relaxed: only this thread's own decisions follow from it.
bool ArenaState::is_gone(int peer) const {
  return gone_flags()[static_cast<std::size_t>(peer)].load(std::memory_order_relaxed) != 0;
}

Result<int> ArenaState::begin_announcement(const std::shared_ptr<Mapping>& new_mapping) {
  const std::lock_guard lock(mutex_);
  if (next_segment_ == kMaxSegments) {
    return Status(Errc::kOutOfMemory,
                  "arena: all " + std::to_string(kMaxSegments) + " segments used");
  }
  const int segment = next_segment_++;
  mapping(rank_, segment) = new_mapping;
  announcement_ = {.segment = segment,
                   .answers = std::vector<Answer>(identities_.size(), Answer::kNone),
                   .error = 0};
  announcement_.answers[static_cast<std::size_t>(rank_)] = Answer::kMapped;
  return segment;
}

Result<Segment> ArenaState::add_segment(std::int64_t bytes, base::Deadline deadline) {
  const std::lock_guard adding(adding_);
  if (bytes <= 0) {
    return Status(Errc::kInvalidArgument,
                  "arena: segment of " + std::to_string(bytes) + " bytes, expected above 0");
  }
  EP_TRY_ASSIGN(const SegmentMemory::Created created, memory_->create(bytes, total_bytes()));
  EP_TRY_ASSIGN(const int segment, begin_announcement(created.mapping));
  Status status = publish(rank_, segment, created.mapping->base());
  if (status.ok()) status = announce(segment, created, deadline);
  if (status.ok()) status = await_answers(deadline);
  if (!status.ok()) {
    withdraw(segment);
    return status;
  }
  return Segment{.id = segment,
                 .base = created.mapping->base(),
                 .bytes = created.mapping->bytes(),
                 .keep_alive = created.mapping};
}

Status ArenaState::announce(int segment,
                            const SegmentMemory::Created& created,
                            base::Deadline deadline) {
  const ArenaIdentity& self = identities_[static_cast<std::size_t>(rank_)];
  register_segment(self.token, segment, created.mapping);
  for (int peer : peers()) {
    if (is_gone(peer)) continue;
    const bool is_shared = identities_[static_cast<std::size_t>(peer)].is_same_process(self);
    ArenaMessage message{
        .kind = is_shared ? ArenaMessageKind::kSharedSegment : ArenaMessageKind::kSegment,
        .rank = rank_,
        .segment = segment,
        .error = 0,
        .bytes = created.mapping->bytes(),
        .token = self.token};
    int fd = -1;
    if (!is_shared && created.handle.fabric) {
      message.kind = ArenaMessageKind::kFabricSegment;
      message.fabric = *created.handle.fabric;
    } else if (!is_shared) {
      fd = created.handle.fd.get();
    }
    const Status sent = send_message(socket_of(peer), message, fd, deadline);
    // Closed: the service thread is about to notice, and await_answers() says who is to blame.
    const bool is_closed = sent.native_code() == EPIPE || sent.native_code() == ECONNRESET;
    if (!sent.ok() && !is_closed) {
      Status status(sent.code(), "arena: rank " + std::to_string(peer) + ": " + sent.message(),
                    sent.native_code());
      return status.set_peer(peer);
    }
  }
  return Status();
}

/// A rank that gave up because another one died says goodbye: the dead one gets the blame. Needs
/// mutex_.
Status ArenaState::departed_failure() const {
  if (!died_.empty()) return peer_failure("died", died_);
  return peer_failure("left", left_);
}

Status ArenaState::await_answers(base::Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.time_point(), [this] { return has_all_answers(); });
  Status status = judge_answers();
  announcement_ = {};
  return status;
}

/// Also true once one of them will never come.
bool ArenaState::has_all_answers() const {
  const auto has_answered = [this](int peer) {
    return announcement_.answers[static_cast<std::size_t>(peer)] != Answer::kNone;
  };
  const std::vector<int> all = peers();
  return std::any_of(all.begin(), all.end(), [this](int peer) { return is_gone(peer); }) ||
         std::all_of(all.begin(), all.end(), has_answered);
}

Status ArenaState::judge_answers() const {
  if (!died_.empty() || !left_.empty()) return departed_failure();
  std::vector<int> silent;
  std::vector<int> refusing;
  for (int peer : peers()) {
    const Answer answer = announcement_.answers[static_cast<std::size_t>(peer)];
    if (answer == Answer::kNone) silent.push_back(peer);
    if (answer == Answer::kRefused) refusing.push_back(peer);
  }
  if (!silent.empty()) return peer_failure("did not map the segment within the deadline", silent);
  if (refusing.empty()) return Status();
  const std::string what = "arena: could not map the segment: rank " + list_ranks(refusing);
  if (announcement_.error == 0) return Status(Errc::kFabric, what);
  return memory_->map_failure(what, announcement_.error);
}

/// The id stays used: a peer may have mapped it.
void ArenaState::withdraw(int segment) {
  entry(rank_, segment).store(nullptr, std::memory_order_release);  // [sync:segment-base]
  const Status published = memory_->publish(rank_, segment, nullptr);
  if (!published.ok()) base::log(LogLevel::kError, rank_, published.message());
  const std::lock_guard lock(mutex_);
  announcement_ = {};
  mapping(rank_, segment).reset();
}

/// Peers whose segment 0 is not mapped here.
std::vector<int> ArenaState::peers_without_control() const {
  std::vector<int> all = peers();
  std::erase_if(all, [this](int peer) { return mappings_[table_index(peer, 0)] != nullptr; });
  return all;
}

Status ArenaState::await_control_segments(base::Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.time_point(), [this] {
    return peers_without_control().empty() || !died_.empty() || !left_.empty();
  });
  const std::vector<int> missing = peers_without_control();
  if (missing.empty()) return Status();
  if (!died_.empty() || !left_.empty()) return departed_failure();
  return peer_failure("did not publish its control segment within the deadline", missing);
}

std::optional<Location> ArenaState::locate(const void* address, std::int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  for (int segment = 0; segment < next_segment_; ++segment) {
    const std::shared_ptr<Mapping>& own = mappings_[table_index(rank_, segment)];
    if (own == nullptr || !own->contains(address, bytes)) continue;
    return Location{.segment = segment,
                    .offset = static_cast<const std::byte*>(address) - own->base()};
  }
  return std::nullopt;
}

std::int64_t ArenaState::total_bytes() const {
  const std::lock_guard lock(mutex_);
  std::int64_t total = 0;
  for (int segment = 0; segment < next_segment_; ++segment) {
    const std::shared_ptr<Mapping>& own = mappings_[table_index(rank_, segment)];
    if (own != nullptr) total += own->bytes();
  }
  return total;
}

int ArenaState::num_segments() const {
  const std::lock_guard lock(mutex_);
  return next_segment_;
}

/// The service thread: sleeps in poll() until a peer says something, dies, or this arena ends.
void ArenaState::serve() {
  while (true) {
    std::vector<pollfd> entries = {{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    for (int peer = 0; peer < num_ranks(); ++peer) {
      const ArenaConnection& connection = connections_[static_cast<std::size_t>(peer)];
      // poll() skips negative descriptors.
      const bool is_live = peer != rank_ && is_near(peer) && !is_gone(peer);
      entries.push_back(
          {.fd = is_live ? connection.socket.get() : -1, .events = POLLIN, .revents = 0});
      entries.push_back(
          {.fd = is_live ? connection.process.get() : -1, .events = POLLIN, .revents = 0});
    }
    static_cast<void>(::poll(entries.data(), entries.size(), -1));
    if (entries[0].revents != 0) return;
    for (int peer = 0; peer < num_ranks(); ++peer) {
      const std::size_t at = 1 + 2 * static_cast<std::size_t>(peer);
      if (entries[at].revents != 0) serve_peer(peer);
      if (entries[at + 1].revents != 0) mark_gone(peer, Departure::kDied);
    }
  }
}

void ArenaState::serve_peer(int peer) {
  while (!is_gone(peer)) {
    Result<Received> received = receive_message(socket_of(peer));
    if (!received.ok()) {
      base::log(LogLevel::kError, rank_,
                "rank " + std::to_string(peer) + ": " + received.status().message());
      return mark_gone(peer, Departure::kDied);
    }
    if (received->state == ReceiveState::kNothing) return;
    if (received->state == ReceiveState::kClosed || !handle(peer, *received)) {
      return mark_gone(peer, Departure::kDied);
    }
  }
}

/// False where the peer breaks the protocol or cannot be answered.
bool ArenaState::handle(int peer, Received& received) {
  const ArenaMessage& message = received.message;
  switch (message.kind) {
    case ArenaMessageKind::kSegment:
    case ArenaMessageKind::kSharedSegment:
      return map_segment(peer, message, {.fd = std::move(received.fd), .fabric = {}});
    case ArenaMessageKind::kFabricSegment:
      return map_segment(peer, message, {.fd = {}, .fabric = message.fabric});
    case ArenaMessageKind::kMapped:
    case ArenaMessageKind::kNotMapped:
      return note_answer(peer, message);
    case ArenaMessageKind::kGoodbye:
      mark_gone(peer, Departure::kLeft);
      return true;
    case ArenaMessageKind::kHello:
      break;
  }
  base::log(LogLevel::kError, rank_, "arena: second hello of rank " + std::to_string(peer));
  return false;
}

Result<std::shared_ptr<Mapping>> ArenaState::mapping_of(int peer,
                                                        const ArenaMessage& message,
                                                        const SegmentHandle& memory) {
  if (message.kind == ArenaMessageKind::kSharedSegment) {
    const ArenaToken& token = identities_[static_cast<std::size_t>(peer)].token;
    std::shared_ptr<Mapping> shared = find_segment(token, message.segment);
    if (shared == nullptr) return Status(Errc::kFabric, "arena: no such segment");
    return shared;
  }
  return memory_->map(memory, message.bytes);
}

/// Only the service thread stores mappings of peers, so that a check lasts until it stores.
Status ArenaState::take_segment(int peer,
                                const ArenaMessage& message,
                                const SegmentHandle& memory) {
  EP_TRY_ASSIGN(std::shared_ptr<Mapping> mapped, mapping_of(peer, message, memory));
  EP_TRY(publish(peer, message.segment, mapped->base()));
  const std::lock_guard lock(mutex_);
  mapping(peer, message.segment) = std::move(mapped);
  changed_.notify_all();
  return Status();
}

bool ArenaState::is_mapped(int peer, int segment) const {
  const std::lock_guard lock(mutex_);
  return mappings_[table_index(peer, segment)] != nullptr;
}

bool ArenaState::map_segment(int peer, const ArenaMessage& message, const SegmentHandle& memory) {
  if (message.segment < 0 || message.segment >= kMaxSegments || message.bytes <= 0) return false;
  if (is_mapped(peer, message.segment)) return false;
  ArenaMessage answer{.kind = ArenaMessageKind::kMapped, .rank = rank_, .segment = message.segment};
  const Status status = take_segment(peer, message, memory);
  if (!status.ok()) {
    // The owner hears of it, or has withdrawn the segment.
    base::log(LogLevel::kInfo, rank_, status.message());
    answer.kind = ArenaMessageKind::kNotMapped;
    answer.error = static_cast<std::int32_t>(status.native_code());
  }
  return send_message(socket_of(peer), answer, -1, base::Deadline::after(kAnswerTimeout)).ok();
}

bool ArenaState::note_answer(int peer, const ArenaMessage& message) {
  const std::lock_guard lock(mutex_);
  // A late answer, to a segment that was withdrawn.
  if (announcement_.answers.empty() || message.segment != announcement_.segment) return true;
  const bool is_mapped = message.kind == ArenaMessageKind::kMapped;
  announcement_.answers[static_cast<std::size_t>(peer)] =
      is_mapped ? Answer::kMapped : Answer::kRefused;
  if (!is_mapped) announcement_.error = message.error;
  changed_.notify_all();
  return true;
}

/// Only the first word counts: after a goodbye the connection ends too.
void ArenaState::mark_gone(int peer, Departure departure) {
  const std::lock_guard lock(mutex_);
  if (is_gone(peer)) return;
  // [sync:gone] release: after the end of the connection was read, so after all that the peer
  // wrote.
  memory_->gone_flags()[static_cast<std::size_t>(peer)].store(1, std::memory_order_release);
  (departure == Departure::kDied ? died_ : left_).push_back(peer);
  changed_.notify_all();
}

}  // namespace ep::fabric
