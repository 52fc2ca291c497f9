// SPDX-License-Identifier: Apache-2.0
// Random routing with popular experts: the i-th most popular one has weight i^-exponent.
#include "base/check.h"
#include "bench/hash.h"
#include "bench/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ep::bench {
namespace {

/// Uniform in [0, 1), 53 bits.
double unit_double(std::uint64_t hashed) {
  constexpr int kDroppedBits = 11;
  return static_cast<double>(hashed >> kDroppedBits) * 0x1p-53;
}

class ZipfRouting : public Routing {
 public:
  ZipfRouting(const RoutingConfig& config, double exponent)
      : Routing(config), experts_(static_cast<std::size_t>(config.num_experts)) {
    // Popular experts lie anywhere, else those of the first ranks would be the popular ones.
    std::iota(experts_.begin(), experts_.end(), 0);
    for (std::size_t i = experts_.size(); i > 1; --i) {
      std::swap(experts_[i - 1], experts_[chain(config.seed, i) % i]);
    }
    for (std::size_t place = 0; place < experts_.size(); ++place) {
      begins_.push_back(sum_);
      sum_ += std::pow(static_cast<double>(place + 1), -exponent);
    }
  }

  void choose(int step, int rank, std::int64_t token, const Choice& choice) override {
    const std::uint64_t key = token_key(step, rank, token);
    taken_.clear();
    for (std::size_t k = 0; k < choice.experts.size(); ++k) {
      choice.experts[k] = experts_[draw(unit_double(chain(key, k)))];
      choice.weights[k] = (1 + unit_float(chain(key, ~k))) / static_cast<float>(config().topk);
    }
    if (config().exact) choose_exact_weights(key, choice.weights);
  }

 private:
  double end_of(std::size_t place) const {
    return place + 1 < begins_.size() ? begins_[place + 1] : sum_;
  }
  double weight_of(std::size_t place) const { return end_of(place) - begins_[place]; }

  /// A place that is not taken, by weight among these; takes it.
  std::size_t draw(double unit) {
    double left = sum_;
    for (const std::size_t place : taken_) left -= weight_of(place);
    double at = unit * left;
    for (const std::size_t place : taken_) {  // ascending: the gaps that they leave are skipped
      if (at >= begins_[place]) at += weight_of(place);
    }
    const auto above = std::upper_bound(begins_.begin(), begins_.end(), at);
    auto place = static_cast<std::size_t>(above - begins_.begin()) - 1;
    // Rounding can end in the edge of a taken one.
    while (std::binary_search(taken_.begin(), taken_.end(), place)) {
      place = (place + 1) % experts_.size();
    }
    taken_.insert(std::lower_bound(taken_.begin(), taken_.end(), place), place);
    return place;
  }

  std::vector<std::int64_t> experts_;  // by popularity
  std::vector<double> begins_;         // sum of the weights of all more popular ones
  double sum_ = 0;
  std::vector<std::size_t> taken_;  // by the token at hand, ascending
};

}  // namespace

std::unique_ptr<Routing> make_zipf_routing(const RoutingConfig& config, double exponent) {
  EP_CHECK(config.topk <= config.num_experts && exponent >= 0);
  return std::make_unique<ZipfRouting>(config, exponent);
}

}  // namespace ep::bench
