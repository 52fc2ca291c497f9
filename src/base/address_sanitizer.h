// SPDX-License-Identifier: Apache-2.0
// Memory that a program holds but may not touch, for AddressSanitizer; nothing in other builds.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define EP_HAS_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EP_HAS_ADDRESS_SANITIZER 1
#endif
#endif

#if defined(EP_HAS_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace ep::base {

#if defined(EP_HAS_ADDRESS_SANITIZER)
inline constexpr bool kHasAddressSanitizer = true;

inline void poison_memory(const void* address, std::size_t bytes) {
  __asan_poison_memory_region(address, bytes);
}
inline void unpoison_memory(const void* address, std::size_t bytes) {
  __asan_unpoison_memory_region(address, bytes);
}
inline bool is_memory_poisoned(const void* address) { return __asan_address_is_poisoned(address); }
#else
inline constexpr bool kHasAddressSanitizer = false;

inline void poison_memory(const void*, std::size_t) {}
inline void unpoison_memory(const void*, std::size_t) {}
inline bool is_memory_poisoned(const void*) { return false; }
#endif

}  // namespace ep::base
