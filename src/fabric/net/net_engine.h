// SPDX-License-Identifier: Apache-2.0
// One-sided puts, signals and gets over a Transport, with bounded windows and liveness of peers.
#pragma once

#include "base/deadline.h"
#include "fabric/net/net_config.h"
#include "fabric/net/peer_table.h"
#include "fabric/net/transport.h"
#include "primitives/net.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ep::fabric {

class NetContext;
class NetService;
struct NetShared;
enum class Driver : std::uint8_t;

/// A put moves bytes into a peer's window and may add to one of its signals. Per context and peer,
/// what a signal says once it is seen:
///  - weak: its own put has landed;
///  - strong: every earlier put and signal of the context to this peer has landed, too.
/// On an ordered network both are strong. A place counts windows in the order of add_window.
///
/// Calls come from any thread, also from fibers, at any time, unless they say otherwise. A context
/// has one user at a time: a call that finds another one there returns as if there was no room.
/// What fails for good is seen in failure(): whoever waits looks there between two polls.
class NetEngine {
 public:
  /// Collective. Errors, on all ranks: kInvalidArgument for a config that is out of range, asks for
  /// more contexts than the transport has, or differs between ranks (naming field and ranks);
  /// kPeerTimeout for a rank that does not come; kFabric.
  static Result<std::unique_ptr<NetEngine>> create(Bootstrap& bootstrap,
                                                   std::unique_ptr<Transport> transport,
                                                   const NetConfig& config,
                                                   base::Deadline deadline);
  /// What create() will allocate. `config` is valid.
  static NetPlan plan(const NetConfig& config, int num_ranks);

  NetEngine(const NetEngine&) = delete;
  NetEngine& operator=(const NetEngine&) = delete;
  /// Local. Nobody writes to this rank's windows after it; what was not flushed may be lost.
  ~NetEngine();

  /// Collective; nobody may use the engine meanwhile. The memory must outlive it; sizes may differ
  /// between ranks. Returns the window's number, from 0. Errors, on all ranks: kFabric,
  /// kInvalidArgument for another number of windows, kPeerTimeout.
  Result<WindowId> add_window(Bootstrap& bootstrap,
                              std::span<std::byte> memory,
                              base::Deadline deadline);

  int rank() const;
  int num_ranks() const;
  int num_contexts() const;
  ArrivalOrder order() const;
  const NetConfig& config() const;
  const TransportTraits& traits() const;

  struct Put {
    int peer = 0;
    WindowPlace dst{};
    WindowPlace src{};
    std::int64_t bytes = 0;  ///< 0: only the signal
    primitives::NetSignal signal{};
  };
  /// False where there is no room now, or no hope: nothing was sent. Bad input is kInvalidArgument
  /// in failure(): a peer that is this rank or none, a place outside its window, a slot that is no
  /// signal.
  bool try_put(int context, const Put& put);
  /// As try_put of 8 bytes that the engine keeps.
  bool try_put_value(int context,
                     int peer,
                     const WindowPlace& dst,
                     std::uint64_t value,
                     const primitives::NetSignal& signal = {});
  bool try_signal(int context, int peer, const primitives::NetSignal& signal);

  struct Get {
    int peer = 0;
    WindowPlace dst{};  ///< of this rank
    WindowPlace src{};  ///< of the peer
    std::int64_t bytes = 0;
    std::uint32_t counter = 0;  ///< grows by 1 once the bytes are here
  };
  /// As try_put.
  bool try_get(int context, const Get& get);

  /// Acquire: what the signals so far speak of may be read.
  std::uint64_t signal_value(std::uint32_t slot) const;
  /// For messages: may not be relied on.
  std::uint64_t peek_signal(std::uint32_t slot) const;
  /// Acquire: the bytes of the gets so far are here.
  std::uint64_t counter_value(std::uint32_t counter) const;

  /// Whether the sources of all puts of the context so far may be reused. Stays false for those
  /// under way to a peer that died.
  bool is_flushed(int context) const;
  /// Asks all peers of the context to confirm what was put so far. To be repeated until true.
  bool try_start_flush(int context);
  /// Whether they have.
  bool is_remote_flushed(int context);
  /// Waits for one or the other. Errors: kPeerTimeout with the state of the peers; failure().
  Status flush(int context, FlushScope scope, base::Deadline deadline);

  /// Lets the network work in the context, and now and then in all of them: whoever waits calls it
  /// again and again. Returns how many events came.
  int progress(int context);
  /// progress in every context, without counting as a wait: only answers.
  int serve();
  /// Sleeps until something comes in the context, or others want it, at most that long.
  void sleep(int context, std::chrono::milliseconds at_most);

  /// Sends at most kMaxMessageBytes to every peer that lives; NetConfig::on_message gets them.
  /// Errors: kInvalidArgument for a longer one; kFabric where earlier ones are under way.
  Status broadcast(std::span<const std::byte> message);
  /// Whether all peers that live have received all messages.
  bool has_open_messages();

  /// Pings go to the peer while somebody makes progress. A put or get does the same.
  void watch(int peer);
  /// Somebody else knows that the peer is gone.
  void declare_dead(int peer, const Status& reason);
  PeerState peer_state(int peer) const;
  bool has_failed() const;
  /// The first failure, naming its peer if there is one; ok if there is none.
  Status failure() const;
  /// What is known of a peer, in a few lines, for messages.
  std::string describe_peer(int peer);
  /// The same for a wait on a signal.
  std::string describe_wait(int peer, std::uint32_t slot, std::uint64_t least);

  NetCounters counters(int context, int peer);
  NetCounters total_counters();
  /// What is allocated.
  NetPlan allocated() const;

 private:
  NetEngine(std::unique_ptr<Transport> transport, const NetConfig& config);

  // net_engine_create.cc
  Status add_scratch();
  Status meet(Bootstrap& bootstrap, base::Deadline deadline);
  Status take_greetings(std::span<const Bootstrap::Bytes> all);
  Status await_hellos(base::Deadline deadline);
  Result<WindowId> register_window(Bootstrap& bootstrap,
                                   std::span<std::byte> memory,
                                   base::Deadline deadline);
  Status take_windows(const Result<WindowId>& mine,
                      std::span<const Bootstrap::Bytes> all,
                      std::vector<std::int64_t>& sizes);

  bool refuse(std::string message) const;
  bool check_peer(const char* what, int context, int peer) const;
  bool check_signal(const primitives::NetSignal& signal) const;
  NetContext& context_at(int context) const {
    return *contexts_[static_cast<std::size_t>(context)];
  }
  int drive_all(Driver driver);

  std::unique_ptr<NetShared> shared_;
  std::vector<std::unique_ptr<NetContext>> contexts_;
  /// Calls of progress, of all lanes: when to look at all contexts.
  std::atomic<std::uint32_t> num_calls_{0};
  std::unique_ptr<NetService> service_;  ///< last: ends first
};

}  // namespace ep::fabric
