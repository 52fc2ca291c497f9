// SPDX-License-Identifier: Apache-2.0
// Random operations of engines over chaos, and what must hold after each step.
#pragma once

#include "tests/fabric/chaos/engine_net.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ep::test {

struct TrafficOptions {
  std::uint64_t seed = 1;
  fabric::ArrivalOrder order = fabric::ArrivalOrder::kUnordered;
  int num_ops = 200;
  std::uint64_t first_number = 0;
  int duplicate_source_free_permille = 0;
};

/// Every operation has memory of its own, at its number in every window, and a signal or counter of
/// its own unless it is strong: those of a stream add to one.
class EngineTraffic {
 public:
  explicit EngineTraffic(const TrafficOptions& options);

  /// All operations, then a remote flush. What was wrong; empty: nothing.
  std::string run();
  EngineNet& net() { return net_; }
  /// Calls that were refused.
  int num_refused() const { return num_refused_; }

 private:
  enum class Kind : std::uint8_t { kPut, kValue, kSignal, kGet };
  struct Op {
    Kind kind = Kind::kPut;
    int rank = 0;
    int peer = 0;
    int context = 0;
    std::int64_t bytes = 0;  ///< 0: a signal
    primitives::NetSignal signal{};
    bool is_posted = false;
    bool is_over = false;  ///< weak, get: seen
    bool is_source_poisoned = false;
  };
  /// Strong signals from one rank, in a context, at another one.
  struct Stream {
    std::vector<std::size_t> ops{};
    std::size_t num_seen = 0;  ///< ops up to the newest strong signal that was seen
    std::uint64_t sum = 0;
  };
  struct Flush {
    bool is_open = false;
    std::vector<std::size_t> covers{};
  };

  Op random_op();
  std::uint32_t strong_slot(int rank, int context) const;
  std::uint32_t own_number(std::size_t op) const;
  Stream& stream(const Op& op);
  Flush& flush(int rank, int context);

  void post_some();
  bool post(std::size_t number);
  void start_flush(int rank, int context);
  void look();
  void look_at_strong(const Op& op);
  void look_at_own(std::size_t number);
  void look_at_flushes(int rank, int context);
  void poison_sources(int rank, int context);
  void flush_all();
  void check_end();

  std::byte* at(int rank, std::size_t number);
  static std::byte content(std::size_t number);
  void fill(int rank, std::size_t number, std::int64_t bytes, std::byte value);
  /// Whether what the operation brings is where it belongs.
  bool has_landed(std::size_t number);
  void fail(std::size_t number, const std::string& what);

  const TrafficOptions options_;
  EngineNet net_;
  fabric::ChaosRandom random_;
  std::vector<Op> ops_;
  std::vector<Stream> streams_;
  std::vector<Flush> flushes_;
  std::vector<std::size_t> open_;  ///< weak and get, not seen
  std::size_t next_ = 0;
  int num_refused_ = 0;
  std::string wrong_;
};

}  // namespace ep::test
