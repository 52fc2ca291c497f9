// SPDX-License-Identifier: Apache-2.0
// A ring of ranks, each of which writes to the next one and reads from it.
#include "fabric/ofi/probe.h"

#include "base/check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace ep::fabric {
namespace {

constexpr int kNumWrites = 256;
/// Sizes take turns, so that a short write may overtake a long one.
constexpr std::array<std::int64_t, 4> kWriteBytes = {4096, 8, 1000, 64};
constexpr std::int64_t kCellBytes = 4096;
constexpr std::int64_t kRegionBytes = kNumWrites * kCellBytes;
/// Polls without an event before a rank lets others run, and before it sleeps.
constexpr int kPollsBeforeYield = 50;
constexpr int kPollsBeforeSleep = 1000;
constexpr std::chrono::milliseconds kSleep{1};
constexpr std::chrono::milliseconds kStopTime{50};

enum class Kind : std::uint32_t {
  kMeet = 1,
  kWrite = 2,
  kDone = 3,
  kStop = 4,  ///< the sender has seen enough: nobody needs to wait for the deadline
};

/// An immediate: kind (4 bits), number of the write (12), sender (16).
struct Imm {
  Kind kind = Kind::kMeet;
  int number = 0;
  int sender = 0;
};
constexpr int kNumberBits = 12;
constexpr int kSenderBits = 16;
static_assert(kNumWrites <= 1 << kNumberBits);

std::uint32_t encode(const Imm& imm) {
  const auto sender = static_cast<std::uint32_t>(imm.sender) & ((1u << kSenderBits) - 1);
  return static_cast<std::uint32_t>(imm.kind) << (kNumberBits + kSenderBits) |
         static_cast<std::uint32_t>(imm.number) << kSenderBits | sender;
}

Imm decode(std::uint32_t bits) {
  return {.kind = static_cast<Kind>(bits >> (kNumberBits + kSenderBits)),
          .number = static_cast<int>((bits >> kSenderBits) & ((1u << kNumberBits) - 1)),
          .sender = static_cast<int>(bits & ((1u << kSenderBits) - 1))};
}

std::int64_t bytes_of(int number) {
  return kWriteBytes[static_cast<std::size_t>(number) % kWriteBytes.size()];
}

/// Every other write but the last has no immediate: the next one speaks for it, too.
bool has_immediate(int number) { return number % 2 == 1 || number == kNumWrites - 1; }

std::byte pattern_of(int context, int sender, int number) {
  // Never the zero of a fresh region.
  return static_cast<std::byte>(1 + (context * 31 + sender * 7 + number) % 255);
}

/// Window 0 of the test: [what this rank writes | where the previous one writes | what is read].
struct Regions {
  static constexpr std::int64_t kSource = 0;
  static constexpr std::int64_t kTarget = kRegionBytes;
  static constexpr std::int64_t kRead = 2 * kRegionBytes;
  static_assert(kRead + kCellBytes == kProbeBytes);
};

class Probe {
 public:
  Probe(Transport& transport, std::span<std::byte> scratch, base::Deadline deadline)
      : transport_(transport),
        deadline_(deadline),
        memory_(scratch),
        next_((transport.rank() + 1) % transport.num_ranks()),
        previous_((transport.rank() + transport.num_ranks() - 1) % transport.num_ranks()) {}

  Status exchange_windows(Bootstrap& bootstrap);
  Status run();
  /// After a failure: tells the peers, as far as the network does.
  void stop();
  bool is_ordered() const { return is_ordered_; }

 private:
  Status run_context(int context);
  void fill();
  std::vector<int> met_peers() const;
  Status meet();
  Status write_all();
  Status read_back();
  Status finish();

  Status post(const WriteOp& op);
  WriteOp message(int peer, Imm imm) const;
  Status send(int peer, Imm imm);
  Posted send_once(int peer, Imm imm);
  template <class Condition>
  Status wait_until(Condition condition, const char* what, int peer);
  Status look();
  Status handle(const NetEvent& event);
  Status handle_arrival(const NetEvent& event);
  Status handle_write(int number);
  bool has_landed(int number) const;
  Status refuse(const std::string& seen) const;
  Status failed_to(const char* what, int peer) const;

