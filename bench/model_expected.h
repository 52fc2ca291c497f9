// SPDX-License-Identifier: Apache-2.0
// Closed form of what uniform routing moves: how many nodes or ranks a token is expected to reach.
//
// A token takes K different ones of E experts, all sets alike. None of them is among h given ones
// with the hypergeometric probability q(h) = C(E - h, K) / C(E, K); that is, a holder of h experts
// is reached with 1 - q(h). Expectations add up over holders (they need not be independent), so D,
// the number of holders reached, has
//   E[D]   = sum_i 1 - q(h_i)
//   Var[D] = sum_i q(h_i) (1 - q(h_i)) + sum_{i != j} q(h_i + h_j) - q(h_i) q(h_j).
// Tokens are independent: for a group of g tokens each q above becomes q^g.
// (W. Feller, An Introduction to Probability Theory and Its Applications, vol. 1, II.6 and IX.)
#pragma once

#include "bench/model_traffic.h"

#include <ep/expert_map.h>

#include <cstdint>
#include <span>

namespace ep::bench {

struct UniformTokens {
  std::int64_t num_tokens = 0;  ///< per rank
  int topk = 1;
};

/// q(held). Preconditions: 0 <= held <= num_experts, 1 <= topk <= num_experts.
double miss_chance(int num_experts, int topk, int held);

struct Moments {
  double mean = 0;
  double variance = 0;

  Moments& operator+=(const Moments& other) {
    mean += other.mean;
    variance += other.variance;
    return *this;
  }
};

/// Of the number of holders that a group of `group_tokens` tokens reaches, at least one.
Moments holders_reached(std::span<const int> held,
                        int num_experts,
                        int topk,
                        std::int64_t group_tokens);

/// Of rows and chunks over the network, all tokens of all ranks: net_total of a counted routing.
struct NetMoments {
  Moments rows;
  Moments chunks;
};
NetMoments expected_net(const RouteShape& shape,
                        const ExpertMap& experts,
                        const UniformTokens& tokens);

/// The means by pair of ranks.
RouteMatrix<double> expected_routes(const RouteShape& shape,
                                    const ExpertMap& experts,
                                    const UniformTokens& tokens);

}  // namespace ep::bench
