// SPDX-License-Identifier: Apache-2.0
// What a process holds: for tests that nothing is left behind.
#include "tests/support/process_state.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <unistd.h>

namespace ep::test {
namespace {

int num_entries(const char* folder) {
  std::error_code gone;
  const std::filesystem::directory_iterator entries(folder, gone);
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

int num_lines(const char* path) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line);) ++count;
  return count;
}

void add_names(const std::filesystem::path& folder, std::set<std::string>& names) {
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(folder, gone))
    names.insert(entry.path().string());
}

}  // namespace

ProcessState process_state() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total_pages = 0;
  std::int64_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return {.num_fds = num_entries("/proc/self/fd"),
          .num_threads = num_entries("/proc/self/task"),
          .num_mappings = num_lines("/proc/self/maps"),
          .resident_bytes = resident_pages * sysconf(_SC_PAGESIZE)};
}

bool await_num_threads(int num_threads, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (num_entries("/proc/self/task") > num_threads) {
    if (std::chrono::steady_clock::now() > deadline) return false;
  }
  return true;
}

std::set<std::string> named_leftovers(const std::string& job_id) {
  std::set<std::string> names;
  add_names("/dev/shm", names);
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (line.find(job_id) != std::string::npos) names.insert(line);
  }
  return names;
}

int num_children() {
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  int count = 0;
  for (int pid = 0; file >> pid;) ++count;
  return count;
}

}  // namespace ep::test
