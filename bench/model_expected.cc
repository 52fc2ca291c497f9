// SPDX-License-Identifier: Apache-2.0
// Holders with equally many experts are taken together: a balanced map has two kinds.
#include "bench/model_expected.h"

#include <cmath>
#include <map>
#include <vector>

namespace ep::bench {
namespace {

int held_by_node(const Nodes& nodes, const ExpertMap& experts, int node) {
  const layout::NodeMap map = nodes.map();
  int held = 0;
  for (int rank = map.first_rank(node); rank < map.end_rank(node); ++rank) {
    held += experts.num_local(rank);
  }
  return held;
}

/// Experts of every holder in other nodes that a rank of `node` sends to.
std::vector<int> remote_holders(const RouteShape& shape, const ExpertMap& experts, int node) {
  std::vector<int> held;
  if (shape.dedup == Dedup::kNode) {
    for (int other = 0; other < shape.nodes.num_nodes(); ++other) {
      if (other != node) held.push_back(held_by_node(shape.nodes, experts, other));
    }
    return held;
  }
  for (int rank = 0; rank < shape.nodes.num_ranks(); ++rank) {
    if (shape.nodes.map().node_of[rank] != node) held.push_back(experts.num_local(rank));
  }
  return held;
}

/// Chances of one source.
class Source {
 public:
  Source(const RouteShape& shape, const ExpertMap& experts, const UniformTokens& tokens)
      : shape_(shape), experts_(experts), tokens_(tokens) {}

  RouteCount<double> to_holder(int held) const {
    const double miss = miss_chance(experts_.num_experts(), tokens_.topk, held);
    const std::int64_t num_full = tokens_.num_tokens / shape_.chunk_tokens;
    const std::int64_t rest = tokens_.num_tokens % shape_.chunk_tokens;
    const double full_hit = 1 - std::pow(miss, shape_.chunk_tokens);
    const double rest_hit = 1 - std::pow(miss, static_cast<double>(rest));
    return {.rows = static_cast<double>(tokens_.num_tokens) * (1 - miss),
            .chunks = static_cast<double>(num_full) * full_hit + rest_hit};
  }
  RouteCount<double> to_rank(int rank) const { return to_holder(experts_.num_local(rank)); }
  RouteCount<double> to_node(int node) const {
    return to_holder(held_by_node(shape_.nodes, experts_, node));
  }

 private:
  const RouteShape& shape_;
  const ExpertMap& experts_;
  const UniformTokens& tokens_;
};

void add(RouteCount<double>& sum, const RouteCount<double>& count) {
  sum.rows += count.rows;
  sum.chunks += count.chunks;
}

void expect_node(const Source& source, int src, int node, RouteMatrix<double>& routes) {
  const RouteShape& shape = routes.shape();
  const layout::NodeMap map = shape.nodes.map();
  const bool is_own = map.node_of[src] == node;
  const bool is_relayed = !is_own && shape.dedup == Dedup::kNode;
  const int relay = is_relayed ? map.rail_peer(src, node) : src;
  if (is_relayed) add(routes.at(src, relay), source.to_node(node));
  for (int dst = map.first_rank(node); dst < map.end_rank(node); ++dst) {
    RouteCount<double> count = source.to_rank(dst);
    if (!routes.is_net(relay, dst)) count.chunks = 0;
    add(routes.at(relay, dst), count);
  }
}

}  // namespace

double miss_chance(int num_experts, int topk, int held) {
  double chance = 1;
  for (int k = 0; k < topk; ++k) {
    if (num_experts - held - k <= 0) return 0;
    chance *= static_cast<double>(num_experts - held - k) / static_cast<double>(num_experts - k);
  }
  return chance;
}

Moments holders_reached(std::span<const int> held,
                        int num_experts,
                        int topk,
                        std::int64_t group_tokens) {
  std::map<int, double> kinds;  // how many holders have that many experts
  for (const int count : held) kinds[count] += 1;
  const auto all_miss = [&](int count) {
    return std::pow(miss_chance(num_experts, topk, count), static_cast<double>(group_tokens));
  };
  Moments moments;
  for (const auto& [a, num_a] : kinds) {
    const double miss_a = all_miss(a);
    moments.mean += num_a * (1 - miss_a);
    moments.variance += num_a * miss_a * (1 - miss_a);
    for (const auto& [b, num_b] : kinds) {
      const double num_pairs = num_a * (a == b ? num_b - 1 : num_b);
      if (num_pairs > 0) moments.variance += num_pairs * (all_miss(a + b) - miss_a * all_miss(b));
    }
  }
  return moments;
}

NetMoments expected_net(const RouteShape& shape,
                        const ExpertMap& experts,
                        const UniformTokens& tokens) {
  NetMoments moments;
  const std::int64_t num_full = tokens.num_tokens / shape.chunk_tokens;
  const std::int64_t rest = tokens.num_tokens % shape.chunk_tokens;
  for (int node = 0; node < shape.nodes.num_nodes(); ++node) {
    const std::vector<int> held = remote_holders(shape, experts, node);
    const auto add_groups = [&](std::int64_t group_tokens, std::int64_t num_groups, Moments& sum) {
      const Moments one = holders_reached(held, experts.num_experts(), tokens.topk, group_tokens);
      const auto num = static_cast<double>(num_groups * shape.nodes.map().size_of(node));
      sum += {.mean = num * one.mean, .variance = num * one.variance};
    };
    add_groups(1, tokens.num_tokens, moments.rows);
    add_groups(shape.chunk_tokens, num_full, moments.chunks);
    if (rest > 0) add_groups(rest, 1, moments.chunks);
  }
  return moments;
}

RouteMatrix<double> expected_routes(const RouteShape& shape,
                                    const ExpertMap& experts,
                                    const UniformTokens& tokens) {
  RouteMatrix<double> routes(shape);
  const Source source(shape, experts, tokens);
  for (int src = 0; src < shape.nodes.num_ranks(); ++src) {
    routes.num_tokens(src) = tokens.num_tokens;
    for (int node = 0; node < shape.nodes.num_nodes(); ++node) {
      expect_node(source, src, node, routes);
    }
  }
  return routes;
}

}  // namespace ep::bench
