// SPDX-License-Identifier: Apache-2.0
// The plain memcpy that dispatch and combine are compared with.
#pragma once

#include "bench/host_buffer.h"

#include <ep/group.h>
#include <ep/status.h>
#include <ep/tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace ep::bench {

/// The calling thread and `num_threads - 1` others that run a function together.
class Crew {
 public:
  explicit Crew(int num_threads);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  /// Runs work(member) for every member in [0, size()); returns when all are done.
  void run(const std::function<void(int)>& work);

 private:
  void serve(int member);

  std::vector<std::thread> threads_;
  const std::function<void(int)>* work_ = nullptr;  // null: end
  std::atomic<std::uint32_t> round_{0};
  std::atomic<int> num_busy_{0};
};

enum class CopyDirection : std::uint8_t {
  kIntoArena,  ///< dispatch: ordinary memory to a tensor of the arena
  kFromArena,  ///< combine: a tensor of the arena to ordinary memory
};

enum class CopyPieces : std::uint8_t {
  kRows,   ///< one memcpy per row
  kWhole,  ///< one memcpy per thread
};

class MemcpyBaseline {
 public:
  struct Config {
    std::int64_t max_bytes = 0;  ///< of one copy
    int num_sets = 1;            ///< pairs of buffers that the copies take in turn
    int num_threads = 1;
  };

  /// Local. Errors as Group::allocate.
  static Result<std::unique_ptr<MemcpyBaseline>> create(Group& group, const Config& config);

  struct Copy {
    CopyDirection direction = CopyDirection::kIntoArena;
    CopyPieces pieces = CopyPieces::kRows;
    std::int64_t num_rows = 0;
    std::int64_t row_bytes = 0;
  };
  /// num_rows * row_bytes must not exceed max_bytes.
  void run(const Copy& copy, int iteration);

 private:
  struct Set {
    HostBuffer ordinary;
    Tensor arena;
  };

  explicit MemcpyBaseline(int num_threads) : crew_(num_threads) {}

  std::vector<Set> sets_;
  Crew crew_;
};

}  // namespace ep::bench
