// SPDX-License-Identifier: Apache-2.0
// Streams, graphs and a hog of SMs for tests of operations. All are of the thread's current device;
// nothing here waits for other work than its own. A failure ends the process.
#pragma once

#include <ep/stream.h>

#include <chrono>
#include <functional>
#include <memory>

namespace ep::test {

class GpuStream {
 public:
  GpuStream();
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  Stream get() const { return {handle_}; }
  void wait() const;

 private:
  void* handle_ = nullptr;
};

/// What was captured, and instances of it.
class GpuGraph {
 public:
  /// Captures what `calls` puts on the stream.
  GpuGraph(const GpuStream& stream, const std::function<void()>& calls);
  ~GpuGraph();
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;

  class Instance {
   public:
    explicit Instance(const GpuGraph& graph);
    ~Instance();
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;
    void launch(const GpuStream& stream) const;

   private:
    void* handle_ = nullptr;
  };

 private:
  void* handle_ = nullptr;
};

/// A foreign kernel that leaves no room for another CTA on all SMs but one. It ends when this is
/// destroyed, or at its own deadline.
class SmHog {
 public:
  explicit SmHog(std::chrono::milliseconds deadline);
  ~SmHog();
  SmHog(const SmHog&) = delete;
  SmHog& operator=(const SmHog&) = delete;

  /// Returns once it has all its SMs. False: it has not got them within the deadline.
  bool start();
  /// Whether its deadline ended it.
  bool has_expired() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace ep::test
