// SPDX-License-Identifier: Apache-2.0
// Rank 0 makes the transports of all ranks; the others take theirs out of a registry.
#include "fabric/net/local_meeting.h"

#include "base/byte_io.h"
#include "base/check.h"
#include "fabric/bootstrap/keyed_hash.h"
#include "fabric/net/local_transport.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

/// Random, so that a rank of another process finds nothing.
using MeetingToken = std::uint64_t;

struct Registry {
  std::mutex mutex;
  std::map<MeetingToken, std::vector<std::unique_ptr<Transport>>> meetings;
};

Registry& registry() {
  static Registry* const kInstance = new Registry;
  return *kInstance;
}

MeetingToken open_meeting(std::vector<std::unique_ptr<Transport>> transports) {
  MeetingToken token = 0;
  fill_random(std::as_writable_bytes(std::span(&token, 1)));
  const std::lock_guard lock(registry().mutex);
  registry().meetings[token] = std::move(transports);
  return token;
}

std::unique_ptr<Transport> take_seat(MeetingToken token, int rank) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().meetings.find(token);
  if (found == registry().meetings.end()) return nullptr;
  return std::move(found->second[static_cast<std::size_t>(rank)]);
}

void close_meeting(MeetingToken token) {
  const std::lock_guard lock(registry().mutex);
  registry().meetings.erase(token);
}

}  // namespace

Result<std::unique_ptr<Transport>> meet_locally(Bootstrap& bootstrap,
                                                const TransportTraits& traits,
                                                std::chrono::milliseconds timeout) {
  MeetingToken token = 0;
  if (bootstrap.rank() == 0) {
    EP_TRY_ASSIGN(std::vector<std::unique_ptr<Transport>> transports,
                  make_local_transports(bootstrap.num_ranks(), traits));
    token = open_meeting(std::move(transports));
  }
  EP_TRY_ASSIGN(const std::vector<Bootstrap::Bytes> all,
                bootstrap.all_gather(base::ByteWriter().put(token).take(), timeout));
  token = base::ByteReader(all[0]).get<MeetingToken>();
  std::unique_ptr<Transport> mine = take_seat(token, bootstrap.rank());
  const std::byte has_seat{static_cast<unsigned char>(mine == nullptr ? 0 : 1)};
  const auto seats = bootstrap.all_gather({&has_seat, 1}, timeout);
  if (bootstrap.rank() == 0) close_meeting(token);
  EP_TRY(seats);
  for (std::size_t rank = 0; rank < seats->size(); ++rank) {
    if ((*seats)[rank] == Bootstrap::Bytes{std::byte{1}}) continue;
    return Status(Errc::kUnsupported,
                  "net: provider local is for ranks that are threads of one process; rank " +
                      std::to_string(rank) + " is in another one than rank 0");
  }
  return mine;
}

}  // namespace ep::fabric
