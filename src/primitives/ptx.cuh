// SPDX-License-Identifier: Apache-2.0
// PTX instructions that CUDA C++ has no spelling for: bulk copies, mbarriers, proxy fences, timers.
#pragma once

#include "base/macros.h"

#include <cstddef>
#include <cstdint>

namespace ep::primitives {

// Read it in device code only: a host pass sees false, so it must not shape a host type or a
// launch.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kHasTma = true;
#else
inline constexpr bool kHasTma = false;
#endif

/// 16 bytes, the widest access of one thread.
struct alignas(16) Vector {
  std::uint32_t words[4];
};

/// The shared-window address of a generic pointer into shared memory.
EP_DEVICE inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Nanoseconds of a clock that all SMs share. It ticks about once a microsecond: for deadlines, not
/// for profiles.
EP_DEVICE inline std::uint64_t global_timer_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

/// The SM that this thread runs on, below %nsmid.
EP_DEVICE inline std::uint32_t sm_id() {
  std::uint32_t id;
  asm volatile("mov.u32 %0, %smid;" : "=r"(id));
  return id;
}

/// A load that leaves no line in L1: rows are read once.
EP_DEVICE inline Vector load_streamed(const std::byte* address) {
  Vector v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
               : "l"(address)
               : "memory");
  return v;
}

/// A store that is evicted first: nobody on this GPU reads the row soon.
EP_DEVICE inline void store_streamed(std::byte* address, const Vector& v) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.words[0]),
               "r"(v.words[1]), "r"(v.words[2]), "r"(v.words[3])
               : "memory");
}

/// *word |= bits, among the threads of a CTA. Relaxed: a sync() of the group orders it.
EP_DEVICE inline void or_shared(std::uint32_t* word, std::uint32_t bits) {
  asm volatile("red.relaxed.cta.shared.or.b32 [%0], %1;" ::"r"(shared_address(word)), "r"(bits)
               : "memory");
}

/// Two bf16 rounded to nearest even, `low` in the low half; a NaN is 0x7FFF (layout/numeric.h).
EP_DEVICE inline std::uint32_t bf16_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Two fp16, as bf16_pair.
EP_DEVICE inline std::uint32_t fp16_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Sums of two pairs of bf16, each rounded once to nearest even; a NaN is 0x7FFF. a * 1 + b: sm_80
/// has no plain addition.
EP_DEVICE inline std::uint32_t add_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kOnes = 0x3F803F80U;
  std::uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(kOnes), "r"(b));
  return sum;
}

/// Two pairs of fp16, as add_bf16_pairs.
EP_DEVICE inline std::uint32_t add_fp16_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}

EP_DEVICE inline float fp16_widened(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

/// One arrival completes a phase, once its bytes have landed as well.
EP_DEVICE inline void mbarrier_init(std::uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

/// Makes this thread's mbarrier_init calls visible to the bulk copies that it starts later.
EP_DEVICE inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// The arrival of a phase that also needs `bytes` to land.
EP_DEVICE inline void mbarrier_arrive_expecting(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

/// Waits until the phase of that parity has completed. It needs no deadline: a bulk load either
/// lands or faults.
EP_DEVICE inline void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t is_complete = 0;
  while (is_complete == 0) {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete;\n"
        "}"
        : "=r"(is_complete)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

/// Starts a bulk copy whose end completes the barrier's phase. Sizes and addresses of bulk copies
/// are multiples of 16.
EP_DEVICE inline void bulk_load(std::byte* shared,
                                const std::byte* global,
                                std::uint32_t bytes,
                                std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

/// Starts a bulk copy that belongs to this thread's open group.
EP_DEVICE inline void bulk_store(std::byte* global, const std::byte* shared, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}

/// Closes this thread's group of bulk stores.
EP_DEVICE inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// All but the newest kPending groups of this thread have read their source.
template <int kPending>
EP_DEVICE void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// All but the newest kPending groups of this thread are complete: their bytes are where they
/// belong, visible to this thread.
template <int kPending>
EP_DEVICE void bulk_wait_landed() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

/// As bulk_wait_landed, for all groups.
EP_DEVICE inline void bulk_wait_all() { bulk_wait_landed<0>(); }

/// Orders completed bulk stores before a release that follows: without it the release covers only
/// ordinary stores.
EP_DEVICE inline void fence_async_proxy_release() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

/// Orders an acquire, and what it made visible, before bulk copies that follow.
EP_DEVICE inline void fence_async_proxy_acquire() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

}  // namespace ep::primitives
