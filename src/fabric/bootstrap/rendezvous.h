// SPDX-License-Identifier: Apache-2.0
// How the ranks of a TcpBootstrap find each other and prove that they belong together.
//
// Rank 0 listens. On each connection:
//
//   rank 0 -> kChallenge  nonce of rank 0
//   rank r -> kHello      rank, size, job id, process, nonce of r, HMAC(cookie, "hello" + rank 0's
//   nonce + all of these) rank 0 -> kWelcome    HMAC(cookie, "welcome" + both nonces)         or
//   kError rank 0 -> kReady      once every rank has come                      or kError, to every
//   rank
//
// The cookie itself is never sent, and a recorded exchange is of no use later. So a stranger who
// reaches the port can neither join nor pose as rank 0. What follows the rendezvous is neither
// encrypted nor authenticated: someone who can alter packets on the way between hosts is not kept
// out. A connection that sends anything else, or nothing, is dropped.
#pragma once

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "fabric/bootstrap/environment.h"
#include "fabric/bootstrap/keyed_hash.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ep::fabric {

using Nonce = std::array<std::byte, 16>;

/// Who a rank says it is.
struct Hello {
  std::int32_t rank = 0;
  std::int32_t num_ranks = 0;
  std::int64_t pid = 0;
  std::uint64_t instance =
      0;  ///< random per bootstrap: a second try of the same rank is no duplicate
  std::int64_t remaining_ms = 0;  ///< until this rank gives up
  std::string job_id;
  std::string host_name;
  Nonce nonce{};
};

/// `host_nonce` is rank 0's.
Bootstrap::Bytes encode_hello(const Hello& hello,
                              const Nonce& host_nonce,
                              const std::string& cookie);
/// Empty if malformed. Does not look at the proof.
std::optional<Hello> decode_hello(std::span<const std::byte> payload);
bool has_valid_proof(std::span<const std::byte> payload,
                     const Nonce& host_nonce,
                     const std::string& cookie);

/// What shows a rank that it has met rank 0 of its own job.
Digest welcome_proof(const Nonce& host_nonce, const Nonce& rank_nonce, const std::string& cookie);

/// Rank 0's side: connections to ranks 1 .. num_ranks - 1, at their rank; [0] is closed.
/// Errors, sent to every rank that has come: kPeerTimeout naming the missing ranks,
/// kInvalidArgument for two processes of one rank or different sizes; kFabric where it cannot
/// listen.
Result<std::vector<base::UniqueFd>> host_rendezvous(const RendezvousSettings& settings,
                                                    base::Deadline deadline);

/// The other ranks' side: the connection to rank 0.
/// Errors: what rank 0 sent; kPeerTimeout naming rank 0; kInvalidArgument where the cookie differs.
Result<base::UniqueFd> join_rendezvous(const RendezvousSettings& settings, base::Deadline deadline);

/// How much longer than its own deadline a rank waits for rank 0, which knows who is missing.
inline constexpr std::chrono::milliseconds kVerdictGrace{1000};

}  // namespace ep::fabric
