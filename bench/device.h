// SPDX-License-Identifier: Apache-2.0
// What a rank's rows lie in and what its operations run on: this processor, or a GPU with a stream.
#pragma once

#include "bench/check_tables.h"

#include <ep/config.h>
#include <ep/status.h>
#include <ep/stream.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace ep::bench {

/// An operation of the library, or a barrier of the ranks.
using Call = std::function<Status()>;

struct OpTime {
  double micros = 0;
  /// Of the host, until the operation was queued; empty where it waits for the operation's end.
  std::optional<double> host_micros;
};

/// Operations that were captured once and can be issued again at once.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  virtual ~Graph() = default;
  virtual Status launch() = 0;
};

/// Belongs to one rank and is used by its thread only.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// True if the processor reads and writes what operations read and write.
  virtual bool is_host() const = 0;
  virtual Stream stream() const = 0;

  /// Memory for inputs and outputs; null on the host, whose ordinary memory serves.
  virtual Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) = 0;
  /// Ordered on the stream, and complete on return.
  virtual Status copy_in(std::byte* device, std::span<const std::byte> host) = 0;
  virtual Status copy_out(std::span<std::byte> host, const std::byte* device) = 0;
  /// Ordered on the stream.
  virtual Status fill(std::byte* device, int byte, std::size_t bytes) = 0;
  /// Holds what is queued behind it.
  virtual Status delay(std::chrono::microseconds time) = 0;

  /// True if the two calls below work: they count wrong rows where they lie, ordered on the stream.
  /// Tables and `wrong` are in memory of the device.
  virtual bool can_check() const { return false; }
  virtual Status check(const ReceivedTable& table, WrongRows* wrong);
  virtual Status check(const OutputTable& table, WrongRows* wrong);
  virtual Status synchronize() = 0;

  /// Runs nothing. Errors also as `call`.
  virtual Result<std::unique_ptr<Graph>> capture(const Call& call) = 0;

  struct Timed {
    Call call;
    /// Collective: returns on all ranks at about the same time.
    Call meet;
    /// The call returns before its work is done: all ranks queue first, then all start.
    bool is_queued = false;
  };
  /// Collective. Errors also as the calls.
  virtual Result<OpTime> time(const Timed& timed) = 0;
};

std::unique_ptr<Device> make_host_device();
/// The GPU of a rank. Errors as read_gpus().
Result<std::unique_ptr<Device>> make_cuda_device(int rank);
Result<std::unique_ptr<Device>> make_device(Backend backend, int rank);

}  // namespace ep::bench
