// SPDX-License-Identifier: Apache-2.0
// The Transport over libfabric: endpoints, windows, and the checks in front of them.
#pragma once

#include "base/check.h"
#include "fabric/net/transport.h"
#include "fabric/ofi/description.h"
#include "fabric/ofi/endpoint.h"
#include "fabric/ofi/ofi.h"
#include "fabric/ofi/provider.h"
#include "fabric/ofi/registration.h"

#include <memory>
#include <optional>
#include <vector>

namespace ep::fabric {

class OfiTransport final : public Transport {
 public:
  struct Opening {
    int rank = 0;
    int num_ranks = 1;
    int num_contexts = 1;
  };

  /// Local: opens what `info` chose. Errors: kFabric, kOutOfMemory.
  static Result<std::unique_ptr<OfiTransport>> open(const OfiLibrary& library,
                                                    InfoPtr info,
                                                    const Opening& opening);
  ~OfiTransport() override;

  /// What peers must know. `is_ordered`: whether this rank would rely on order.
  Result<EndpointDescription> describe(bool is_ordered) const;
  /// Of all ranks, in their order.
  Status insert_peers(const std::vector<EndpointDescription>& peers);
  std::string text_of_address(std::span<const std::byte> address) const;
  /// The windows of the start-up test go; the next one is window 0. No peer may use them any more.
  void forget_windows();
  void set_order(ArrivalOrder order) { traits_.order = order; }

  int rank() const override { return rank_; }
  int num_ranks() const override { return num_ranks_; }
  const TransportTraits& traits() const override { return traits_; }
  Result<WindowId> add_window(std::span<std::byte> memory) override;
  std::vector<std::byte> describe_window(WindowId window) const override;
  Status set_peer_window(int peer,
                         WindowId window,
                         std::span<const std::byte> description) override;
  Posted write(const WriteOp& op) override;
  Posted read(const ReadOp& op) override;
  int poll(int context, std::span<NetEvent> events) override {
    return endpoint(context).poll(events);
  }
  void sleep(int context, std::chrono::milliseconds at_most) override {
    endpoint(context).sleep(at_most);
  }
  Status failure(int context) const override { return endpoint(context).failure(); }

 private:
  /// One access: a range here and the same number of bytes there.
  struct Access {
    int peer = 0;
    int context = 0;
    WindowPlace local{};
    WindowPlace remote{};
    std::int64_t bytes = 0;
    std::uint64_t cookie = 0;
  };

  OfiTransport(const OfiLibrary& library, InfoPtr info, const Opening& opening);
  Status open_objects(const Opening& opening);

  Endpoint& endpoint(int context) const {
    EP_CHECK(context >= 0 && static_cast<std::size_t>(context) < endpoints_.size());
    return *endpoints_[static_cast<std::size_t>(context)];
  }
  const WindowDescription* find_peer_window(int peer, WindowId window) const;
  Status check(const Access& access) const;
  RmaOp resolve(const Access& access) const;

  const int rank_;
  const int num_ranks_;
  const OfiLibrary library_;
  const InfoPtr info_;
  TransportTraits traits_;
  FidPtr<fid_fabric> fabric_;
  FidPtr<fid_domain> domain_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;  // by context
  std::vector<Registration> windows_;
  /// [window][peer]; empty until the peer's description is set.
  std::vector<std::vector<std::optional<WindowDescription>>> peer_windows_;
};

}  // namespace ep::fabric
