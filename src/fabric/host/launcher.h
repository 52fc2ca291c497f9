// SPDX-License-Identifier: Apache-2.0
// Runs the roles of an operation on host channels: a channel is a thread, each of its roles a
// fiber.
#pragma once

#include "fabric/host/fibers.h"
#include "primitives/executor.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace ep::fabric {

/// One per group. Threads are started when a launch first needs them and sleep between launches.
class HostLauncher {
 public:
  /// A role: runs one lane.
  using Role = std::function<void(const primitives::Lane&)>;

  struct Launch {
    int num_channels = 1;
    std::span<const Role> roles;
    std::int64_t scratch_bytes = 0;  ///< per lane
  };

  HostLauncher();
  ~HostLauncher();
  HostLauncher(const HostLauncher&) = delete;
  HostLauncher& operator=(const HostLauncher&) = delete;

  /// Runs every role once per channel; returns when all have ended. The calling thread is channel
  /// 0, so that a launch of one channel wakes nobody. One launch at a time.
  void run(const Launch& launch);

 private:
  struct Channel;

  void grow(int num_channels);
  void serve(Channel& channel);

  std::vector<std::unique_ptr<Channel>> channels_;
  const Launch* launch_ = nullptr;
  std::atomic<std::uint32_t> num_running_{0};
  std::atomic<bool> is_stopping_{false};
};

}  // namespace ep::fabric
