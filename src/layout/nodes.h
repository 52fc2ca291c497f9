// SPDX-License-Identifier: Apache-2.0
// How the ranks of a group lie on nodes: ranks of a node load and store each other, and each has a
// rail to one rank of every other node.
#pragma once

#include "base/macros.h"

#include <cstdint>

namespace ep::layout {

/// Nodes are runs of consecutive ranks, of any size from 1. The arrays live as long as the group.
struct NodeMap {
  int num_nodes = 1;
  const std::int32_t* first_ranks = nullptr;  ///< [num_nodes + 1]
  const std::int32_t* node_of = nullptr;      ///< [num_ranks]

  EP_HOST_DEVICE constexpr int first_rank(int node) const { return first_ranks[node]; }
  EP_HOST_DEVICE constexpr int end_rank(int node) const { return first_ranks[node + 1]; }
  EP_HOST_DEVICE constexpr int size_of(int node) const {
    return first_ranks[node + 1] - first_ranks[node];
  }
  /// Number of the rank among those of its node.
  EP_HOST_DEVICE constexpr int local_of(int rank) const {
    return rank - first_ranks[node_of[rank]];
  }

  /// The rank of `node` that stands in for `rank` there: itself on its own node.
  EP_HOST_DEVICE constexpr int rail_peer(int rank, int node) const {
    if (node_of[rank] == node) return rank;
    return first_ranks[node] + local_of(rank) % size_of(node);
  }

  // The *delegates* of a rank: the ranks of other nodes for which it stands in on its own. They are
  // numbered by node, then by rank; a smaller node has several of one.

  /// Delegates of `host` from `node`.
  EP_HOST_DEVICE constexpr int num_delegates_from(int host, int node) const {
    if (node_of[host] == node) return 0;
    const int num_hosts = size_of(node_of[host]);
    const int beyond = size_of(node) - local_of(host);
    return beyond <= 0 ? 0 : (beyond + num_hosts - 1) / num_hosts;
  }
  EP_HOST_DEVICE constexpr int num_delegates(int host) const {
    int count = 0;
    for (int node = 0; node < num_nodes; ++node) count += num_delegates_from(host, node);
    return count;
  }
  /// Number of `rank` among the delegates of its rail peer on `node`, another node.
  EP_HOST_DEVICE constexpr int delegate_index(int rank, int node) const {
    const int host = rail_peer(rank, node);
    int index = local_of(rank) / size_of(node);
    for (int before = 0; before < node_of[rank]; ++before)
      index += num_delegates_from(host, before);
    return index;
  }
  /// The rank behind a delegate of `host`.
  EP_HOST_DEVICE constexpr int delegate_rank(int host, int index) const {
    for (int node = 0; node < num_nodes; ++node) {
      const int here = num_delegates_from(host, node);
      if (index < here) return first_ranks[node] + local_of(host) + index * size_of(node_of[host]);
      index -= here;
    }
    return -1;
  }
};

}  // namespace ep::layout
