// SPDX-License-Identifier: Apache-2.0
// What is measured between two ranks: messages into the memory of the other one.
#pragma once

#include "base/deadline.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace ep::bench {

/// Bytes of the source go to the same place of the peer's target.
struct Message {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  bool is_announced = true;     ///< the peer learns of it
  bool speaks_for_all = false;  ///< and of all messages before it
};

/// Equal messages, one after another, in places that take turns.
struct Stream {
  std::int64_t bytes = 0;
  int num = 1;
  bool announces_each = true;  ///< else only the last one

  /// More than a processor's own caches, as far as they go.
  static constexpr std::int64_t kSpanBytes = std::int64_t{8} << 20;
  static constexpr std::int64_t kAlignment = 64;

  std::int64_t stride() const { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  int num_places() const;
  Message message(int index) const;
  int num_announced() const { return announces_each ? num : 1; }
};

/// Of two ranks. One of them sends at a time.
class Wire {
 public:
  Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  virtual ~Wire() = default;

  virtual std::string name() const = 0;
  virtual std::span<std::byte> source() = 0;
  virtual std::span<std::byte> target() = 0;

  /// Returns once the wire has taken it; the source may not change before flush().
  virtual Status send(const Message& message) = 0;
  /// Returns once all messages of the stream, sent since the last call, are in the target.
  virtual Status receive(const Stream& stream) = 0;
  virtual Status flush() = 0;
};

/// What both ranks' memory must hold for messages of at most this size.
std::int64_t wire_bytes(std::int64_t max_message_bytes);

/// Lets others run while there is nothing to do; looks at the clock now and then.
class Idler {
 public:
  explicit Idler(base::Deadline deadline) : deadline_(deadline) {}
  /// After a look that found something.
  void reset() { num_in_a_row_ = 0; }
  /// After one that did not. Errors: kPeerTimeout after the deadline.
  Status idle();

 private:
  const base::Deadline deadline_;
  int num_calls_ = 0;
  int num_in_a_row_ = 0;
};

struct WireOptions {
  std::int64_t bytes = 0;  ///< of source and of target
  std::chrono::milliseconds timeout{};
};

/// Collective: one connection over loopback.
Result<std::unique_ptr<Wire>> make_tcp_wire(Bootstrap& bootstrap, const WireOptions& options);

}  // namespace ep::bench
