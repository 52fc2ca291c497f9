// SPDX-License-Identifier: Apache-2.0
// Memory accesses of the host executor, named by guarantee and scope; memory.cuh spells the same
// names for a GPU.
//
// Scopes: `gpu` reaches the roles of this rank, `sys` every rank. On the host both are the same.
// `load` and `store` are plain accesses of shared data whose order somebody else guarantees.
#pragma once

#include <atomic>
#include <cstdint>

namespace ep::primitives {

struct HostMemory {
  template <class T>
  static T load(const T* address) {
    return *address;
  }
  template <class T>
  static void store(T* address, T value) {
    *address = value;
  }

  template <class T>
  static T load_relaxed_gpu(const T* address) {
    return ref(address).load(std::memory_order_relaxed);
  }
  template <class T>
  static T load_relaxed_sys(const T* address) {
    return ref(address).load(std::memory_order_relaxed);
  }
  template <class T>
  static T load_acquire_gpu(const T* address) {
    return ref(address).load(std::memory_order_acquire);
  }
  template <class T>
  static T load_acquire_sys(const T* address) {
    return ref(address).load(std::memory_order_acquire);
  }

  template <class T>
  static void store_relaxed_gpu(T* address, T value) {
    ref(address).store(value, std::memory_order_relaxed);
  }
  template <class T>
  static void store_relaxed_sys(T* address, T value) {
    ref(address).store(value, std::memory_order_relaxed);
  }
  template <class T>
  static void store_release_gpu(T* address, T value) {
    ref(address).store(value, std::memory_order_release);
  }
  template <class T>
  static void store_release_sys(T* address, T value) {
    ref(address).store(value, std::memory_order_release);
  }

  template <class T>
  static T fetch_add_relaxed_gpu(T* address, T value) {
    return ref(address).fetch_add(value, std::memory_order_relaxed);
  }
  /// release and acquire
  template <class T>
  static T fetch_add_acq_rel_gpu(T* address, T value) {
    return ref(address).fetch_add(value, std::memory_order_acq_rel);
  }
  template <class T>
  static void add_relaxed_gpu(T* address, T value) {
    ref(address).fetch_add(value, std::memory_order_relaxed);
  }
  template <class T>
  static void add_release_gpu(T* address, T value) {
    ref(address).fetch_add(value, std::memory_order_release);
  }
  template <class T>
  static void add_release_sys(T* address, T value) {
    ref(address).fetch_add(value, std::memory_order_release);
  }

  /// *address = max(*address, value).
  template <class T>
  static void max_relaxed_gpu(T* address, T value) {
    T seen = load_relaxed_gpu(address);
    while (seen < value &&
           !ref(address).compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }

  /// Stores `desired` if *address is `expected`; true if it did.
  template <class T>
  static bool compare_exchange_relaxed_sys(T* address, T expected, T desired) {
    return ref(address).compare_exchange_strong(expected, desired, std::memory_order_relaxed);
  }

 private:
  // atomic_ref has no const form in C++20; the loads above do not write.
  template <class T>
  static std::atomic_ref<T> ref(const T* address) {
    return std::atomic_ref<T>(
        *const_cast<T*>(address));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  }
};

}  // namespace ep::primitives
