// SPDX-License-Identifier: Apache-2.0
// A bootstrap that shows its rank something else than what the peers said.
#pragma once

#include <ep/bootstrap.h>

#include <functional>
#include <span>
#include <vector>

namespace ep::test {

class TamperingBootstrap final : public Bootstrap {
 public:
  /// Called with the number of the all_gather, from 0, and what all ranks contributed.
  using Tamper = std::function<void(int call, std::vector<Bytes>& contributions)>;

  TamperingBootstrap(Bootstrap& real, Tamper tamper) : real_(real), tamper_(std::move(tamper)) {}

  int rank() const override { return real_.rank(); }
  int num_ranks() const override { return real_.num_ranks(); }
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine,
                                        std::chrono::milliseconds timeout) override {
    auto answers = real_.all_gather(mine, timeout);
    if (answers.ok()) tamper_(num_calls_++, *answers);
    return answers;
  }

 private:
  Bootstrap& real_;
  Tamper tamper_;
  int num_calls_ = 0;
};

}  // namespace ep::test
