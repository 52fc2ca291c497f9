// SPDX-License-Identifier: Apache-2.0
// A rank's transport with a window, for tests: posts with patience and keeps what arrives.
#pragma once

#include "base/deadline.h"
#include "fabric/net/transport.h"
#include "fabric/ofi/ofi.h"
#include "tests/support/test_scale.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ep::test {

/// On every Linux machine: the loopback of the plain provider.
inline fabric::OfiConfig loopback_config() {
  fabric::OfiConfig config;
  config.interface = "127.0.0.1";
  return config;
}

inline constexpr std::chrono::milliseconds kPatience{20'000 * kSanitizerSlowdown};
inline base::Deadline test_deadline() { return base::Deadline::after(kPatience); }

/// A range of the only window of every rank.
struct TestWrite {
  int peer = 0;
  int context = 0;
  std::int64_t src = 0;
  std::int64_t dst = 0;
  std::int64_t bytes = 0;
  std::optional<std::uint32_t> immediate{};
  std::uint64_t cookie = 0;
};

class TestNet {
 public:
  /// Collective; all ranks have the same window_bytes.
  static Result<std::unique_ptr<TestNet>> make(Bootstrap& bootstrap,
                                               const fabric::OfiConfig& config,
                                               std::int64_t window_bytes);

  fabric::Transport& transport() { return *transport_; }
  std::span<std::byte> memory() { return memory_; }
  /// Of all contexts and kinds, in the order in which they were polled.
  const std::vector<fabric::NetEvent>& events() const { return events_; }
  int count(fabric::NetEvent::Kind kind) const;

  static fabric::WriteOp op_of(const TestWrite& write);
  /// Polls while the network is busy. Errors: failure(), kPeerTimeout at the deadline.
  Status write(const TestWrite& write);
  Status read(const fabric::ReadOp& op);
  /// Polls all contexts. Errors: kPeerTimeout at the deadline.
  Status poll_until(const std::function<bool()>& condition);
  void poll_once();
  /// Until all ranks have come, while the network goes on.
  Status meet(Bootstrap& bootstrap);

 private:
  Status post(const std::function<fabric::Posted()>& try_post, int context);

  std::vector<std::byte> memory_;
  std::unique_ptr<fabric::Transport> transport_;
  std::vector<fabric::NetEvent> events_;
};

}  // namespace ep::test
