// SPDX-License-Identifier: Apache-2.0
// What a group is created with, and what its memory will be.
#pragma once

#include <ep/expert_map.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ep {

enum class Backend : std::uint8_t { kHost, kCuda };

/// How ranks of different nodes reach each other.
struct NetOptions {
  /// A provider of libfabric; "local": memory, between ranks that are threads of one process.
  /// Empty: EP_NET_PROVIDER, else local where that is possible, else the best provider that is
  /// here.
  std::string provider{};
  /// Take nothing for granted that the network says of order.
  bool is_unordered = false;
  /// Tests: a hostile network, with this seed. Needs a build with EP_WITH_CHAOS.
  std::optional<std::uint64_t> chaos_seed{};
  /// Chunks of 8 rows that may be on their way between a rank and a node: 1 to 64. Their memory is
  /// ArenaPlan::net_bytes, whatever the number of tokens.
  int num_slots = 8;

  bool operator==(const NetOptions&) const = default;
};

/// Maxima of a group: a call may use any T, H, K, E and dtype within them. Every field except
/// num_sms and pool_bytes must be equal on all ranks; a difference is kInvalidArgument on all
/// ranks, naming the field, the ranks and the values.
struct GroupConfig {
  Backend backend = Backend::kHost;
  std::int64_t max_tokens = 4096;          ///< tokens per rank and call
  std::int64_t max_hidden_bytes = 16'384;  ///< bytes of one row without scales; a multiple of 16
  int max_topk = 8;                        ///< 1 to 32
  int max_experts = 256;
  /// Default map of calls that bring none; empty: the balanced map of max_experts.
  ExpertMap experts{};

  /// Bytes of the pool that are reserved at creation. The pool grows by itself (Group::reserve);
  /// memory is committed by the operating system when it is first written.
  std::int64_t pool_bytes = 0;
  /// Depth of the ring through which rows travel that are not read in place, in units of 8 rows per
  /// peer: 1 to 64. Default: 4 on the host, 64 on CUDA, where that many cover the latency of a GPU
  /// that takes them in.
  std::optional<int> ring_slots{};

  std::optional<int> num_sms{};
  /// Ranks that reach each other by load and store, the nodes of a group; the last node may be
  /// smaller. Default all. EP_LSA_SIZE.
  std::optional<int> lsa_size{};
  NetOptions net{};
  /// Every wait for a peer ends by then. Default EP_TIMEOUT (seconds), else 10 s.
  std::optional<std::chrono::milliseconds> timeout{};
  /// Number of the first operation, from 1; for tests of the wrap of the 32-bit tags.
  std::uint64_t first_epoch = 1;
};

/// Bytes of one rank's arena, known before anything is allocated.
struct ArenaPlan {
  std::int64_t control_bytes =
      0;                        ///< words that peers write: announcements, counts, arrivals, flags
  std::int64_t ring_bytes = 0;  ///< slots for rows that cannot be read in place
  /// Several nodes: what travels between them, and the control regions of delegates.
  std::int64_t net_bytes = 0;
  std::int64_t pool_bytes = 0;   ///< receive tensors and caller's tensors
  std::int64_t total_bytes = 0;  ///< of the segments, padding included
};

}  // namespace ep
