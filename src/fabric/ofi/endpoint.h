// SPDX-License-Identifier: Apache-2.0
// One context: an endpoint with a completion queue and an address table of its own.
#pragma once

#include "fabric/net/transport.h"
#include "fabric/ofi/fid_ptr.h"
#include "fabric/ofi/library.h"

#include <ep/status.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ep::fabric {

/// A write or a read with its places resolved and checked.
struct RmaOp {
  int peer = 0;
  std::byte* local = nullptr;
  void* local_descriptor = nullptr;
  std::size_t bytes = 0;
  std::uint64_t remote = 0;  ///< offset or address, as the provider wants it
  std::uint64_t key = 0;
  std::uint64_t cookie = 0;
};

/// Used by one thread at a time.
class Endpoint {
 public:
  struct Opening {
    const OfiLibrary& library;
    fi_info& info;
    fid_domain& domain;
    int context = 0;
    int max_outstanding = 0;
  };

  /// Open and enabled. Errors: kFabric, kOutOfMemory.
  static Result<std::unique_ptr<Endpoint>> open(const Opening& opening);

  /// For the peers.
  Result<std::vector<std::byte>> address() const;
  /// Once, in rank order, also its own.
  Status insert_addresses(const std::vector<std::span<const std::byte>>& addresses);
  /// "fi_sockaddr_in://10.0.0.1:40123".
  std::string text_of_address(std::span<const std::byte> address) const;

  Posted write(const RmaOp& op, const std::optional<std::uint32_t>& immediate);
  Posted read(const RmaOp& op);
  int poll(std::span<NetEvent> events);
  void sleep(std::chrono::milliseconds at_most);

  /// Why the last operation was kFailed.
  const Status& failure() const { return failure_; }
  /// For what the caller finds before it comes here.
  Posted fail(Status status);

  fid_ep& endpoint() const { return *endpoint_; }

 private:
  /// What libfabric keeps of an operation until it is complete.
  struct Slot {
    fi_context2 scratch{};  ///< first: its address is the operation's, and belongs to the provider
    std::uint64_t cookie = 0;
    int peer = 0;
    bool is_read = false;
    bool is_used = false;
    Slot* next_free = nullptr;
  };
  static constexpr std::size_t kBatch = 64;

  explicit Endpoint(const Opening& opening);
  Status open_objects(const Opening& opening);

  Slot* take_slot(const RmaOp& op, bool is_read);
  void give_back(Slot* slot);
  /// The operation of a completion; null where it is none of this endpoint's.
  Slot* slot_of(void* op_context);
  Posted posted(Slot* slot, std::int64_t result);
  /// Nothing is posted to this peer any more.
  void note_broken(const Slot& slot, std::int64_t result);
  std::int64_t post_write(const RmaOp& op,
                          const std::optional<std::uint32_t>& immediate,
                          Slot* slot);

  int read_completions(std::span<NetEvent> events);
  std::optional<NetEvent> event_of(const fi_cq_data_entry& entry, fi_addr_t source);
  std::optional<NetEvent> read_error();

  const OfiLibrary library_;
  const int context_;
  FidPtr<fid_av> addresses_;
  FidPtr<fid_cq> completions_;
  FidPtr<fid_ep> endpoint_;
  int num_ranks_ = 0;

  std::vector<Slot> slots_;
  Slot* free_ = nullptr;
  /// By rank, success while nothing went wrong: a connection that failed has lost writes, and
  /// another one would hide that.
  std::vector<Status> broken_;
  Status failure_;

  /// Found by sleep(), not yet polled: [first_, first_ + num_).
  std::array<NetEvent, kBatch> stash_{};
  std::size_t stash_first_ = 0;
  std::size_t stash_num_ = 0;
};

}  // namespace ep::fabric
