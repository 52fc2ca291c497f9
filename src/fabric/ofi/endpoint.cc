// SPDX-License-Identifier: Apache-2.0
// Posts operations and reads completions.
#include "fabric/ofi/endpoint.h"

#include "base/check.h"
#include "base/deadline.h"
#include "base/log.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>

namespace ep::fabric {
namespace {

/// Completions of this rank's operations, and arrivals that wait for a poll.
constexpr std::size_t kCompletionEntries = 4096;
constexpr std::size_t kMaxAddressBytes = 256;
/// Between looks of a sleeper: it must look, since a TCP provider receives only when asked to.
constexpr std::chrono::microseconds kFirstNap{50};
constexpr std::chrono::microseconds kLongestNap{1000};

}  // namespace

Endpoint::Endpoint(const Opening& opening)
    : library_(opening.library),
      context_(opening.context),
      slots_(static_cast<std::size_t>(opening.max_outstanding)) {
  for (Slot& slot : slots_) give_back(&slot);
}

Result<std::unique_ptr<Endpoint>> Endpoint::open(const Opening& opening) {
  std::unique_ptr<Endpoint> endpoint(new Endpoint(opening));
  EP_TRY(endpoint->open_objects(opening));
  return endpoint;
}

Status Endpoint::open_objects(const Opening& opening) {
  fi_av_attr av_attr{};
  av_attr.type = FI_AV_TABLE;
  fid_av* av = nullptr;
  if (const int result = fi_av_open(&opening.domain, &av_attr, &av, nullptr); result != 0) {
    return fi_status(library_, "fi_av_open", result);
  }
  addresses_.reset(av);

  fi_cq_attr cq_attr{};
  cq_attr.size = kCompletionEntries;
  cq_attr.format = FI_CQ_FORMAT_DATA;
  // A queue that can be waited for makes the TCP providers start a thread, which then competes with
  // whoever polls.
  cq_attr.wait_obj = FI_WAIT_NONE;
  fid_cq* cq = nullptr;
  if (const int result = fi_cq_open(&opening.domain, &cq_attr, &cq, nullptr); result != 0) {
    return fi_status(library_, "fi_cq_open", result);
  }
  completions_.reset(cq);

  fid_ep* ep = nullptr;
  if (const int result = fi_endpoint(&opening.domain, &opening.info, &ep, nullptr); result != 0) {
    return fi_status(library_, "fi_endpoint", result);
  }
  endpoint_.reset(ep);
  if (const int result = fi_ep_bind(ep, &av->fid, 0); result != 0) {
    return fi_status(library_, "fi_ep_bind of the addresses", result);
  }
  if (const int result = fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV); result != 0) {
    return fi_status(library_, "fi_ep_bind of the completions", result);
  }
  if (const int result = fi_enable(ep); result != 0) {
    return fi_status(library_, "fi_enable", result);
  }
  return Status();
}

Result<std::vector<std::byte>> Endpoint::address() const {
  std::vector<std::byte> address(kMaxAddressBytes);
  std::size_t num_bytes = address.size();
  const int result = fi_getname(&endpoint_->fid, address.data(), &num_bytes);
  if (result != 0) return fi_status(library_, "fi_getname", result);
  address.resize(num_bytes);
  return address;
}

Status Endpoint::insert_addresses(const std::vector<std::span<const std::byte>>& addresses) {
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    fi_addr_t place = FI_ADDR_UNSPEC;
    const int num_inserted =
        fi_av_insert(addresses_.get(), addresses[rank].data(), 1, &place, 0, nullptr);
    // A table numbers its entries in the order in which they come, so that places are ranks. Two
    // equal addresses share one: then two ranks claim to be the same endpoint.
    if (num_inserted == 1 && place == rank) continue;
    return Status(Errc::kFabric, "ofi: address of rank " + std::to_string(rank) + ", " +
                                     text_of_address(addresses[rank]) +
                                     ": not accepted, or another rank's")
        .set_peer(static_cast<int>(rank));
  }
  num_ranks_ = static_cast<int>(addresses.size());
  broken_.assign(addresses.size(), Status());
  return Status();
}

std::string Endpoint::text_of_address(std::span<const std::byte> address) const {
  std::array<char, kMaxAddressBytes> text{};
  std::size_t num_bytes = text.size() - 1;
  fi_av_straddr(addresses_.get(), address.data(), text.data(), &num_bytes);
  return text.data();
}

Endpoint::Slot* Endpoint::take_slot(const RmaOp& op, bool is_read) {
  Slot* const slot = free_;
  if (slot == nullptr) return nullptr;
  free_ = slot->next_free;
  slot->cookie = op.cookie;
  slot->peer = op.peer;
  slot->is_read = is_read;
  slot->is_used = true;
  return slot;
}

void Endpoint::give_back(Slot* slot) {
  slot->is_used = false;
  slot->next_free = free_;
  free_ = slot;
}

Endpoint::Slot* Endpoint::slot_of(void* op_context) {
  Slot* const slot = static_cast<Slot*>(op_context);
  const std::less<const Slot*> is_before;
  if (is_before(slot, slots_.data()) || !is_before(slot, slots_.data() + slots_.size())) {
    return nullptr;
  }
  return slot->is_used ? slot : nullptr;
}

Posted Endpoint::fail(Status status) {
  failure_ = std::move(status);
  return Posted::kFailed;
}

Posted Endpoint::posted(Slot* slot, std::int64_t result) {
  if (result == 0) return Posted::kYes;
  give_back(slot);
  if (result == -FI_EAGAIN) return Posted::kBusy;
  note_broken(*slot, result);
  return Posted::kFailed;
}

