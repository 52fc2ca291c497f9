// SPDX-License-Identifier: Apache-2.0
// What a routing moves between ranks: rows and chunks by pair of ranks, and the bytes, puts and
// signals that follow. Counted, never measured.
#pragma once

#include "bench/routing.h"
#include "layout/nodes.h"

#include <ep/expert_map.h>
#include <ep/sm_budget.h>

#include <cstdint>
#include <span>
#include <vector>

namespace ep::bench {

/// A node map of its own: nodes of `lsa_size` consecutive ranks, the last one may be smaller.
class Nodes {
 public:
  Nodes(int num_ranks, int lsa_size);

  int num_ranks() const { return static_cast<int>(node_of_.size()); }
  int lsa_size() const { return lsa_size_; }
  int num_nodes() const { return static_cast<int>(first_ranks_.size()) - 1; }
  /// Valid while these nodes are.
  layout::NodeMap map() const;
  bool are_together(int a, int b) const {
    return node_of_[static_cast<std::size_t>(a)] == node_of_[static_cast<std::size_t>(b)];
  }

 private:
  int lsa_size_;
  std::vector<std::int32_t> first_ranks_;
  std::vector<std::int32_t> node_of_;
};

/// What crosses the network for one token.
enum class Dedup : std::uint8_t {
  kNode,  ///< one row per remote node: the rail peer passes it on, and sums before it returns one
  kNone,  ///< one row per remote rank
};

struct RouteShape {
  Nodes nodes{1, 1};
  Dedup dedup = Dedup::kNode;
  /// Tokens [i n, (i + 1) n) of a rank that cross to the same peer travel in one put.
  int chunk_tokens = 8;
};

template <class N>
struct RouteCount {
  N rows = 0;
  N chunks = 0;  ///< between nodes
};

/// Rows by (source, destination) of each hop of a dispatch; a combine takes every hop backwards.
/// Ranks of one node: over LSA, the diagonal stays in its rank. Others: over the network. Numbers
/// are counted (int64) or expected (double).
template <class N>
class RouteMatrix {
 public:
  explicit RouteMatrix(const RouteShape& shape)
      : shape_(shape),
        num_ranks_(static_cast<std::size_t>(shape.nodes.num_ranks())),
        counts_(num_ranks_ * num_ranks_),
        num_tokens_(num_ranks_, 0) {}

  const RouteShape& shape() const { return shape_; }
  int num_ranks() const { return shape_.nodes.num_ranks(); }
  RouteCount<N>& at(int src, int dst) { return counts_[index_of(src, dst)]; }
  const RouteCount<N>& at(int src, int dst) const { return counts_[index_of(src, dst)]; }
  /// Tokens of a rank, all that were counted.
  std::int64_t& num_tokens(int rank) { return num_tokens_[static_cast<std::size_t>(rank)]; }
  std::int64_t num_tokens(int rank) const { return num_tokens_[static_cast<std::size_t>(rank)]; }
  bool is_net(int src, int dst) const { return !shape_.nodes.are_together(src, dst); }

 private:
  std::size_t index_of(int src, int dst) const {
    return static_cast<std::size_t>(src) * num_ranks_ + static_cast<std::size_t>(dst);
  }

  RouteShape shape_;
  std::size_t num_ranks_;
  std::vector<RouteCount<N>> counts_;
  std::vector<std::int64_t> num_tokens_;
};

/// Sum over all pairs of ranks in different nodes.
template <class N>
RouteCount<N> net_total(const RouteMatrix<N>& routes);

class RouteCounter {
 public:
  /// `experts` has as many ranks as the shape.
  RouteCounter(const RouteShape& shape, const ExpertMap& experts);

  /// Row-major [T, topk], -1: no expert; once per rank.
  void add(int src, std::span<const std::int64_t> topk_idx, int topk);
  const RouteMatrix<std::int64_t>& routes() const { return routes_; }

