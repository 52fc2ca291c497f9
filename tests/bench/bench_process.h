// SPDX-License-Identifier: Apache-2.0
// Starts ep-bench as its users do, and reads what it prints.
#pragma once

#include <nlohmann/json.hpp>

#include <chrono>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace ep::test {

using Environment = std::vector<std::pair<std::string, std::string>>;

struct BenchOutcome {
  int exit_code = -1;  ///< 128 + signal if it was killed
  std::string out;
  std::string err;

  /// The JSON lines of `out`.
  std::vector<nlohmann::json> lines() const;
  /// The last line of `out` or `err`.
  std::string last_line() const { return last_line_of(out); }
  static std::string last_line_of(const std::string& text);
};

class BenchProcess {
 public:
  /// `added` is set in the environment beside what this process has, without a launcher's
  /// variables.
  explicit BenchProcess(const std::vector<std::string>& args, const Environment& added = {});
  BenchProcess(const BenchProcess&) = delete;
  BenchProcess& operator=(const BenchProcess&) = delete;
  /// Kills the process if nobody waited for it.
  ~BenchProcess();

  pid_t pid() const { return pid_; }
  /// The ranks that it has forked, once there are `count`; fewer if they do not come in time.
  std::vector<pid_t> wait_for_children(std::size_t count) const;
  /// Reads until the program and all who hold its output have ended.
  BenchOutcome wait();

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
};

BenchOutcome run_bench(const std::vector<std::string>& args, const Environment& added = {});

/// "a b c" as arguments.
std::vector<std::string> words_of(const std::string& text);

/// True once `pid` is no living process (a zombie is none), at the latest after `timeout`.
bool is_gone_within(pid_t pid, std::chrono::milliseconds timeout);

/// Sanitized ranks start and run more slowly.
std::chrono::milliseconds bench_patience();

}  // namespace ep::test
