// SPDX-License-Identifier: Apache-2.0
// What a process holds: for tests that nothing is left behind.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

namespace ep::test {

/// Of this process.
struct ProcessState {
  int num_fds = 0;
  int num_threads = 0;
  int num_mappings = 0;
  std::int64_t resident_bytes = 0;
};

ProcessState process_state();

/// Waits until this process has no more than `num_threads`: a joined thread is listed for a moment
/// longer. False after `limit`.
bool await_num_threads(int num_threads, std::chrono::milliseconds limit);

/// Names that a crash could leave: everything in /dev/shm, and the abstract
/// sockets whose name contains `job_id`.
std::set<std::string> named_leftovers(const std::string& job_id);

/// Children of this process, dead ones that were not waited for included.
int num_children();

}  // namespace ep::test
