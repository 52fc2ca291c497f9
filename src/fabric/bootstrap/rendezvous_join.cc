// SPDX-License-Identifier: Apache-2.0
// The side of ranks other than 0 of the rendezvous.
#include "base/check.h"
#include "fabric/bootstrap/rank_list.h"
#include "fabric/bootstrap/rendezvous.h"
#include "fabric/bootstrap/socket.h"
#include "fabric/bootstrap/wire.h"

#include <algorithm>
#include <poll.h>
#include <string>
#include <unistd.h>
#include <utility>

namespace ep::fabric {
namespace {

/// Between two rounds over all endpoints, while rank 0 does not listen yet.
constexpr std::chrono::milliseconds kRetryInterval{20};
/// For one endpoint: a stranger's service that accepts and stays silent must not use up the
/// deadline.
constexpr std::chrono::milliseconds kAttemptTimeout{2000};

std::string host_name() {
  std::array<char, 256> name{};
  // The last byte stays 0 where a longer name is cut.
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

/// What became of one endpoint.
struct Attempt {
  base::UniqueFd fd;
  /// Not ok: why there is no connection.
  Status why;
  /// `why` cannot change by trying again.
  bool is_final = false;
};

Attempt retry_later(Status why) { return {.fd = {}, .why = std::move(why), .is_final = false}; }

class RendezvousGuest {
 public:
  RendezvousGuest(const RendezvousSettings& settings, base::Deadline deadline)
      : settings_(settings), deadline_(deadline) {
    fill_random(std::as_writable_bytes(std::span(&instance_, 1)));
  }

  Result<base::UniqueFd> join();

 private:
  Attempt try_endpoint(const Endpoint& endpoint);
  Attempt shake_hands(base::UniqueFd fd, base::Deadline deadline);
  Attempt judge_answer(base::UniqueFd fd, const Frame& answer, const Digest& expected_proof);
  Hello make_hello() const;
  Result<base::UniqueFd> await_ready(base::UniqueFd fd);
  Status absent_host(const Status& last) const;

  const RendezvousSettings& settings_;
  const base::Deadline deadline_;
  std::uint64_t instance_ = 0;
};

Result<base::UniqueFd> RendezvousGuest::join() {
  EP_TRY_ASSIGN(const std::vector<Endpoint> endpoints, connect_endpoints(settings_));
  Status last;
  while (!deadline_.expired()) {
    for (const Endpoint& endpoint : endpoints) {
      Attempt attempt = try_endpoint(endpoint);
      if (attempt.why.ok()) return await_ready(std::move(attempt.fd));
      if (attempt.is_final) return attempt.why;
      // An attempt that the end of our own patience cut short says less than the one before it.
      if (last.ok() || !deadline_.expired()) last = std::move(attempt.why);
    }
    const auto left = std::chrono::milliseconds(deadline_.remaining_ms());
    static_cast<void>(::poll(nullptr, 0, static_cast<int>(std::min(left, kRetryInterval).count())));
  }
  return absent_host(last);
}

Status RendezvousGuest::absent_host(const Status& last) const {
  Status status(Errc::kPeerTimeout,
                "bootstrap: rank " + std::to_string(settings_.rank) +
                    " did not get an answer from rank 0 within " + text_of(settings_.timeout) +
                    ": " + last.message(),
                last.native_code());
  return status.set_peer(0);
}

Attempt RendezvousGuest::try_endpoint(const Endpoint& endpoint) {
  const base::Deadline deadline =
      base::Deadline::earlier(deadline_, base::Deadline::after(kAttemptTimeout));
  Result<base::UniqueFd> fd = connect_to(endpoint, deadline);
  if (!fd.ok()) return retry_later(fd.status());
  if (!is_trusted_user(fd->get())) {
    return retry_later(Status(Errc::kFabric, endpoint.text + " belongs to another user"));
  }
  Attempt attempt = shake_hands(std::move(*fd), deadline);
  if (!attempt.why.ok() && !attempt.is_final) {
    attempt.why = Status(attempt.why.code(), endpoint.text + ": " + attempt.why.message());
  }
  return attempt;
}

Hello RendezvousGuest::make_hello() const {
  Hello hello;
  hello.rank = settings_.rank;
  hello.num_ranks = settings_.num_ranks;
  hello.pid = ::getpid();
  hello.instance = instance_;
  hello.remaining_ms = deadline_.remaining_ms();
  hello.job_id = settings_.job_id;
  hello.host_name = host_name();
  fill_random(hello.nonce);
  return hello;
}

Attempt RendezvousGuest::shake_hands(base::UniqueFd fd, base::Deadline deadline) {
  const Result<Frame> challenge = receive_frame(fd.get(), kMaxControlBytes, deadline);
  if (!challenge.ok()) return retry_later(challenge.status());
  Nonce nonce{};
  if (challenge->kind != FrameKind::kChallenge || challenge->payload.size() != nonce.size()) {
    return retry_later(Status(Errc::kFabric, "bootstrap: malformed challenge"));
  }
  std::copy(challenge->payload.begin(), challenge->payload.end(), nonce.begin());

  const Hello hello = make_hello();
  const Frame frame{.kind = FrameKind::kHello,
                    .sequence = 0,
                    .payload = encode_hello(hello, nonce, settings_.cookie)};
  Status sent = send_all(fd.get(), encode(frame), deadline);
  if (!sent.ok()) return retry_later(std::move(sent));

  const Result<Frame> answer = receive_frame(fd.get(), kMaxControlBytes, deadline);
  if (!answer.ok()) return retry_later(answer.status());
  return judge_answer(std::move(fd), *answer, welcome_proof(nonce, hello.nonce, settings_.cookie));
}

Attempt RendezvousGuest::judge_answer(base::UniqueFd fd,
                                      const Frame& answer,
                                      const Digest& expected_proof) {
  if (answer.kind == FrameKind::kError) {
    Status refusal = decode_status(answer.payload);
    // An unproven word: it ends only this rank, whose cookie cannot become right by itself.
    const bool is_final = refusal.code() == Errc::kInvalidArgument;
    return {.fd = {}, .why = std::move(refusal), .is_final = is_final};
  }
  if (answer.kind != FrameKind::kWelcome ||
      !equal_in_constant_time(expected_proof, answer.payload)) {
    return retry_later(Status(Errc::kFabric, "bootstrap: who listens does not know EP_COOKIE"));
  }
  return {.fd = std::move(fd), .why = Status(), .is_final = false};
}

Result<base::UniqueFd> RendezvousGuest::await_ready(base::UniqueFd fd) {
  const Result<Frame> verdict =
      receive_frame(fd.get(), kMaxControlBytes, deadline_.plus(kVerdictGrace));
  if (!verdict.ok()) return absent_host(verdict.status());
  if (verdict->kind == FrameKind::kReady) return fd;
  if (verdict->kind == FrameKind::kError) return decode_status(verdict->payload);
  return Status(Errc::kFabric, "bootstrap: rank 0 sent a frame that is no verdict");
}

}  // namespace

Result<base::UniqueFd> join_rendezvous(const RendezvousSettings& settings,
                                       base::Deadline deadline) {
  return RendezvousGuest(settings, deadline).join();
}

}  // namespace ep::fabric
