// SPDX-License-Identifier: Apache-2.0
// Rank 0's side of the rendezvous.
#include "base/check.h"
#include "base/log.h"
#include "fabric/bootstrap/rank_list.h"
#include "fabric/bootstrap/rendezvous.h"
#include "fabric/bootstrap/socket.h"
#include "fabric/bootstrap/wire.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <poll.h>
#include <set>
#include <string>
#include <utility>

namespace ep::fabric {
namespace {

/// By then a connection must have said hello: strangers must not pile up.
constexpr std::chrono::milliseconds kHelloTimeout{5000};
/// Connections without a hello; beyond it the oldest goes.
constexpr std::size_t kMaxCandidates = 128;
/// How long a rendezvous that has failed waits for the ranks that have not heard of it yet.
constexpr std::chrono::milliseconds kLingerTimeout{2000};
/// For sending the last word to a rank; it is read at once or the rank is not alive.
constexpr std::chrono::milliseconds kVerdictTimeout{1000};

/// A connection that has not said hello.
struct Candidate {
  base::UniqueFd fd;
  Nonce nonce{};
  FrameReader reader{kMaxControlBytes};
  base::Deadline deadline = base::Deadline::after(kHelloTimeout);
};

/// A rank that has come.
struct Member {
  base::UniqueFd fd;
  Hello hello;
};

std::string describe(const Hello& hello) {
  return "process " + std::to_string(hello.pid) + " on " + hello.host_name;
}

void refuse(const base::UniqueFd& fd, const Status& why) {
  const Frame frame{.kind = FrameKind::kError, .sequence = 0, .payload = encode_status(why)};
  // Best effort: a rank that does not read it runs into its deadline.
  static_cast<void>(send_some(fd.get(), encode(frame)).ok());
}

class RendezvousHost {
 public:
  RendezvousHost(const RendezvousSettings& settings,
                 base::UniqueFd listener,
                 base::Deadline deadline)
      : settings_(settings),
        listener_(std::move(listener)),
        deadline_(deadline),
        members_(static_cast<std::size_t>(settings.num_ranks)),
        num_expected_(members_.size() - 1) {}

  Result<std::vector<base::UniqueFd>> run();

 private:
  void serve_once();
  void accept_candidates();
  bool advance(Candidate& candidate);
  void judge(Candidate& candidate, const Frame& frame);
  void admit(base::UniqueFd fd, const Hello& hello, const Nonce& host_nonce);
  Status conflict_of(const Hello& hello) const;
  void fail(Status failure);
  void note_arrival(const Hello& hello);
  bool is_over() const;
  std::vector<int> missing_ranks() const;
  Status timeout_failure() const;
  void tell_everyone(const Frame& verdict);

