// SPDX-License-Identifier: Apache-2.0
// Shares out independent work over forked processes: what a mutant breaks ends with its process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ep::test {

struct WorkerResult {
  std::string text{};
  int exit_signal = 0;         ///< what ended the process, 0 if it ended by itself
  std::uint64_t progress = 0;  ///< what the work had stored there by then
};

/// Memory that outlives the process: what the work is at.
using Progress = std::uint64_t&;
using Work = std::function<std::string(std::size_t index, Progress progress)>;

/// work(i) for i in [0, count), each in a process of its own, `num_jobs` at a time; in order of i.
std::vector<WorkerResult> run_workers(std::size_t count, int num_jobs, const Work& work);

}  // namespace ep::test
