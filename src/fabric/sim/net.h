// SPDX-License-Identifier: Apache-2.0
// A network between simulated ranks (primitives/net.h): puts that land late, in parts and in any
// order, and signals that promise no more than they say.
#pragma once

#include "fabric/sim/machine.h"
#include "primitives/net.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <vector>

namespace ep::fabric::sim {

/// The wires of all ranks. What is under way between two ranks in one context is a stream.
///
/// Happens-before: a put is ordered behind what its thread had seen. A weak signal covers its own
/// put alone, which no vector clock can say of one agent: an earlier moment would be covered, too.
/// So a stream is several agents, and each put is a moment of one of them, drawn at random: what a
/// role wrongly takes for covered is found by most seeds. A signal also hands on what its sender
/// had seen; nobody learns from it that other streams have landed.
class Wires final : public Device {
 public:
  /// `segments`: segment 0 of each rank.
  Wires(Machine& machine, std::vector<std::byte*> segments, int num_contexts, int num_slots);

  bool is_busy() const override { return !flying_.empty(); }
  void act(Random& random) override;

 private:
  friend class NetOfRank;
  static constexpr int kAgents = 4;

  struct Track {
    AgentId read;  ///< of sources
    AgentId land;
    Clock newest = 0;
  };
  struct Stream {
    int src = 0;
    int context = 0;
    std::uint64_t num_put = 0;
    std::array<Track, kAgents> tracks{};
  };
  struct Put {
    Stream* stream = nullptr;
    primitives::NetPut put{};
    std::uint64_t number = 0;  ///< in its stream
    int track = 0;
    Clock moment = 0;
    VectorClock view{};    ///< of the thread that put
    VectorClock covers{};  ///< what its signal hands on
    SiteId site = 0;
    std::vector<std::byte> bytes{};
    bool has_read = false;
    std::int64_t landed = 0;  ///< bytes, from the end
  };
  struct Slot {
    std::uint64_t value = 0;
    VectorClock view{};
  };

  Stream& stream(int src, int context, int dst);
  Slot& slot(int rank, std::uint32_t index);
  void put(int src, int context, const primitives::NetPut& put, SiteId site);
  bool may_signal(const Put& put) const;
  void land_some(Put& put, Random& random);
  void read_source(Put& put);
  void apply(const Put& put);

  Machine& machine_;
  std::vector<std::byte*> segments_;
  int num_contexts_;
  int num_slots_;
  std::map<std::array<int, 3>, std::unique_ptr<Stream>> streams_;
  std::vector<Slot> slots_;  // [rank][slot]
  std::vector<std::unique_ptr<Put>> flying_;
};

/// What a role of one rank holds; any number of copies.
class NetOfRank {
 public:
  using At = std::source_location;

  NetOfRank(Wires& wires, int rank) : wires_(&wires), rank_(rank) {}

  int num_contexts() const { return wires_->num_contexts_; }
  bool try_put(int context, const primitives::NetPut& put, const At& at = At::current());
  std::uint64_t signal_value(std::uint32_t slot);
  bool is_flushed(int context);
  // Simulated networks lose nobody.
  bool is_lost(int /*peer*/) const { return false; }
  bool has_lost_peer() const { return false; }
  void progress(int context);

 private:
  /// Puts under way per rank and context before there is no more room.
  static constexpr int kWindow = 8;

  int num_flying(int context) const;

  Wires* wires_;
  int rank_;
};

/// A network that offers only some strengths.
template <bool kWeak, bool kStrong>
class Net : public NetOfRank {
 public:
  static constexpr bool kOffersWeak = kWeak;
  static constexpr bool kOffersStrong = kStrong;
  using NetOfRank::NetOfRank;
};
static_assert(primitives::Net<Net<true, true>>);

}  // namespace ep::fabric::sim
