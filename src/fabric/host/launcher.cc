// SPDX-License-Identifier: Apache-2.0
// Worker threads of the host executor.
#include "fabric/host/launcher.h"

#include "primitives/relax.h"

#include <pthread.h>
#include <utility>

namespace ep::fabric {

struct HostLauncher::Channel {
  int index = 0;
  FiberSet fibers;
  std::vector<std::vector<std::byte>> scratch;  // per role
  std::vector<FiberSet::Task> tasks;
  std::atomic<std::uint32_t> generation{0};  // launches this channel was called for
  std::thread thread;                        // none for channel 0

  void run(const Launch& launch);
};

void HostLauncher::Channel::run(const Launch& launch) {
  if (scratch.size() < launch.roles.size()) scratch.resize(launch.roles.size());
  tasks.clear();
  for (std::size_t i = 0; i < launch.roles.size(); ++i) {
    if (scratch[i].size() < static_cast<std::size_t>(launch.scratch_bytes)) {
      scratch[i].resize(static_cast<std::size_t>(launch.scratch_bytes));
    }
    const primitives::Lane lane{.channel = index, .scratch = scratch[i].data()};
    tasks.emplace_back([&role = launch.roles[i], lane] { role(lane); });
  }
  fibers.run(tasks);
}

HostLauncher::HostLauncher() = default;

HostLauncher::~HostLauncher() {
  is_stopping_.store(true, std::memory_order_relaxed);  // the generation below publishes it
  for (const auto& channel : channels_) {
    channel->generation.fetch_add(1, std::memory_order_release);  // [sync:launch] release
    channel->generation.notify_one();
    if (channel->thread.joinable()) channel->thread.join();
  }
}

void HostLauncher::grow(int num_channels) {
  while (static_cast<int>(channels_.size()) < num_channels) {
    auto channel = std::make_unique<Channel>();
    channel->index = static_cast<int>(channels_.size());
    Channel& served = *channel;
    if (channel->index > 0) {
      channel->thread = std::thread([this, &served] { serve(served); });
      pthread_setname_np(channel->thread.native_handle(), "ep-channel");
    }
    channels_.push_back(std::move(channel));
  }
}

void HostLauncher::serve(Channel& channel) {
  for (std::uint32_t seen = 0;; ++seen) {
    channel.generation.wait(seen, std::memory_order_acquire);  // [sync:launch] acquire: launch_
    if (is_stopping_.load(std::memory_order_relaxed)) return;
    channel.run(*launch_);
    num_running_.fetch_sub(1, std::memory_order_release);  // [sync:landed] release: the roles' work
  }
}

void HostLauncher::run(const Launch& launch) {
  grow(launch.num_channels);
  launch_ = &launch;
  num_running_.store(static_cast<std::uint32_t>(launch.num_channels - 1),
                     std::memory_order_relaxed);
  for (int i = 1; i < launch.num_channels; ++i) {
    Channel& channel = *channels_[static_cast<std::size_t>(i)];
    channel.generation.fetch_add(1, std::memory_order_release);  // [sync:launch] release: launch_
    channel.generation.notify_one();
  }
  channels_[0]->run(launch);
  const auto num_running = [this] {
    return num_running_.load(std::memory_order_acquire);  // [sync:landed] acquire
  };
  for (int polls = 1; num_running() > 0; ++polls) primitives::back_off(polls);
}

}  // namespace ep::fabric
