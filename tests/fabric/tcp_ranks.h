// SPDX-License-Identifier: Apache-2.0
// Ranks of a TcpBootstrap as threads of a test, and ports and job ids that no other test uses.
#pragma once

#include <ep/bootstrap.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace ep::test {

/// Unique among processes and calls.
inline std::string private_job_id() {
  static std::atomic<int> count{0};
  return "test." + std::to_string(::getpid()) + "." + std::to_string(count.fetch_add(1));
}

/// One configuration per rank, of a job that meets at an abstract socket.
inline std::vector<TcpBootstrapConfig> local_configs(int num_ranks,
                                                     std::chrono::milliseconds timeout) {
  const std::string job_id = private_job_id();
  std::vector<TcpBootstrapConfig> configs;
  for (int rank = 0; rank < num_ranks; ++rank) {
    TcpBootstrapConfig config;
    config.rank = rank;
    config.num_ranks = num_ranks;
    config.job_id = job_id;
    config.timeout = timeout;
    configs.push_back(config);
  }
  return configs;
}

using BootstrapResult = Result<std::unique_ptr<Bootstrap>>;

/// make_tcp_bootstrap of all of them at once; results in the order of the configurations.
inline std::vector<BootstrapResult> connect_ranks(const std::vector<TcpBootstrapConfig>& configs) {
  std::vector<BootstrapResult> results;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    results.emplace_back(Status(Errc::kInternal, "not run"));
  }
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < configs.size(); ++i) {
      threads.emplace_back([&, i] { results[i] = make_tcp_bootstrap(configs[i]); });
    }
  }
  return results;
}

/// Runs `body` for every bootstrap on a thread of its own.
inline std::vector<Status> on_each(std::vector<BootstrapResult>& bootstraps,
                                   const std::function<Status(Bootstrap&)>& body) {
  std::vector<Status> statuses(bootstraps.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < bootstraps.size(); ++i) {
      threads.emplace_back([&, i] {
        statuses[i] = bootstraps[i].ok() ? body(**bootstraps[i]) : bootstraps[i].status();
      });
    }
  }
  return statuses;
}

}  // namespace ep::test
