// SPDX-License-Identifier: Apache-2.0
// The stack of a fiber, with a guard page below it; it outlives the fiber and serves the next one.
#pragma once

#include <boost/context/fiber.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace ep::fabric {

class FiberStack {
 public:
  FiberStack();
  ~FiberStack();
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;

  const void* bottom() const { return base_; }
  std::size_t bytes() const { return bytes_; }

  /// A fiber on this stack that has not begun; `body` takes and returns the context of its caller.
  template <class Body>
  boost::context::fiber make_fiber(Body&& body) const {
    const boost::context::stack_context stack = context();
    return boost::context::fiber(std::allocator_arg,
                                 boost::context::preallocated(stack.sp, stack.size, stack),
                                 Kept(stack), std::forward<Body>(body));
  }

 private:
  /// Boost's allocator interface over a stack that outlives the fiber.
  class Kept {
   public:
    explicit Kept(boost::context::stack_context context) : context_(context) {}
    boost::context::stack_context allocate() { return context_; }
    void deallocate(boost::context::stack_context& /*context*/) {}

   private:
    boost::context::stack_context context_;
  };

  boost::context::stack_context context() const;

  void* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ep::fabric
