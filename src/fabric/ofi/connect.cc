// SPDX-License-Identifier: Apache-2.0
// Ranks meet: each opens its endpoints, all learn of all, and test what they have.
#include "base/blocked_signals.h"
#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "fabric/ofi/ofi.h"
#include "fabric/ofi/probe.h"
#include "fabric/ofi/transport.h"

#include <algorithm>

namespace ep::fabric {
namespace {

using std::chrono::milliseconds;

/// Of the time that is left, for the start-up test; the rest is for telling the others.
constexpr double kProbeShare = 0.75;

/// A rank's verdict on the start-up test.
enum class Verdict : std::uint8_t { kUnordered = 0, kOrdered = 1 };

struct Opened {
  std::unique_ptr<OfiTransport> transport;
  EndpointDescription description;
};

bool is_relied_on(const OfiConfig& config, const std::string& provider) {
  if (!config.may_be_ordered) return false;
  if (!config.ordered_providers) return keeps_order(provider);
  const auto& list = *config.ordered_providers;
  return std::find(list.begin(), list.end(), provider) != list.end();
}

Result<Opened> open_own(const Bootstrap& bootstrap, const OfiConfig& config) {
  if (config.num_contexts < 1 || config.num_contexts > kMaxOfiContexts) {
    return Status(Errc::kInvalidArgument, "ofi: " + std::to_string(config.num_contexts) +
                                              " contexts, must be 1 to " +
                                              std::to_string(kMaxOfiContexts));
  }
  ProviderWish wish = {.provider = config.provider, .interface = config.interface};
  if (!wish.provider) wish.provider = base::env_text(base::EnvVar::kNetProvider);
  if (!wish.interface) wish.interface = base::env_text(base::EnvVar::kNetInterface);
  // Some providers start threads.
  const base::BlockedSignals blocked;
  EP_TRY_ASSIGN(const OfiLibrary library, open_ofi_library());
  EP_TRY_ASSIGN(InfoPtr info, find_provider(library, wish));
  Opened opened;
  EP_TRY_ASSIGN(opened.transport, OfiTransport::open(library, std::move(info),
                                                     {.rank = bootstrap.rank(),
                                                      .num_ranks = bootstrap.num_ranks(),
                                                      .num_contexts = config.num_contexts}));
  const bool is_ordered = is_relied_on(config, opened.transport->traits().name);
  EP_TRY_ASSIGN(opened.description, opened.transport->describe(is_ordered));
  return opened;
}

/// All ranks' descriptions, which match. A rank without endpoints takes part, so that the others
/// do not wait for it.
Result<std::vector<EndpointDescription>> exchange(Bootstrap& bootstrap,
                                                  const Result<Opened>& own,
                                                  base::Deadline deadline) {
  const auto mine = own.ok() ? encode(own->description) : encode_refusal(own.status());
  auto answers = bootstrap.all_gather(mine, milliseconds(deadline.remaining_ms()));
  if (!own.ok()) return own.status();
  if (!answers.ok()) return answers.status();
  std::vector<EndpointDescription> descriptions;
  for (int rank = 0; rank < bootstrap.num_ranks(); ++rank) {
    const auto& answer = (*answers)[static_cast<std::size_t>(rank)];
    EP_TRY_ASSIGN(auto description, decode_description(rank, answer));
    EP_TRY(check_match(own->description, rank, description));
    descriptions.push_back(std::move(description));
  }
  return descriptions;
}

Result<ProbeFindings> meet(OfiTransport& transport,
                           Bootstrap& bootstrap,
                           const std::vector<EndpointDescription>& peers,
                           std::span<std::byte> scratch,
                           base::Deadline deadline) {
  EP_TRY(transport.insert_peers(peers));
  auto findings = probe_transport(transport, bootstrap, scratch, deadline);
  if (findings.ok()) return findings;
  Status status = findings.status();
  if (status.peer() == Status::kNoPeer) return status;
  const auto& peer = peers[static_cast<std::size_t>(status.peer())];
  Status named(status.code(),
               status.message() + " at " + transport.text_of_address(peer.addresses.front()) +
                   " (is EP_NET_INTERFACE right on all ranks?)",
               status.native_code());
  return named.set_peer(status.peer());
}

/// A failure that only follows from another rank's.
bool is_consequence(const Status& status) {
  return status.code() == Errc::kPeerTimeout || status.code() == Errc::kAborted;
}

std::vector<std::byte> encode_verdict(const Result<ProbeFindings>& own) {
  if (!own.ok()) return encode_refusal(own.status());
  return {static_cast<std::byte>(own->is_ordered ? Verdict::kOrdered : Verdict::kUnordered)};
}

Result<Verdict> decode_verdict(int rank, std::span<const std::byte> bytes) {
  if (bytes.size() == 1) {
    const bool is_ordered = bytes.front() == static_cast<std::byte>(Verdict::kOrdered);
    return is_ordered ? Verdict::kOrdered : Verdict::kUnordered;
  }
  const auto refusal = decode_description(rank, bytes);
  if (!refusal.ok()) return refusal.status();
  return Status(Errc::kFabric,
                "ofi: rank " + std::to_string(rank) + " sent no verdict on the start-up test")
      .set_peer(rank);
}

/// Agrees on the order. Errors: the first one that is no consequence of another, in rank order;
/// else this rank's own, else the first.
Result<ArrivalOrder> agree(Bootstrap& bootstrap,
                           const Result<ProbeFindings>& own,
                           base::Deadline deadline) {
  const auto answers =
      bootstrap.all_gather(encode_verdict(own), milliseconds(deadline.remaining_ms()));
  if (!answers.ok()) return own.ok() ? answers.status() : own.status();
  ArrivalOrder order = ArrivalOrder::kOrdered;
  Status failure = own.status();
  for (int rank = 0; rank < bootstrap.num_ranks(); ++rank) {
    const auto verdict = decode_verdict(rank, (*answers)[static_cast<std::size_t>(rank)]);
    const bool is_news = failure.ok() || is_consequence(failure);
    if (!verdict.ok() && is_news && (failure.ok() || !is_consequence(verdict.status()))) {
      failure = verdict.status();
    }
    if (!verdict.ok() || *verdict != Verdict::kOrdered) order = ArrivalOrder::kUnordered;
  }
  if (!failure.ok()) return failure;
  return order;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_ofi_transport(Bootstrap& bootstrap,
                                                      const OfiConfig& config,
                                                      base::Deadline deadline) {
  // Peers may still write to it while the transport lives.
  std::vector<std::byte> scratch(static_cast<std::size_t>(kProbeBytes));
  Result<Opened> own = open_own(bootstrap, config);
  EP_TRY_ASSIGN(const auto peers, exchange(bootstrap, own, deadline));
  std::unique_ptr<OfiTransport> transport = std::move(own->transport);
  const auto probe_time =
      std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.remaining() * kProbeShare);
  const auto findings =
      meet(*transport, bootstrap, peers, scratch, base::Deadline::after(probe_time));
  EP_TRY_ASSIGN(ArrivalOrder order, agree(bootstrap, findings, deadline));
  transport->forget_windows();
  if (!own->description.is_ordered) order = ArrivalOrder::kUnordered;
  if (own->description.is_ordered && order == ArrivalOrder::kUnordered) {
    base::log(LogLevel::kWarn, bootstrap.rank(),
              "ofi: provider " + transport->traits().name +
                  " was seen to reorder writes, which it is known not to do");
  }
  transport->set_order(order);
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace ep::fabric
