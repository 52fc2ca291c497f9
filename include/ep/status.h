// SPDX-License-Identifier: Apache-2.0
// Errors are values: Status says what went wrong with the numbers in it, Result carries a value or
// a Status.
#pragma once

#include <ep/api.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace ep {

enum class Errc : std::uint8_t {
  kOk,
  kInvalidArgument,  ///< the caller's input; found before any row reached a peer, the group goes on
  kUnsupported,      ///< right input that this build, machine or backend cannot serve
  kOutOfMemory,      ///< the arena or its pool cannot grow
  kCuda,             ///< a CUDA call failed; native_code() is the cudaError_t or CUresult
  kNccl,             ///< an NCCL call failed; native_code() is the ncclResult_t
  kFabric,           ///< sockets, shared memory or network; native_code() is errno
  kPeerTimeout,      ///< a peer died, left or did not answer within the deadline; peer() names it
  kAborted,          ///< the group failed earlier; the message repeats the first failure
  kInternal,         ///< a bug in `ep`
};

/// "kPeerTimeout" and so on.
EP_API std::string_view name_of(Errc code);

class [[nodiscard]] Status {
 public:
  static constexpr int kNoPeer = -1;

  /// Success.
  Status() = default;
  Status(Errc code, std::string message, std::int64_t native_code = 0)
      : code_(code), message_(std::move(message)), native_code_(native_code) {}

  bool ok() const { return code_ == Errc::kOk; }
  Errc code() const { return code_; }
  /// One sentence: operation, rank, peer, epoch, expected versus got. Empty on success.
  const std::string& message() const { return message_; }
  /// errno, cudaError_t or ncclResult_t behind the failure; 0 if none.
  std::int64_t native_code() const { return native_code_; }
  /// The rank to blame, kNoPeer if none.
  int peer() const { return peer_; }
  Status& set_peer(int peer) {
    peer_ = peer;
    return *this;
  }
  /// "kPeerTimeout: dispatch, epoch 17: ...".
  EP_API std::string to_string() const;

 private:
  Errc code_ = Errc::kOk;
  std::string message_;
  std::int64_t native_code_ = 0;
  int peer_ = kNoPeer;
};

template <class T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: `return value;` and `return status;` both read as what they are.
  Result(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  /// Precondition of value(), * and ->: ok().
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  /// Success if there is a value.
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace ep