  const RendezvousSettings& settings_;
  base::UniqueFd listener_;
  /// The earliest of those of all ranks that have come, so that each gets its answer in time.
  base::Deadline deadline_;
  std::deque<std::unique_ptr<Candidate>> candidates_;
  std::vector<Member> members_;
  /// Ranks in conflict with the job: they too hear how it ends.
  std::vector<base::UniqueFd> rejected_;
  /// Processes that have said a valid hello, and how many there must be if the largest size that
  /// was named is right.
  std::set<std::uint64_t> instances_;
  std::size_t num_expected_;
  Status failure_;
  /// Why a connection was refused that may have been a rank; for the message of a timeout.
  std::string last_refusal_;
  int num_refusals_ = 0;
};

Result<std::vector<base::UniqueFd>> RendezvousHost::run() {
  while (!is_over()) serve_once();
  if (failure_.ok() && !missing_ranks().empty()) failure_ = timeout_failure();
  // Before kReady: a rank that goes on to its next bootstrap must not find this one.
  listener_.reset();
  candidates_.clear();
  if (!failure_.ok()) {
    tell_everyone({.kind = FrameKind::kError, .sequence = 0, .payload = encode_status(failure_)});
    return failure_;
  }
  tell_everyone({.kind = FrameKind::kReady, .sequence = 0, .payload = {}});
  std::vector<base::UniqueFd> connections;
  for (Member& member : members_) connections.push_back(std::move(member.fd));
  return connections;
}

bool RendezvousHost::is_over() const {
  if (deadline_.expired()) return true;
  return failure_.ok() ? missing_ranks().empty() : instances_.size() >= num_expected_;
}

std::vector<int> RendezvousHost::missing_ranks() const {
  std::vector<int> missing;
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    if (!members_[rank].fd.is_open()) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

Status RendezvousHost::timeout_failure() const {
  const std::vector<int> missing = missing_ranks();
  std::string message = "bootstrap: " + std::to_string(missing.size()) + " of " +
                        std::to_string(settings_.num_ranks) + " ranks did not come within " +
                        text_of(settings_.timeout) + ": rank " + list_ranks(missing);
  if (!last_refusal_.empty()) message += "; refused: " + last_refusal_;
  Status status(Errc::kPeerTimeout, std::move(message));
  return status.set_peer(missing.front());
}

void RendezvousHost::serve_once() {
  std::vector<pollfd> entries = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
  base::Deadline wake = deadline_;
  for (const auto& candidate : candidates_) {
    entries.push_back({.fd = candidate->fd.get(), .events = POLLIN, .revents = 0});
    wake = base::Deadline::earlier(wake, candidate->deadline);
  }
  static_cast<void>(::poll(entries.data(), entries.size(), wake.remaining_ms()));
  std::deque<std::unique_ptr<Candidate>> waiting;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const bool is_done = entries[i + 1].revents != 0 && advance(*candidates_[i]);
    if (!is_done && !candidates_[i]->deadline.expired())
      waiting.push_back(std::move(candidates_[i]));
  }
  candidates_ = std::move(waiting);
  if (entries[0].revents != 0) accept_candidates();
}

void RendezvousHost::accept_candidates() {
  while (std::optional<base::UniqueFd> fd = accept_from(listener_.get())) {
    if (!is_trusted_user(fd->get())) continue;
    auto candidate = std::make_unique<Candidate>();
    candidate->fd = std::move(*fd);
    fill_random(candidate->nonce);
    const Bootstrap::Bytes challenge =
        encode({.kind = FrameKind::kChallenge,
                .sequence = 0,
                .payload = {candidate->nonce.begin(), candidate->nonce.end()}});
    // A new socket takes these few bytes at once, or its other end has gone.
    const Result<std::size_t> sent = send_some(candidate->fd.get(), challenge);
    if (!sent.ok() || *sent != challenge.size()) continue;
    candidates_.push_back(std::move(candidate));
    if (candidates_.size() > kMaxCandidates) candidates_.pop_front();
  }
}

/// True when nothing more is expected of the connection as a candidate.
bool RendezvousHost::advance(Candidate& candidate) {
  const Result<FrameReader::Progress> progress = candidate.reader.read_from(candidate.fd.get());
  if (!progress.ok()) {
    base::log(LogLevel::kDebug, settings_.rank, "dropped: " + progress.status().message());
    if (progress.status().code() == Errc::kUnsupported) {
      last_refusal_ = progress.status().message();
    }
    return true;
  }
  if (*progress == FrameReader::Progress::kIncomplete) return false;
  if (*progress == FrameReader::Progress::kComplete) judge(candidate, candidate.reader.take());
  return true;
}

void RendezvousHost::judge(Candidate& candidate, const Frame& frame) {
  if (frame.kind != FrameKind::kHello || frame.sequence != 0) return;
  const std::optional<Hello> hello = decode_hello(frame.payload);
  if (!hello) return;
  if (hello->job_id != settings_.job_id) {
    // kUnsupported tells the rank to look on: its own job may be at another port.
    refuse(candidate.fd, Status(Errc::kUnsupported, "bootstrap: rank 0 belongs to another job"));
    last_refusal_ = "another job id of " + describe(*hello);
    return;
  }
  if (!has_valid_proof(frame.payload, candidate.nonce, settings_.cookie)) {
    refuse(candidate.fd,
           Status(Errc::kInvalidArgument, "bootstrap: EP_COOKIE is not that of rank 0"));
    last_refusal_ = "another EP_COOKIE of " + describe(*hello);
    // Once: a stranger must not fill the log.
    const LogLevel level = num_refusals_++ == 0 ? LogLevel::kWarn : LogLevel::kDebug;
    base::log(level, settings_.rank, "bootstrap: refused " + last_refusal_);
    return;
  }
  admit(std::move(candidate.fd), *hello, candidate.nonce);
}

void RendezvousHost::admit(base::UniqueFd fd, const Hello& hello, const Nonce& host_nonce) {
  const Digest proof = welcome_proof(host_nonce, hello.nonce, settings_.cookie);
  const Bootstrap::Bytes welcome =
      encode({.kind = FrameKind::kWelcome, .sequence = 0, .payload = {proof.begin(), proof.end()}});
  const Result<std::size_t> sent = send_some(fd.get(), welcome);
  if (!sent.ok() || *sent != welcome.size()) return;
  note_arrival(hello);
  Status conflict = conflict_of(hello);
  if (!conflict.ok()) {
    fail(std::move(conflict));
    rejected_.push_back(std::move(fd));
    return;
  }
  Member& member = members_[static_cast<std::size_t>(hello.rank)];
  member.fd = std::move(fd);
  member.hello = hello;
}

void RendezvousHost::note_arrival(const Hello& hello) {
  instances_.insert(hello.instance);
  const std::int64_t left_ms = std::max<std::int64_t>(hello.remaining_ms, 0);
  deadline_ =
      base::Deadline::earlier(deadline_, base::Deadline::after(std::chrono::milliseconds(left_ms)));
  const int num_ranks = std::clamp(hello.num_ranks, 1, kMaxBootstrapRanks);
  num_expected_ = std::max(num_expected_, static_cast<std::size_t>(num_ranks - 1));
}

Status RendezvousHost::conflict_of(const Hello& hello) const {
  if (hello.num_ranks != settings_.num_ranks) {
    Status status(Errc::kInvalidArgument,
                  "bootstrap: rank " + std::to_string(hello.rank) +
                      " has num_ranks = " + std::to_string(hello.num_ranks) +
                      ", rank 0 has num_ranks = " + std::to_string(settings_.num_ranks));
    return status.set_peer(hello.rank);
  }
  if (hello.rank < 0 || hello.rank >= settings_.num_ranks) {
    return Status(Errc::kInvalidArgument,
                  "bootstrap: rank = " + std::to_string(hello.rank) + " of " + describe(hello) +
                      ", but num_ranks = " + std::to_string(settings_.num_ranks));
  }
  const Member& holder = members_[static_cast<std::size_t>(hello.rank)];
  const bool is_taken = holder.fd.is_open() && holder.hello.instance != hello.instance;
  if (!is_taken && hello.rank != 0) return Status();
  Status status(Errc::kInvalidArgument,
                "bootstrap: two processes are rank " + std::to_string(hello.rank) + " of " +
                    std::to_string(settings_.num_ranks) + ": " + describe(hello) + " and " +
                    (is_taken ? describe(holder.hello) : std::string("the one that listens")));
  return status.set_peer(hello.rank);
}

/// The first failure counts. The others are still waited for, though not long: they should hear it
/// too.
void RendezvousHost::fail(Status failure) {
  if (!failure_.ok()) return;
  failure_ = std::move(failure);
  deadline_ = base::Deadline::earlier(deadline_, base::Deadline::after(kLingerTimeout));
}

void RendezvousHost::tell_everyone(const Frame& verdict) {
  std::vector<int> fds;
  for (const Member& member : members_) fds.push_back(member.fd.get());
  for (const base::UniqueFd& fd : rejected_) fds.push_back(fd.get());
  // A rank that died since then fails the first all_gather, which names it.
  send_to_each(fds, encode(verdict), base::Deadline::after(kVerdictTimeout));
}

}  // namespace

Result<std::vector<base::UniqueFd>> host_rendezvous(const RendezvousSettings& settings,
                                                    base::Deadline deadline) {
  EP_TRY_ASSIGN(const std::vector<Endpoint> endpoints, listen_endpoints(settings));
  // Room for every rank at once, and for strangers.
  const int backlog = settings.num_ranks + static_cast<int>(kMaxCandidates);
  EP_TRY_ASSIGN(base::UniqueFd listener, listen_on(endpoints, backlog));
  return RendezvousHost(settings, std::move(listener), deadline).run();
}

}  // namespace ep::fabric
