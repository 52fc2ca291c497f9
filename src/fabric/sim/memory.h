// SPDX-License-Identifier: Apache-2.0
// The accesses of primitives/memory.h, through the scheduler and the checker.
#pragma once

#include "fabric/sim/word.h"

#include <bit>
#include <cstdint>
#include <source_location>
#include <type_traits>

namespace ep::fabric::sim {

/// Words as the machine moves them: 4 or 8 bytes.
struct WordAccess {
  void* address;
  int bytes;
  Scope scope = Scope::kSys;
  bool acquires = false;
  bool releases = false;
};
std::uint64_t load_plain(const WordAccess& word, const std::source_location& at);
void store_plain(const WordAccess& word, std::uint64_t value, const std::source_location& at);
std::uint64_t load_atomic(WordAccess word, const std::source_location& at);
void store_atomic(WordAccess word, std::uint64_t value, const std::source_location& at);
/// Return the value before.
std::uint64_t add_atomic(WordAccess word, std::uint64_t value, const std::source_location& at);
std::uint64_t max_atomic(WordAccess word, std::uint64_t value, const std::source_location& at);
std::uint64_t or_atomic(WordAccess word, std::uint64_t value, const std::source_location& at);
std::uint64_t exchange_atomic(WordAccess word,
                              std::uint64_t expected,
                              std::uint64_t desired,
                              const std::source_location& at);

struct Memory {
  using At = std::source_location;

  template <class T>
  static T load(const T* address, const At& at = At::current()) {
    return value_of<T>(load_plain(word(address), at));
  }
  template <class T>
  static void store(T* address, std::type_identity_t<T> value, const At& at = At::current()) {
    store_plain(word(address), bits_of(value), at);
  }

  template <class T>
  static T load_relaxed_gpu(const T* address, const At& at = At::current()) {
    return value_of<T>(load_atomic(word(address, Scope::kGpu), at));
  }
  template <class T>
  static T load_relaxed_sys(const T* address, const At& at = At::current()) {
    return value_of<T>(load_atomic(word(address, Scope::kSys), at));
  }
  template <class T>
  static T load_acquire_gpu(const T* address, const At& at = At::current()) {
    return value_of<T>(load_atomic(word(address, Scope::kGpu, true), at));
  }
  template <class T>
  static T load_acquire_sys(const T* address, const At& at = At::current()) {
    return value_of<T>(load_atomic(word(address, Scope::kSys, true), at));
  }

  template <class T>
  static void store_relaxed_gpu(T* address, T value, const At& at = At::current()) {
    store_atomic(word(address, Scope::kGpu), bits_of(value), at);
  }
  template <class T>
  static void store_relaxed_sys(T* address, T value, const At& at = At::current()) {
    store_atomic(word(address, Scope::kSys), bits_of(value), at);
  }
  template <class T>
  static void store_release_gpu(T* address, T value, const At& at = At::current()) {
    store_atomic(word(address, Scope::kGpu, false, true), bits_of(value), at);
  }
  template <class T>
  static void store_release_sys(T* address, T value, const At& at = At::current()) {
    store_atomic(word(address, Scope::kSys, false, true), bits_of(value), at);
  }

  template <class T>
  static T fetch_add_relaxed_gpu(T* address, T value, const At& at = At::current()) {
    return value_of<T>(add_atomic(word(address, Scope::kGpu), bits_of(value), at));
  }
  template <class T>
  static T fetch_add_acq_rel_gpu(T* address, T value, const At& at = At::current()) {
    return value_of<T>(add_atomic(word(address, Scope::kGpu, true, true), bits_of(value), at));
  }
  template <class T>
  static void add_relaxed_gpu(T* address, T value, const At& at = At::current()) {
    add_atomic(word(address, Scope::kGpu), bits_of(value), at);
  }
  template <class T>
  static void add_release_gpu(T* address, T value, const At& at = At::current()) {
    add_atomic(word(address, Scope::kGpu, false, true), bits_of(value), at);
  }
  template <class T>
  static void add_release_sys(T* address, T value, const At& at = At::current()) {
    add_atomic(word(address, Scope::kSys, false, true), bits_of(value), at);
  }
  template <class T>
  static void max_relaxed_gpu(T* address, T value, const At& at = At::current()) {
    static_assert(std::is_unsigned_v<T>, "compared as unsigned");
    max_atomic(word(address, Scope::kGpu), bits_of(value), at);
  }
  template <class T>
  static bool compare_exchange_relaxed_sys(T* address,
                                           T expected,
                                           T desired,
                                           const At& at = At::current()) {
    return value_of<T>(exchange_atomic(word(address, Scope::kSys), bits_of(expected),
                                       bits_of(desired), at)) == expected;
  }

 private:
  template <class T>
  using Bits = std::conditional_t<sizeof(T) == sizeof(std::uint64_t), std::uint64_t, std::uint32_t>;

  template <class T>
  static std::uint64_t bits_of(T value) {
    return std::bit_cast<Bits<T>>(value);
  }
  template <class T>
  static T value_of(std::uint64_t bits) {
    return std::bit_cast<T>(static_cast<Bits<T>>(bits));
  }
  template <class T>
  static WordAccess word(const T* address,
                         Scope scope = Scope::kSys,
                         bool acquires = false,
                         bool releases = false) {
    return {const_cast<T*>(address),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
            static_cast<int>(sizeof(T)), scope, acquires, releases};
  }
};

}  // namespace ep::fabric::sim
