// SPDX-License-Identifier: Apache-2.0
// Memory accesses of the CUDA executor: the names of HostMemory (memory.h), spelled in PTX.
//
// All addresses lie in global memory: this GPU's, a peer's, or mapped memory of the host. Relaxed
// accesses clobber memory too, so that the compiler keeps them in place among plain accesses of the
// same words.
#pragma once

#include "base/macros.h"

#include <cstdint>
#include <type_traits>

namespace ep::primitives {

struct CudaMemory {
  /// Weak accesses. An acquire discards what L1 holds, so a load behind it sees what the release
  /// published.
  template <class T>
  EP_DEVICE static T load(const T* address) {
    return *address;
  }
  template <class T>
  EP_DEVICE static void store(T* address, T value) {
    *address = value;
  }

  template <class T>
  EP_DEVICE static T load_relaxed_gpu(const T* address) {
    Word<T> word;
    if constexpr (kIsWide<T>) {
      asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
    } else {
      asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    }
    return static_cast<T>(word);
  }
  template <class T>
  EP_DEVICE static T load_relaxed_sys(const T* address) {
    Word<T> word;
    if constexpr (kIsWide<T>) {
      asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
    } else {
      asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    }
    return static_cast<T>(word);
  }
  template <class T>
  EP_DEVICE static T load_acquire_gpu(const T* address) {
    Word<T> word;
    if constexpr (kIsWide<T>) {
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
    } else {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    }
    return static_cast<T>(word);
  }
  template <class T>
  EP_DEVICE static T load_acquire_sys(const T* address) {
    Word<T> word;
    if constexpr (kIsWide<T>) {
      asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
    } else {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    }
    return static_cast<T>(word);
  }

  template <class T>
  EP_DEVICE static void store_relaxed_gpu(T* address, T value) {
    const auto word = static_cast<Word<T>>(value);
    if constexpr (kIsWide<T>) {
      asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
    } else {
      asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
    }
  }
  template <class T>
  EP_DEVICE static void store_relaxed_sys(T* address, T value) {
    const auto word = static_cast<Word<T>>(value);
    if constexpr (kIsWide<T>) {
      asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
    } else {
      asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
    }
  }
  template <class T>
  EP_DEVICE static void store_release_gpu(T* address, T value) {
    const auto word = static_cast<Word<T>>(value);
    if constexpr (kIsWide<T>) {
      asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
    } else {
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
    }
  }
  template <class T>
  EP_DEVICE static void store_release_sys(T* address, T value) {
    const auto word = static_cast<Word<T>>(value);
    if constexpr (kIsWide<T>) {
      asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
    } else {
      asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
    }
  }

  template <class T>
  EP_DEVICE static T fetch_add_relaxed_gpu(T* address, T value) {
    const auto word = static_cast<Word<T>>(value);
    Word<T> before;
    if constexpr (kIsWide<T>) {
      asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
                   : "=l"(before)
                   : "l"(address), "l"(word)
                   : "memory");
    } else {
      asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
                   : "=r"(before)
                   : "l"(address), "r"(word)
                   : "memory");
    }
    return static_cast<T>(before);
  }
  template <class T>
  EP_DEVICE static T fetch_add_acq_rel_gpu(T* address, T value) {
    const auto word = static_cast<Word<T>>(value);
    Word<T> before;
    if constexpr (kIsWide<T>) {
      asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
                   : "=l"(before)
                   : "l"(address), "l"(word)
                   : "memory");
    } else {
      asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                   : "=r"(before)
                   : "l"(address), "r"(word)
                   : "memory");
    }
    return static_cast<T>(before);
  }
  template <class T>
  EP_DEVICE static void add_relaxed_gpu(T* address, T value) {
    const auto word = static_cast<Word<T>>(value);
    if constexpr (kIsWide<T>) {
      asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
    } else {
      asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
    }
  }
  template <class T>
  EP_DEVICE static void add_release_gpu(T* address, T value) {
    const auto word = static_cast<Word<T>>(value);
    if constexpr (kIsWide<T>) {
      asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
    } else {
      asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
    }
  }
  template <class T>
  EP_DEVICE static void add_release_sys(T* address, T value) {
    const auto word = static_cast<Word<T>>(value);
    if constexpr (kIsWide<T>) {
      asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
    } else {
      asm volatile("red.release.sys.global.add.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
    }
  }

  /// *address = max(*address, value).
  template <class T>
  EP_DEVICE static void max_relaxed_gpu(T* address, T value) {
    static_assert(std::is_unsigned_v<T>, "compared as unsigned");
    if constexpr (kIsWide<T>) {
      asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(address), "l"(value)
                   : "memory");
    } else {
      asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(address), "r"(value)
                   : "memory");
    }
  }

  /// Stores `desired` if *address is `expected`; true if it did.
  template <class T>
  EP_DEVICE static bool compare_exchange_relaxed_sys(T* address, T expected, T desired) {
    static_assert(std::is_unsigned_v<T>);
    T before;
    if constexpr (kIsWide<T>) {
      asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;"
                   : "=l"(before)
                   : "l"(address), "l"(expected), "l"(desired)
                   : "memory");
    } else {
      asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;"
                   : "=r"(before)
                   : "l"(address), "r"(expected), "r"(desired)
                   : "memory");
    }
    return before == expected;
  }

 private:
  template <class T>
  static constexpr bool kIsWide = sizeof(T) == sizeof(std::uint64_t);

  // Signed values are added as unsigned words: two's complement gives the same bits.
  template <class T>
  using Word = std::conditional_t<sizeof(T) == sizeof(std::uint64_t), std::uint64_t, std::uint32_t>;
};

}  // namespace ep::primitives
