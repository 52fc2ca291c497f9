// SPDX-License-Identifier: Apache-2.0
// Engines of several ranks over local transports, made on threads and then driven by the test.
#pragma once

#include "fabric/net/net_engine.h"
#include "fabric/net/transport.h"

#include <ep/bootstrap.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ep::test {

/// What a test puts around the transport of a rank.
using WrapTransport =
    std::function<std::unique_ptr<fabric::Transport>(std::unique_ptr<fabric::Transport>)>;

struct EngineGroupOptions {
  int num_ranks = 2;
  fabric::TransportTraits traits{};
  fabric::NetConfig config{.has_service_thread = false};
  std::int64_t window_bytes = std::int64_t{1} << 16;
  WrapTransport wrap{};
  /// Per rank, in place of `config`.
  std::function<fabric::NetConfig(int rank)> config_of{};
};

class EngineGroup {
 public:
  /// Of all ranks; ok if the engines are there, with window 0 each.
  explicit EngineGroup(const EngineGroupOptions& options);

  const std::vector<Status>& statuses() const { return statuses_; }
  bool is_fine() const;

  fabric::NetEngine& engine(int rank) { return *engines_[static_cast<std::size_t>(rank)]; }
  void destroy(int rank) { engines_[static_cast<std::size_t>(rank)].reset(); }
  std::span<std::byte> memory(int rank) { return memories_[static_cast<std::size_t>(rank)]; }
  /// As 64-bit words.
  std::span<std::uint64_t> words(int rank);

  /// Progress once, in every context of every rank that is there.
  void drive();
  /// Until `is_done`, or so many rounds were not enough: false.
  bool drive_until(const std::function<bool()>& is_done, int max_rounds = 100'000);

 private:
  Status make(int rank, Bootstrap& bootstrap, const EngineGroupOptions& options);

  std::vector<std::vector<std::byte>> memories_;
  std::vector<std::unique_ptr<fabric::Transport>> transports_;
  std::vector<std::unique_ptr<fabric::NetEngine>> engines_;
  std::vector<Status> statuses_;
};

/// "ordered" or "unordered".
const char* name_of(fabric::ArrivalOrder order);

}  // namespace ep::test
