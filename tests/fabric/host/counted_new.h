// SPDX-License-Identifier: Apache-2.0
// Counts every operator new of the program that links it.
#pragma once

#include <cstdint>

namespace ep::test {

/// Calls so far, of all threads.
std::int64_t num_allocations();

}  // namespace ep::test
