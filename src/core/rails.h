// SPDX-License-Identifier: Apache-2.0
// What a group of several nodes has beside an arena: its nodes, the network, and what they share.
#pragma once

#include "fabric/host/arena.h"
#include "fabric/net/net_engine.h"
#include "internode/host.h"
#include "layout/control.h"
#include "layout/net_layout.h"
#include "layout/nodes.h"

#include <ep/bootstrap.h>
#include <ep/config.h>
#include <ep/group.h>
#include <ep/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ep::core {

/// The arrays behind a layout::NodeMap.
class NodeTable {
 public:
  /// Nodes of `lsa_size` ranks; the last may have fewer.
  NodeTable(int num_ranks, int lsa_size);

  layout::NodeMap map() const;
  int max_delegates() const;
  /// [num_ranks]: who stands in for each rank on the node of `rank`.
  std::vector<std::int32_t> hosts_on_node_of(int rank) const;

 private:
  std::vector<std::int32_t> first_ranks_;
  std::vector<std::int32_t> node_of_;
};

/// Of a group with these maxima. Precondition: its config is resolved.
layout::NetLayout net_layout(const GroupConfig& config,
                             const NodeTable& nodes,
                             const layout::ControlLayout& control);

class Rails {
 public:
  struct Parts {
    const GroupConfig& config;
    const layout::ControlLayout& control;
    NodeTable nodes;
    layout::NetLayout net;
    fabric::HostArena& arena;  ///< outlives the rails
  };
  /// Collective. Errors of the network.
  static Result<std::unique_ptr<Rails>> create(Bootstrap& bootstrap, Parts parts);

  Rails(const Rails&) = delete;
  Rails& operator=(const Rails&) = delete;
  /// Waits a moment for what this rank has put to land.
  ~Rails();

  const internode::HostRail& host_rail() const { return rail_; }
  const std::int32_t* host_of() const { return host_of_.data(); }
  int first_peer() const { return rail_.params.nodes.first_rank(rail_.params.node()); }
  int num_peers() const { return rail_.params.nodes.size_of(rail_.params.node()); }
  const layout::NetLayout& net() const { return rail_.params.net; }
  int num_delegates() const { return rail_.params.num_delegates; }

  NetUse use() const;

  /// After a launch: if this rank's operation failed, the other nodes learn why.
  void spread_failure();

 private:
  Rails(Parts parts, int rank);

  Status connect(Bootstrap& bootstrap, const GroupConfig& config);
  void watch_rails();
  void stand_in_for_delegates(fabric::HostArena& arena) const;
  void set_epochs(std::uint64_t last_epoch) const;
  void take_failure(std::span<const std::byte> message) const;

  const NodeTable nodes_;
  const layout::ControlLayout control_;
  const std::vector<std::int32_t> host_of_;
  fabric::HostArena& arena_;
  std::unique_ptr<fabric::NetEngine> engine_;
  internode::HostRail rail_;
  bool has_spread_ = false;
};

}  // namespace ep::core
