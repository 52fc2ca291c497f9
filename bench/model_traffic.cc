// SPDX-License-Identifier: Apache-2.0
// Counts hops of a dispatch; a combine is read off backwards.
#include "bench/model_traffic.h"

#include "base/check.h"
#include "layout/announcement.h"
#include "layout/net_layout.h"

#include <algorithm>

namespace ep::bench {
namespace {

constexpr std::int64_t kIdBytes = 4;
constexpr std::int64_t kWeightBytes = 4;
constexpr std::int64_t kSourceTokenBytes = 4;
constexpr std::int64_t kCountBytes = 8;

template <class N>
using Traffics = std::vector<RankTraffic<N>>;

template <class N>
RankTraffic<N>& of_rank(Traffics<N>& ranks, int rank) {
  return ranks[static_cast<std::size_t>(rank)];
}

template <class N>
void add_put(Flow<N>& from, Flow<N>& to, const NetTraffic<N>& traffic) {
  from.sent += traffic;
  to.received += traffic;
}

template <class N>
void add_store(Flow<N>& from, Flow<N>& to, N bytes) {
  from.lsa_sent_bytes += bytes;
  to.lsa_received_bytes += bytes;
}

template <class N>
void add_rows(const RouteMatrix<N>& routes,
              const WireShape& wire,
              Movement movement,
              Traffics<N>& ranks) {
  const int num_ranks = routes.num_ranks();
  const auto net_row_bytes = static_cast<N>(wire.net_row_bytes(routes.shape().dedup, movement));
  const auto lsa_row_bytes = static_cast<N>(wire.lsa_row_bytes(movement));
  for (int src = 0; src < num_ranks; ++src) {
    for (int dst = 0; dst < num_ranks; ++dst) {
      const RouteCount<N>& count = routes.at(src, dst);
      if (src == dst || count.rows == 0) continue;
      Flow<N>& from = of_rank(ranks, movement == Movement::kDispatch ? src : dst).rows;
      Flow<N>& to = of_rank(ranks, movement == Movement::kDispatch ? dst : src).rows;
      if (routes.is_net(src, dst)) {
        add_put(from, to, {count.rows * net_row_bytes, count.chunks, count.chunks});
        add_put(to, from, {0, 0, count.chunks});  // credits
      } else {
        add_store(from, to, count.rows * lsa_row_bytes);
      }
    }
  }
}

template <class N>
class Announcer {
 public:
  Announcer(const RouteMatrix<N>& routes,
            const WireShape& wire,
            Movement movement,
            Traffics<N>& ranks)
      : routes_(routes),
        wire_(wire),
        movement_(movement),
        announcement_bytes_(static_cast<N>(wire.announcement_bytes(movement))),
        nodes_(routes.shape().nodes.map()),
        ranks_(ranks) {}

  void announce(int src) {
    tell_node(src, nodes_.node_of[src]);
    for (int node = 0; node < nodes_.num_nodes; ++node) {
      if (node == nodes_.node_of[src]) continue;
      if (routes_.shape().dedup == Dedup::kNode) {
        post_message(src, nodes_.rail_peer(src, node));
        tell_node(nodes_.rail_peer(src, node), node);
      } else {
        put_each(src, node);
      }
    }
  }

 private:
  Flow<N>& of(int rank) { return of_rank(ranks_, rank).announcements; }

  /// By load and store, to the other ranks of the teller's node.
  void tell_node(int teller, int node) {
    for (int dst = nodes_.first_rank(node); dst < nodes_.end_rank(node); ++dst) {
      if (dst != teller) add_store(of(teller), of(dst), announcement_bytes_);
    }
  }

  void post_message(int src, int peer) {
    const std::int64_t bytes = wire_.message_bytes(movement_, routes_.num_tokens(src));
    add_put(of(src), of(peer), {static_cast<N>(bytes), 1, 1});
    if (!wire_.has_block_message(movement_)) return;
    add_put(of(src), of(peer), {static_cast<N>(layout::kNetMessageBytes), 1, 1});
  }

  void put_each(int src, int node) {
    for (int dst = nodes_.first_rank(node); dst < nodes_.end_rank(node); ++dst) {
      add_put(of(src), of(dst), {announcement_bytes_, 1, 1});
    }
  }

  const RouteMatrix<N>& routes_;
  const WireShape& wire_;
  Movement movement_;
  N announcement_bytes_;
  layout::NodeMap nodes_;
  Traffics<N>& ranks_;
};

}  // namespace

Nodes::Nodes(int num_ranks, int lsa_size) : lsa_size_(lsa_size) {
  EP_CHECK(num_ranks >= 1 && lsa_size >= 1);
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (rank % lsa_size == 0) first_ranks_.push_back(rank);
    node_of_.push_back(rank / lsa_size);
  }
  first_ranks_.push_back(num_ranks);
}

layout::NodeMap Nodes::map() const {
  return {.num_nodes = num_nodes(), .first_ranks = first_ranks_.data(), .node_of = node_of_.data()};
}

template <class N>
RouteCount<N> net_total(const RouteMatrix<N>& routes) {
  const int num_ranks = routes.num_ranks();
  RouteCount<N> total;
  for (int src = 0; src < num_ranks; ++src) {
    for (int dst = 0; dst < num_ranks; ++dst) {
      if (!routes.is_net(src, dst)) continue;
      total.rows += routes.at(src, dst).rows;
      total.chunks += routes.at(src, dst).chunks;
    }
  }
  return total;
}

RouteCounter::RouteCounter(const RouteShape& shape, const ExpertMap& experts)
    : experts_(experts),
      routes_(shape),
      last_chunk_(static_cast<std::size_t>(shape.nodes.num_ranks())) {
  EP_CHECK(experts.num_ranks() == shape.nodes.num_ranks());
}

