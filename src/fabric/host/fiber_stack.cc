// SPDX-License-Identifier: Apache-2.0
// The stack of a fiber.
#include "fabric/host/fiber_stack.h"

#include "base/check.h"

#include <sys/mman.h>
#include <unistd.h>

namespace ep::fabric {
namespace {

// Deep enough for a role, its reduction of 32 terms and a sanitizer's red zones.
constexpr std::size_t kStackBytes = std::size_t{256} * 1024;

}  // namespace

FiberStack::FiberStack() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  bytes_ = kStackBytes + page;
  base_ =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  EP_CHECK(base_ != MAP_FAILED);
  EP_CHECK(mprotect(base_, page, PROT_NONE) == 0);
}

FiberStack::~FiberStack() { munmap(base_, bytes_); }

boost::context::stack_context FiberStack::context() const {
  boost::context::stack_context context;
  context.size = bytes_;
  context.sp = static_cast<std::byte*>(base_) + bytes_;
  return context;
}

}  // namespace ep::fabric