 private:
  void find_ranks(std::span<const std::int64_t> experts);
  void cross(int src, int dst, std::int64_t chunk);

  ExpertMap experts_;
  RouteMatrix<std::int64_t> routes_;
  std::vector<int> ranks_;                // of one token, ascending
  std::vector<std::int64_t> last_chunk_;  // by destination, of the source at hand
};

/// One step of a routing, all ranks.
RouteMatrix<std::int64_t> count_routes(Routing& routing,
                                       int step,
                                       const RouteShape& shape,
                                       const ExpertMap& experts);

/// Bytes that travel. Over the network with dedup: what src/internode puts; its rail peers know the
/// choices of all tokens from a message at the start. Without dedup: rows as they are stored.
struct WireShape {
  std::int64_t row_bytes = 0;    ///< of a dispatch
  std::int64_t scale_bytes = 0;  ///< of a dispatched row
  std::int64_t returned_row_bytes = 0;
  int topk = 1;
  int num_columns = 0;      ///< counts that a dispatch announces inside a node: per rank and expert
  bool has_new_ids = true;  ///< a dispatch that counts sends the choices' experts
  bool has_weights = true;  ///< a dispatch sends their weights
  bool combines_weights = false;  ///< a combine sends them
  bool has_late_blocks = false;   ///< sizes are exact: where rows go is told after counting
  int stored_id_bytes = 8;

  /// A row with the choices and the source token that are stored with it.
  std::int64_t stored_bytes() const;
  std::int64_t net_row_bytes(Dedup dedup, Movement movement) const;
  std::int64_t lsa_row_bytes(Movement movement) const;
  /// What a rank tells every rank of its node at the start.
  std::int64_t announcement_bytes(Movement movement) const;
  /// What a rank with that many tokens tells its rail peers.
  std::int64_t message_bytes(Movement movement, std::int64_t num_tokens) const;
  /// Another message to each of them, of layout::kNetMessageBytes.
  bool has_block_message(Movement movement) const {
    return movement == Movement::kDispatch && has_late_blocks;
  }
};

/// Every put carries a signal; the other signals are credits, messages without payload.
template <class N>
struct NetTraffic {
  N bytes = 0;
  N puts = 0;
  N signals = 0;

  N messages() const { return signals; }
  NetTraffic& operator+=(const NetTraffic& other) {
    bytes += other.bytes;
    puts += other.puts;
    signals += other.signals;
    return *this;
  }
  bool operator==(const NetTraffic&) const = default;
};

template <class N>
struct Flow {
  NetTraffic<N> sent;
  NetTraffic<N> received;
  N lsa_sent_bytes = 0;  ///< to other ranks of the node
  N lsa_received_bytes = 0;

  Flow& operator+=(const Flow& other) {
    sent += other.sent;
    received += other.received;
    lsa_sent_bytes += other.lsa_sent_bytes;
    lsa_received_bytes += other.lsa_received_bytes;
    return *this;
  }
  bool operator==(const Flow&) const = default;
};

/// What one rank moves in an operation, its credits included.
template <class N>
struct RankTraffic {
  Flow<N> rows;
  Flow<N> announcements;

  Flow<N> total() const {
    Flow<N> sum = rows;
    sum += announcements;
    return sum;
  }
  RankTraffic& operator+=(const RankTraffic& other) {
    rows += other.rows;
    announcements += other.announcements;
    return *this;
  }
};

/// By rank, of routes of one step. A put and its signal count where they leave and where they
/// arrive.
template <class N>
std::vector<RankTraffic<N>> traffic_of(const RouteMatrix<N>& routes,
                                       const WireShape& wire,
                                       Movement movement);

/// Of all pairs of ranks in different nodes, what crosses the one with most rows; without credits
/// and announcements.
template <class N>
NetTraffic<N> busiest_link(const RouteMatrix<N>& routes, const WireShape& wire, Movement movement);

}  // namespace ep::bench
