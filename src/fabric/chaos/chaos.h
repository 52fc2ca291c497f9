// SPDX-License-Identifier: Apache-2.0
// A hostile network: wraps a Transport and does everything to its traffic that the contract of
// Transport allows, decided by a seed. For tests and ep-bench; README.md of this folder.
#pragma once

#include "fabric/net/transport.h"

#include <ep/status.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ep::fabric {

/// So often out of a thousand, and then for 1 to `max_polls` polls of the context: chaos has no
/// other clock.
struct ChaosPause {
  int permille = 0;
  int max_polls = 0;
};

/// Writes and reads of `min_bytes` or more are cut into pieces that travel alone.
struct ChaosTear {
  int permille = 0;
  int max_pieces = 2;
  std::int64_t min_bytes = 2;
};

/// A call says kBusy, and so do the next ones to any peer: 1 to `max_calls` in all.
struct ChaosBusy {
  int permille = 0;
  int max_calls = 0;
};

/// What happens to a peer once this rank has posted to it, or heard from it, `at_event` times.
struct ChaosFault {
  enum class Kind : std::uint8_t {
    kBlackHole,  ///< everything to it and from it vanishes, from now on
    kReset,      ///< its operations under way fail with `error`; afterwards always kBusy
    kStop,       ///< silence both ways for `polls` polls, of all contexts together
    kFailOneOp   ///< one operation fails with `error`; nothing of it lands
  };
  Kind kind = Kind::kBlackHole;
  int peer = 0;
  std::uint64_t at_event = 0;
  int polls = 0;
  int error = 0;  ///< errno; 0: ECONNRESET
};

/// What an earlier incarnation of a peer had sent and the network kept: lands at a poll of
/// `context`. Networks promise that this does not happen; it is for tests of who checks.
struct ChaosStaleWrite {
  int peer = 0;
  int context = 0;
  std::uint64_t at_poll = 0;
  WindowPlace dst{};
  std::vector<std::byte> bytes{};
  std::optional<std::uint32_t> immediate{};
};

/// Every duration counts polls of a context; permille are parts of a thousand.
struct ChaosConfig {
  std::uint64_t seed = 1;
  /// Passes all on until begin(): what meets on threads before a test can then be repeated exactly.
  bool is_calm_at_first = false;
  /// kOrdered needs an ordered inner transport: over another one it is kUnordered.
  ArrivalOrder order = ArrivalOrder::kUnordered;
  /// Unordered: nothing overtakes what came so many operations earlier, to or from the same peer;
  /// once when it is posted and once more when it arrives.
  int window_ops = 64;
  ChaosPause delay{};  ///< of a post: its source is read, and it travels, only then
  /// On top, for operations of `big_bytes` or more: small ones overtake them.
  ChaosPause big{};
  std::int64_t big_bytes = 4096;
  ChaosPause stall{};            ///< silence of one peer, one direction, one context
  ChaosPause context_stall{};    ///< silence of a whole context
  ChaosPause late_arrival{};     ///< the data is here, its kArrival comes later
  ChaosPause late_completion{};  ///< kSourceFree, kReadDone, kFailure
  ChaosTear tear{};              ///< only over an ordered inner transport
  ChaosBusy busy{};
  std::vector<ChaosFault> faults{};
  /// Counts writes whose source is another one when it becomes free than when it was posted: the
  /// caller's mistake, on a network that has read it late or would send it again. Off in hostile():
  /// roles may reuse a source once the peer has answered (primitives/net.h).
  bool checks_sources = false;

  // What no network does: off unless a test asks.
  int duplicate_source_free_permille = 0;
  int duplicate_arrival_permille = 0;
  std::vector<ChaosStaleWrite> stale_writes{};

  /// All that a correct network may do, often.
  static ChaosConfig hostile(std::uint64_t seed, ArrivalOrder order);
};

enum class ChaosDeed : std::uint8_t {
  kOps,                   ///< operations accepted
  kDelayed,               ///< posted to the inner transport later than it was asked for
  kReordered,             ///< a post that overtook another one to its peer
  kTorn,                  ///< operations cut into pieces
  kPieces,                ///< of these
  kBusy,                  ///< calls refused
  kStalls,                ///< silences begun
  kArrivals,              ///< arrivals given out
  kLateArrivals,          ///< later than the inner transport gave them
  kReorderedArrivals,     ///< an arrival that overtook another one of its peer
  kLateCompletions,       ///< completions given out later
  kReorderedCompletions,  ///< that overtook another one
  kDuplicates,            ///< events given out again
  kStaleWrites,           ///< landed
  kLost,                  ///< operations and arrivals that vanished
  kFailed,                ///< operations that failed
  kTouchedSources,        ///< checks_sources: how often
  kEnd
};

class ChaosCounts {
 public:
  std::uint64_t& operator[](ChaosDeed deed) { return counts_[static_cast<std::size_t>(deed)]; }
  std::uint64_t operator[](ChaosDeed deed) const { return counts_[static_cast<std::size_t>(deed)]; }
  ChaosCounts& operator+=(const ChaosCounts& other);
  /// "1,024 ops, 310 delayed, ...": what is not zero.
  std::string to_string() const;

 private:
  std::array<std::uint64_t, static_cast<std::size_t>(ChaosDeed::kEnd)> counts_{};
};

/// All ranks wrap theirs: a description of a window tells its size, too. What is held back moves
/// only in poll(); what is held when it is destroyed is lost.
///
/// No context may be in use during a call of this class's own.
class ChaosTransport : public Transport {
 public:
  /// Ends the calm; nothing may be under way. Polls, events, counts and random numbers begin anew.
  virtual void begin() = 0;
  /// The clock of a context.
  virtual std::uint64_t num_polls(int context) const = 0;
  virtual ChaosCounts counts() const = 0;
  /// One line: seed, mode, counts.
  virtual std::string describe() const = 0;
};

/// kInvalidArgument with the value for a config that makes no sense; kUnsupported in a build
/// without chaos (EP_WITH_CHAOS=OFF).
Result<std::unique_ptr<ChaosTransport>> make_chaos_transport(std::unique_ptr<Transport> inner,
                                                             const ChaosConfig& config);

}  // namespace ep::fabric