void RouteCounter::find_ranks(std::span<const std::int64_t> experts) {
  ranks_.clear();
  for (const std::int64_t expert : experts) {
    if (expert >= 0) ranks_.push_back(experts_.rank_of(static_cast<int>(expert)));
  }
  std::sort(ranks_.begin(), ranks_.end());
  ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
}

void RouteCounter::cross(int src, int dst, std::int64_t chunk) {
  RouteCount<std::int64_t>& count = routes_.at(src, dst);
  ++count.rows;
  std::int64_t& last = last_chunk_[static_cast<std::size_t>(dst)];
  if (last != chunk) ++count.chunks;
  last = chunk;
}

void RouteCounter::add(int src, std::span<const std::int64_t> topk_idx, int topk) {
  const RouteShape& shape = routes_.shape();
  const layout::NodeMap nodes = shape.nodes.map();
  std::fill(last_chunk_.begin(), last_chunk_.end(), -1);
  const auto num_choices = static_cast<std::size_t>(topk);
  routes_.num_tokens(src) += static_cast<std::int64_t>(topk_idx.size() / num_choices);
  for (std::size_t token = 0; (token + 1) * num_choices <= topk_idx.size(); ++token) {
    find_ranks(topk_idx.subspan(token * num_choices, num_choices));
    const std::int64_t chunk = static_cast<std::int64_t>(token) / shape.chunk_tokens;
    int last_node = -1;  // ranks of a node are neighbours in ranks_
    for (const int dst : ranks_) {
      const int node = nodes.node_of[dst];
      if (node == nodes.node_of[src]) {
        ++routes_.at(src, dst).rows;
      } else if (shape.dedup == Dedup::kNone) {
        cross(src, dst, chunk);
      } else {
        const int relay = nodes.rail_peer(src, node);
        if (node != last_node) cross(src, relay, chunk);
        ++routes_.at(relay, dst).rows;
      }
      last_node = node;
    }
  }
}

RouteMatrix<std::int64_t> count_routes(Routing& routing,
                                       int step,
                                       const RouteShape& shape,
                                       const ExpertMap& experts) {
  RouteCounter counter(shape, experts);
  for (int rank = 0; rank < shape.nodes.num_ranks(); ++rank) {
    const RankChoices choices = choices_of(routing, step, rank);
    counter.add(rank, choices.topk_idx, routing.config().topk);
  }
  return counter.routes();
}

std::int64_t WireShape::stored_bytes() const {
  const std::int64_t choice_bytes = stored_id_bytes + kWeightBytes;
  return row_bytes + scale_bytes + topk * choice_bytes + kSourceTokenBytes;
}

std::int64_t WireShape::net_row_bytes(Dedup dedup, Movement movement) const {
  if (movement == Movement::kCombine) return returned_row_bytes;
  return dedup == Dedup::kNode ? row_bytes + scale_bytes : stored_bytes();
}

std::int64_t WireShape::lsa_row_bytes(Movement movement) const {
  return movement == Movement::kCombine ? returned_row_bytes : stored_bytes();
}

std::int64_t WireShape::announcement_bytes(Movement movement) const {
  const auto fixed =
      static_cast<std::int64_t>(sizeof(layout::AnnouncedOp) + sizeof(layout::AnnouncedBlock));
  return movement == Movement::kCombine ? fixed : fixed + num_columns * kCountBytes;
}

std::int64_t WireShape::message_bytes(Movement movement, std::int64_t num_tokens) const {
  const bool is_dispatch = movement == Movement::kDispatch;
  const std::int64_t id_bytes = is_dispatch && has_new_ids ? kIdBytes : 0;
  const std::int64_t weight_bytes =
      (is_dispatch ? has_weights : combines_weights) ? kWeightBytes : 0;
  return layout::kNetMessageBytes + num_tokens * topk * (id_bytes + weight_bytes);
}

template <class N>
std::vector<RankTraffic<N>> traffic_of(const RouteMatrix<N>& routes,
                                       const WireShape& wire,
                                       Movement movement) {
  Traffics<N> ranks(static_cast<std::size_t>(routes.num_ranks()));
  add_rows(routes, wire, movement, ranks);
  Announcer<N> announcer(routes, wire, movement, ranks);
  for (int src = 0; src < routes.num_ranks(); ++src) announcer.announce(src);
  return ranks;
}

template <class N>
NetTraffic<N> busiest_link(const RouteMatrix<N>& routes, const WireShape& wire, Movement movement) {
  const int num_ranks = routes.num_ranks();
  RouteCount<N> most;
  for (int src = 0; src < num_ranks; ++src) {
    for (int dst = 0; dst < num_ranks; ++dst) {
      const RouteCount<N>& count = routes.at(src, dst);
      if (routes.is_net(src, dst) && count.rows > most.rows) most = count;
    }
  }
  return {most.rows * static_cast<N>(wire.net_row_bytes(routes.shape().dedup, movement)),
          most.chunks, most.chunks};
}

using Counted = std::int64_t;
template RouteCount<Counted> net_total(const RouteMatrix<Counted>&);
template RouteCount<double> net_total(const RouteMatrix<double>&);
template Traffics<Counted> traffic_of(const RouteMatrix<Counted>&, const WireShape&, Movement);
template Traffics<double> traffic_of(const RouteMatrix<double>&, const WireShape&, Movement);
template NetTraffic<Counted> busiest_link(const RouteMatrix<Counted>&, const WireShape&, Movement);
template NetTraffic<double> busiest_link(const RouteMatrix<double>&, const WireShape&, Movement);

}  // namespace ep::bench
