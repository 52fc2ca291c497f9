// SPDX-License-Identifier: Apache-2.0
// One-sided puts between nodes, as roles see them: a put moves bytes of this rank's segment 0 into
// a peer's, and may add to a signal of the peer.
#pragma once

#include "base/macros.h"

#include <concepts>
#include <cstdint>

namespace ep::primitives {

/// What the arrival of a signal says.
enum class SignalStrength : std::uint8_t {
  kNone,
  kWeak,    ///< its own put has landed
  kStrong,  ///< every earlier put and signal of its context to this peer has landed, too
};

/// Adds `add` to word `slot` of the peer's signals. These only grow and are never reset.
struct NetSignal {
  SignalStrength strength = SignalStrength::kNone;
  std::uint32_t slot = 0;
  std::uint64_t add = 1;
};

/// Offsets in segment 0, of this rank and of the peer.
struct NetPut {
  int peer = 0;
  std::int64_t dst_offset = 0;
  std::int64_t src_offset = 0;
  std::int64_t bytes = 0;  ///< 0: only the signal
  NetSignal signal{};
};

/// `context` is an ordering domain, 0 <= context < num_contexts(). A source may be reused once what
/// the put brought was answered by the peer, or after flush. All calls may come from any lane.
///
/// try_put: false where the network has no room now: the caller waits, looks around and tries
/// again (net_put in net_wait.h); nothing was sent then.
/// signal_value: acquire; what the signals so far speak of may be read.
/// is_flushed: whether the sources of all puts of this rank in the context may be reused.
/// is_lost: nothing reaches the peer any more, it died or left; what it sent before has arrived or
/// never will.
/// progress: lets the network work; called by whoever waits.
/// A network says in its type which strengths it offers: a role that needs another one does not
/// compile.
template <class N>
concept Net = requires(N net, const NetPut& put, int context, std::uint32_t slot) {
  { N::kOffersWeak } -> std::convertible_to<bool>;
  { N::kOffersStrong } -> std::convertible_to<bool>;
  { net.num_contexts() } -> std::same_as<int>;
  { net.try_put(context, put) } -> std::same_as<bool>;
  { net.signal_value(slot) } -> std::same_as<std::uint64_t>;
  { net.is_flushed(context) } -> std::same_as<bool>;
  { net.is_lost(context) } -> std::same_as<bool>;
  { net.has_lost_peer() } -> std::same_as<bool>;
  net.progress(context);
};

}  // namespace ep::primitives
