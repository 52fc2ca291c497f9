// SPDX-License-Identifier: Apache-2.0
// The control-flow macros of the library: broken invariants abort, errors return.
#pragma once

#include <ep/status.h>

#include <source_location>
#include <string_view>
#include <utility>

namespace ep::base {

/// Prints condition, message and place, then aborts.
[[noreturn]] void check_failed(const char* condition,
                               std::source_location where,
                               std::string_view message = {});

inline Status to_status(Status status) { return status; }

template <class T>
Status to_status(const Result<T>& result) {
  return result.status();
}

}  // namespace ep::base

/// EP_CHECK(condition) or EP_CHECK(condition, message): an invariant of the library, checked in
/// every build. Never for input: that is a Status.
#define EP_CHECK(condition, ...)              \
  (static_cast<bool>(condition)               \
       ? static_cast<void>(0)                 \
       : ::ep::base::check_failed(#condition, \
                                  ::std::source_location::current() __VA_OPT__(, ) __VA_ARGS__))

/// Returns the Status of a Status or Result expression from the enclosing function unless it is ok.
#define EP_TRY(expression)                                                                     \
  do {                                                                                         \
    if (::ep::Status ep_try_status = ::ep::base::to_status(expression); !ep_try_status.ok()) { \
      return ep_try_status;                                                                    \
    }                                                                                          \
  } while (false)

#define EP_TRY_ASSIGN_JOIN_INNER(prefix, line) prefix##line
#define EP_TRY_ASSIGN_JOIN(prefix, line) EP_TRY_ASSIGN_JOIN_INNER(prefix, line)
#define EP_TRY_ASSIGN_AS(result, target, ...) \
  auto result = (__VA_ARGS__);                \
  if (!result.ok()) return result.status();   \
  target = *::std::move(result)

/// EP_TRY_ASSIGN(auto value, expression): the value of a Result, or returns its Status. A statement
/// of its own, never the body of an `if`.
#define EP_TRY_ASSIGN(target, ...) \
  EP_TRY_ASSIGN_AS(EP_TRY_ASSIGN_JOIN(ep_try_result_, __LINE__), target, __VA_ARGS__)
