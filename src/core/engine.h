// SPDX-License-Identifier: Apache-2.0
// Where the operations of a group run: on threads of this process, or on a GPU.
#pragma once

#include "intranode/combine_params.h"
#include "intranode/dispatch_params.h"
#include "layout/report.h"

#include <ep/sm_budget.h>
#include <ep/status.h>
#include <ep/stream.h>

#include <cstdint>
#include <memory>

namespace ep::core {

/// One per group, used by one thread at a time. Between begin() and end() lies one call of a group;
/// read(), write() and report() may be used outside.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// Waits for what was launched.
  virtual ~Engine() = default;

  /// True: launch() and all else have ended when they return.
  virtual bool is_synchronous() const = 0;

  /// Starts a call on the stream, and makes the engine's device the thread's until end(). Error:
  /// kInvalidArgument for a stream that the engine cannot use; end() must follow all the same.
  virtual Status begin(Stream stream) = 0;
  virtual void end() = 0;
  /// Whether what the call launches is recorded into a graph instead of run.
  virtual bool is_capturing() const = 0;
  /// While capturing: the object lives as long as the graph.
  virtual void retain(std::shared_ptr<const void> object) = 0;

  // Ordered on the stream, behind the group's previous operation.

  virtual Status launch(const intranode::DispatchParams& params, int num_sms, Stream stream) = 0;
  virtual Status launch(const intranode::CombineParams& params, int num_sms, Stream stream) = 0;
  virtual Status fill_zero(void* dst, std::int64_t bytes, Stream stream) = 0;
  /// From memory of the host, which must stay as it is if the call is captured.
  virtual Status upload(void* dst, const void* src, std::int64_t bytes, Stream stream) = 0;
  /// Blocks until all of the above has ended.
  virtual Status wait(Stream stream) = 0;

  // At once, also while a kernel waits for peers; ordered behind nothing.

  /// Copies device memory to the host. 4 or 8 aligned bytes are read as one word, with acquire.
  virtual Status read(void* dst, const void* src, std::int64_t bytes) = 0;
  virtual Status write(void* dst, const void* src, std::int64_t bytes) = 0;

  /// kInvalidArgument unless roles can load and store what `address` points to.
  virtual Status check_memory(const void* address) const = 0;
  /// Whether a bias and a caller's output, too, need rows that are aligned to 16 bytes.
  virtual bool needs_aligned_sums() const = 0;

  /// A stream of the engine's own, for launches that the caller waits for.
  virtual Stream own_stream() const = 0;
  /// Words that roles write and the host reads at any time.
  virtual layout::OpReport& report() = 0;

  /// The largest budget.
  virtual int max_sms() const = 0;
  /// Budget of a call where nobody set one.
  virtual int suggest_sms(const OpShape& shape) const = 0;
};

/// Brackets a call.
class Turn {
 public:
  Turn(Engine& engine, Stream stream) : engine_(engine), status_(engine.begin(stream)) {}
  ~Turn() { engine_.end(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// Of begin().
  const Status& status() const { return status_; }

 private:
  Engine& engine_;
  Status status_;
};

}  // namespace ep::core