  Transport& transport_;
  const base::Deadline deadline_;
  const std::span<std::byte> memory_;
  const int next_;
  const int previous_;
  WindowId window_ = 0;
  bool is_ordered_ = true;
  // Of the context in hand:
  int context_ = 0;
  std::set<int> heard_;
  int num_posted_ = 0;
  int num_completed_ = 0;
  int num_arrived_ = 0;
  int last_number_ = -1;
  int num_read_ = 0;
  bool is_previous_done_ = false;
  int num_idle_ = 0;
};

Status Probe::exchange_windows(Bootstrap& bootstrap) {
  EP_TRY_ASSIGN(window_, transport_.add_window(memory_));
  EP_TRY_ASSIGN(const auto descriptions,
                bootstrap.all_gather(transport_.describe_window(window_),
                                     std::chrono::milliseconds(deadline_.remaining_ms())));
  for (int peer = 0; peer < transport_.num_ranks(); ++peer) {
    if (peer == transport_.rank()) continue;
    EP_TRY(transport_.set_peer_window(peer, window_, descriptions[static_cast<std::size_t>(peer)]));
  }
  return Status();
}

Status Probe::run() {
  for (int context = 0; context < transport_.traits().num_contexts; ++context) {
    EP_TRY(run_context(context));
  }
  return Status();
}

void Probe::stop() {
  const base::Deadline deadline = base::Deadline::after(kStopTime);
  for (int peer : met_peers()) {
    while (send_once(peer, {.kind = Kind::kStop}) == Posted::kBusy && !deadline.expired()) {
      if (!look().ok()) std::this_thread::yield();
    }
  }
  while (num_completed_ < num_posted_ && !deadline.expired()) {
    if (!look().ok()) std::this_thread::yield();
  }
}

/// Nobody leaves a context before its peers need nothing of it any more: on a network that only
/// works while it is polled they could wait for ever.
Status Probe::run_context(int context) {
  context_ = context;
  heard_.clear();
  num_posted_ = num_completed_ = num_arrived_ = num_read_ = 0;
  last_number_ = -1;
  is_previous_done_ = false;
  fill();
  EP_TRY(meet());
  EP_TRY(write_all());
  EP_TRY(read_back());
  return finish();
}

void Probe::fill() {
  for (int number = 0; number < kNumWrites; ++number) {
    std::memset(memory_.data() + Regions::kSource + number * kCellBytes,
                static_cast<int>(pattern_of(context_, transport_.rank(), number)),
                static_cast<std::size_t>(kCellBytes));
  }
  std::memset(memory_.data() + Regions::kTarget, 0,
              static_cast<std::size_t>(kRegionBytes + kCellBytes));
}

std::vector<int> Probe::met_peers() const {
  std::vector<int> peers;
  for (int peer = 0; peer < transport_.num_ranks(); ++peer) {
    const bool is_met =
        transport_.num_ranks() <= kMaxMetRanks || peer == next_ || peer == previous_;
    if (is_met && peer != transport_.rank()) peers.push_back(peer);
  }
  return peers;
}

/// Also tells that the peer has cleared its target.
Status Probe::meet() {
  const std::vector<int> peers = met_peers();
  for (int peer : peers) EP_TRY(send(peer, {.kind = Kind::kMeet}));
  for (int peer : peers) {
    EP_TRY(wait_until([&] { return heard_.contains(peer); }, "no immediate", peer));
  }
  return Status();
}

Status Probe::write_all() {
  for (int number = 0; number < kNumWrites; ++number) {
    WriteOp op = {.peer = next_,
                  .context = context_,
                  .src = {window_, Regions::kSource + number * kCellBytes},
                  .dst = {window_, Regions::kTarget + number * kCellBytes},
                  .bytes = bytes_of(number)};
    if (has_immediate(number)) {
      op.immediate = encode({.kind = Kind::kWrite, .number = number, .sender = transport_.rank()});
    }
    EP_TRY(post(op));
  }
  const int num_expected = kNumWrites / 2;
  return wait_until([&] { return num_arrived_ == num_expected; }, "writes are missing", previous_);
}

Status Probe::read_back() {
  const ReadOp op = {.peer = next_,
                     .context = context_,
                     .dst = {window_, Regions::kRead},
                     .src = {window_, Regions::kSource + kCellBytes},
                     .bytes = kCellBytes};
  Posted posted = transport_.read(op);
  while (posted == Posted::kBusy) {
    if (deadline_.expired()) return failed_to("no room for a read", next_);
    EP_TRY(look());
    posted = transport_.read(op);
  }
  if (posted == Posted::kFailed) return transport_.failure(context_);
  EP_TRY(wait_until([&] { return num_read_ == 1; }, "no answer to a read", next_));
  const auto first = memory_.begin() + Regions::kRead;
  const std::byte expected = pattern_of(context_, next_, 1);
  const bool is_right = std::all_of(first, first + kCellBytes,
                                    [expected](std::byte value) { return value == expected; });
  return is_right ? Status() : refuse("a read was complete before its bytes were here");
}

Status Probe::finish() {
  EP_TRY(send(next_, {.kind = Kind::kDone}));
  EP_TRY(wait_until([&] { return is_previous_done_; }, "no end of the test", previous_));
  return wait_until([&] { return num_completed_ == num_posted_; }, "writes do not complete", next_);
}

WriteOp Probe::message(int peer, Imm imm) const {
  imm.sender = transport_.rank();
  return {.peer = peer,
          .context = context_,
          .src = {window_, Regions::kSource},
          .dst = {window_, Regions::kTarget},
          .bytes = 0,
          .immediate = encode(imm)};
}

Status Probe::send(int peer, Imm imm) { return post(message(peer, imm)); }

Posted Probe::send_once(int peer, Imm imm) {
  const Posted posted = transport_.write(message(peer, imm));
  num_posted_ += posted == Posted::kYes ? 1 : 0;
  return posted;
}

Status Probe::post(const WriteOp& op) {
  Posted posted = transport_.write(op);
  while (posted == Posted::kBusy) {
    if (deadline_.expired()) return failed_to("no connection", op.peer);
    EP_TRY(look());
    posted = transport_.write(op);
  }
  if (posted == Posted::kFailed) return transport_.failure(context_);
  ++num_posted_;
  return Status();
}

template <class Condition>
Status Probe::wait_until(Condition condition, const char* what, int peer) {
  while (!condition()) {
    if (deadline_.expired()) return failed_to(what, peer);
    EP_TRY(look());
  }
  return Status();
}

Status Probe::look() {
  std::array<NetEvent, 32> events;
  const int num = transport_.poll(context_, events);
  for (int i = 0; i < num; ++i) EP_TRY(handle(events[static_cast<std::size_t>(i)]));
  num_idle_ = num > 0 ? 0 : num_idle_ + 1;
  if (num_idle_ > kPollsBeforeSleep) {
    transport_.sleep(context_, kSleep);
  } else if (num_idle_ > kPollsBeforeYield) {
    std::this_thread::yield();
  }
  return Status();
}

Status Probe::handle(const NetEvent& event) {
  switch (event.kind) {
    case NetEvent::Kind::kSourceFree:
      ++num_completed_;
      return Status();
    case NetEvent::Kind::kReadDone:
      ++num_read_;
      return Status();
    case NetEvent::Kind::kArrival:
      return handle_arrival(event);
    case NetEvent::Kind::kFailure:
      return transport_.failure(context_);
  }
  return Status();
}

Status Probe::handle_arrival(const NetEvent& event) {
  const Imm imm = decode(event.immediate);
  if (imm.sender != (event.peer & ((1 << kSenderBits) - 1))) {
    return refuse("an immediate of rank " + std::to_string(imm.sender) + " came as one of rank " +
                  std::to_string(event.peer));
  }
  switch (imm.kind) {
    case Kind::kMeet:
      heard_.insert(event.peer);
      return Status();
    case Kind::kWrite:
      return handle_write(imm.number);
    case Kind::kDone:
      is_previous_done_ = true;
      return Status();
    case Kind::kStop:
      return Status(Errc::kAborted,
                    "ofi: rank " + std::to_string(event.peer) + " gave up the start-up test")
          .set_peer(event.peer);
  }
  return refuse("an immediate arrived as " + std::to_string(event.immediate));
}

Status Probe::handle_write(int number) {
  if (number >= kNumWrites || !has_landed(number)) {
    return refuse("the immediate of write " + std::to_string(number) + " came before its " +
                  std::to_string(bytes_of(number)) + " bytes");
  }
  for (int earlier = last_number_ + 1; earlier < number; ++earlier) {
    is_ordered_ = is_ordered_ && has_landed(earlier);
  }
  is_ordered_ = is_ordered_ && number > last_number_;
  last_number_ = std::max(last_number_, number);
  ++num_arrived_;
  return Status();
}

bool Probe::has_landed(int number) const {
  const auto first = memory_.begin() + Regions::kTarget + number * kCellBytes;
  const std::byte expected = pattern_of(context_, previous_, number);
  return std::all_of(first, first + bytes_of(number),
                     [expected](std::byte value) { return value == expected; });
}

Status Probe::refuse(const std::string& seen) const {
  return Status(Errc::kUnsupported, "ofi: provider " + transport_.traits().name +
                                        " cannot be used: " + seen + " (context " +
                                        std::to_string(context_) + ")");
}

Status Probe::failed_to(const char* what, int peer) const {
  return Status(Errc::kPeerTimeout, "ofi: start-up test, context " + std::to_string(context_) +
                                        ": " + what + ": rank " + std::to_string(peer))
      .set_peer(peer);
}

}  // namespace

Result<ProbeFindings> probe_transport(Transport& transport,
                                      Bootstrap& bootstrap,
                                      std::span<std::byte> scratch,
                                      base::Deadline deadline) {
  if (transport.num_ranks() == 1) return ProbeFindings{.is_ordered = true};
  EP_CHECK(scratch.size() == static_cast<std::size_t>(kProbeBytes));
  Probe probe(transport, scratch, deadline);
  EP_TRY(probe.exchange_windows(bootstrap));
  if (Status status = probe.run(); !status.ok()) {
    probe.stop();
    return status;
  }
  return ProbeFindings{.is_ordered = probe.is_ordered()};
}

}  // namespace ep::fabric
