// SPDX-License-Identifier: Apache-2.0
// Counts every operator new of the program that links it.
#include "tests/fabric/host/counted_new.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> num_calls{0};

}  // namespace

void* operator new(std::size_t bytes) {
  num_calls.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }

namespace ep::test {

std::int64_t num_allocations() { return num_calls.load(std::memory_order_relaxed); }

}  // namespace ep::test