void Endpoint::note_broken(const Slot& slot, std::int64_t result) {
  const std::string what = (slot.is_read ? "read from rank " : "write to rank ") +
                           std::to_string(slot.peer) + ", context " + std::to_string(context_);
  failure_ = fi_status(library_, what, result);
  failure_.set_peer(slot.peer);
  Status& broken = broken_[static_cast<std::size_t>(slot.peer)];
  if (broken.ok()) broken = failure_;
}

Posted Endpoint::write(const RmaOp& op, const std::optional<std::uint32_t>& immediate) {
  if (const Status& broken = broken_[static_cast<std::size_t>(op.peer)]; !broken.ok()) {
    return fail(broken);
  }
  Slot* const slot = take_slot(op, /*is_read=*/false);
  if (slot == nullptr) return Posted::kBusy;
  return posted(slot, post_write(op, immediate, slot));
}

std::int64_t Endpoint::post_write(const RmaOp& op,
                                  const std::optional<std::uint32_t>& immediate,
                                  Slot* slot) {
  const auto to = static_cast<fi_addr_t>(op.peer);
  if (immediate) {
    return fi_writedata(endpoint_.get(), op.local, op.bytes, op.local_descriptor, *immediate, to,
                        op.remote, op.key, &slot->scratch);
  }
  return fi_write(endpoint_.get(), op.local, op.bytes, op.local_descriptor, to, op.remote, op.key,
                  &slot->scratch);
}

Posted Endpoint::read(const RmaOp& op) {
  if (const Status& broken = broken_[static_cast<std::size_t>(op.peer)]; !broken.ok()) {
    return fail(broken);
  }
  Slot* const slot = take_slot(op, /*is_read=*/true);
  if (slot == nullptr) return Posted::kBusy;
  const auto from = static_cast<fi_addr_t>(op.peer);
  return posted(slot, fi_read(endpoint_.get(), op.local, op.bytes, op.local_descriptor, from,
                              op.remote, op.key, &slot->scratch));
}

int Endpoint::poll(std::span<NetEvent> events) {
  if (stash_num_ == 0) return read_completions(events);
  const std::size_t num = std::min(stash_num_, events.size());
  std::copy_n(stash_.begin() + static_cast<std::ptrdiff_t>(stash_first_), num, events.begin());
  stash_first_ += num;
  stash_num_ -= num;
  return static_cast<int>(num);
}

void Endpoint::sleep(std::chrono::milliseconds at_most) {
  const base::Deadline deadline = base::Deadline::after(at_most);
  std::chrono::nanoseconds nap = kFirstNap;
  while (stash_num_ == 0) {
    stash_first_ = 0;
    stash_num_ = static_cast<std::size_t>(read_completions(stash_));
    if (stash_num_ > 0 || deadline.expired()) return;
    std::this_thread::sleep_for(std::min(nap, deadline.remaining()));
    nap = std::min<std::chrono::nanoseconds>(2 * nap, kLongestNap);
  }
}

int Endpoint::read_completions(std::span<NetEvent> events) {
  std::array<fi_cq_data_entry, kBatch> entries;
  std::array<fi_addr_t, kBatch> sources;
  const std::size_t num_wanted = std::min(events.size(), kBatch);
  if (num_wanted == 0) return 0;
  const auto num = fi_cq_readfrom(completions_.get(), entries.data(), num_wanted, sources.data());
  if (num == -FI_EAVAIL) {
    const std::optional<NetEvent> event = read_error();
    if (event) events.front() = *event;
    return event ? 1 : 0;
  }
  std::size_t num_events = 0;
  for (std::size_t i = 0; num > 0 && i < static_cast<std::size_t>(num); ++i) {
    const std::optional<NetEvent> event = event_of(entries[i], sources[i]);
    if (event) events[num_events++] = *event;
  }
  return static_cast<int>(num_events);
}

std::optional<NetEvent> Endpoint::event_of(const fi_cq_data_entry& entry, fi_addr_t source) {
  if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
    if (source >= static_cast<fi_addr_t>(num_ranks_)) {
      base::log(LogLevel::kWarn, "ofi: an immediate from an address of no rank is dropped");
      return std::nullopt;
    }
    return NetEvent{.kind = NetEvent::Kind::kArrival,
                    .peer = static_cast<int>(source),
                    .immediate = static_cast<std::uint32_t>(entry.data)};
  }
  Slot* const slot = slot_of(entry.op_context);
  if (slot == nullptr) return std::nullopt;
  const NetEvent event = {
      .kind = slot->is_read ? NetEvent::Kind::kReadDone : NetEvent::Kind::kSourceFree,
      .peer = slot->peer,
      .cookie = slot->cookie};
  give_back(slot);
  return event;
}

std::optional<NetEvent> Endpoint::read_error() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(completions_.get(), &entry, 0) != 1) return std::nullopt;
  // Some providers report negative numbers.
  const int error = std::abs(entry.err);
  Slot* const slot = slot_of(entry.op_context);
  if (slot == nullptr) {
    // What a peer did here broke off: the peer knows, and its liveness tells this rank.
    base::log(LogLevel::kDebug, "ofi: an arrival failed with " + std::to_string(error));
    return std::nullopt;
  }
  const NetEvent event = {
      .kind = NetEvent::Kind::kFailure, .peer = slot->peer, .cookie = slot->cookie, .error = error};
  note_broken(*slot, error);
  give_back(slot);
  return event;
}

}  // namespace ep::fabric
