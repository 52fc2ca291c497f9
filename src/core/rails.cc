// SPDX-License-Identifier: Apache-2.0
// Nodes, network and shared memory of a group of several nodes.
#include "core/rails.h"

#include "base/check.h"
#include "base/deadline.h"
#include "core/net_transport.h"
#include "primitives/memory.h"
#include "primitives/relax.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ep::core {
namespace {

using primitives::HostMemory;

/// One per channel up to this many; more share them.
constexpr int kNumContexts = 4;
/// For the last words of a rank whose operation failed.
constexpr std::chrono::milliseconds kFarewell{500};
constexpr std::uint32_t kComplete = 2;

}  // namespace

NodeTable::NodeTable(int num_ranks, int lsa_size) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (rank % lsa_size == 0) first_ranks_.push_back(rank);
    node_of_.push_back(rank / lsa_size);
  }
  first_ranks_.push_back(num_ranks);
}

layout::NodeMap NodeTable::map() const {
  return {.num_nodes = static_cast<int>(first_ranks_.size()) - 1,
          .first_ranks = first_ranks_.data(),
          .node_of = node_of_.data()};
}

int NodeTable::max_delegates() const {
  int most = 0;
  for (int rank = 0; rank < static_cast<int>(node_of_.size()); ++rank)
    most = std::max(most, map().num_delegates(rank));
  return most;
}

std::vector<std::int32_t> NodeTable::hosts_on_node_of(int rank) const {
  std::vector<std::int32_t> hosts;
  const int node = node_of_[static_cast<std::size_t>(rank)];
  for (int source = 0; source < static_cast<int>(node_of_.size()); ++source)
    hosts.push_back(map().rail_peer(source, node));
  return hosts;
}

layout::NetLayout net_layout(const GroupConfig& config,
                             const NodeTable& nodes,
                             const layout::ControlLayout& control) {
  return layout::make_net_layout(control, {.num_nodes = nodes.map().num_nodes,
                                           .max_delegates = nodes.max_delegates(),
                                           .max_tokens = config.max_tokens,
                                           .max_topk = config.max_topk,
                                           .max_row_bytes = config.max_hidden_bytes,
                                           .num_slots = config.net.num_slots});
}

Rails::Rails(Parts parts, int rank)
    : nodes_(std::move(parts.nodes)),
      control_(parts.control),
      host_of_(nodes_.hosts_on_node_of(rank)),
      arena_(parts.arena) {
  rail_.params = {.nodes = nodes_.map(),
                  .net = parts.net,
                  .segment = arena_.base(rank, 0),
                  .rank = rank,
                  .num_delegates = nodes_.map().num_delegates(rank),
                  .first_epoch = parts.config.first_epoch};
}

Rails::~Rails() {
  if (engine_ == nullptr || engine_->has_failed()) return;
  // What this rank has put must not be lost with it.
  const base::Deadline deadline = base::Deadline::after(kFarewell);
  for (int context = 0; context < engine_->num_contexts(); ++context)
    static_cast<void>(engine_->flush(context, fabric::FlushScope::kRemote, deadline).ok());
}

Result<std::unique_ptr<Rails>> Rails::create(Bootstrap& bootstrap, Parts parts) {
  const GroupConfig& config = parts.config;
  std::unique_ptr<Rails> rails(new Rails(std::move(parts), bootstrap.rank()));
  rails->stand_in_for_delegates(rails->arena_);
  rails->set_epochs(config.first_epoch - 1);
  EP_TRY(rails->connect(bootstrap, config));
  return rails;
}

NetUse Rails::use() const {
  const fabric::NetCounters sums = engine_->total_counters();
  return {.provider = engine_->traits().name,
          .put_bytes = static_cast<std::int64_t>(sums.put_bytes),
          .puts = static_cast<std::int64_t>(sums.puts),
          .signals = static_cast<std::int64_t>(sums.signals)};
}

void Rails::stand_in_for_delegates(fabric::HostArena& arena) const {
  const layout::NodeMap nodes = nodes_.map();
  const int home = rail_.params.node();
  for (int rank = 0; rank < arena.num_ranks(); ++rank) {
    if (nodes.node_of[rank] == home) continue;
    const std::int64_t offset = net().delegate(nodes.delegate_index(rank, home));
    arena.stand_in(rank, arena.base(nodes.rail_peer(rank, home), 0) + offset);
  }
}

void Rails::set_epochs(std::uint64_t last_epoch) const {
  for (int i = 0; i < num_delegates(); ++i) {
    std::byte* const region = rail_.params.segment + net().delegate(i);
    layout::array_at<layout::LocalState>(region, control_.local)->epoch.value = last_epoch;
  }
}

Status Rails::connect(Bootstrap& bootstrap, const GroupConfig& config) {
  const base::Deadline deadline = base::Deadline::after(*config.timeout);
  EP_TRY_ASSIGN(std::unique_ptr<fabric::Transport> transport,
                make_net_transport(bootstrap, config.net, kNumContexts, deadline));
  fabric::NetConfig settings{
      .num_contexts = std::min(kNumContexts, transport->traits().num_contexts),
      .num_signals = net().signals.num_signals,
      .dead_after = *config.timeout};
  settings.on_message = [this](int, std::span<const std::byte> message) { take_failure(message); };
  settings.on_death = [this](int peer) {
    if (nodes_.map().node_of[peer] != rail_.params.node()) arena_.mark_gone(peer);
  };
  EP_TRY_ASSIGN(engine_,
                fabric::NetEngine::create(bootstrap, std::move(transport), settings, deadline));
  const auto bytes = static_cast<std::size_t>(net().total_bytes);
  EP_TRY(engine_->add_window(bootstrap, {rail_.params.segment, bytes}, deadline).status());
  rail_.engine = engine_.get();
  watch_rails();
  return Status();
}

/// Also of peers from which this rank only receives it must learn when they die.
void Rails::watch_rails() {
  const layout::NodeMap& nodes = rail_.params.nodes;
  for (int i = 0; i < rail_.params.num_far_nodes(); ++i)
    engine_->watch(nodes.rail_peer(rail_.params.rank, rail_.params.far_node(i)));
  for (int i = 0; i < num_delegates(); ++i)
    engine_->watch(nodes.delegate_rank(rail_.params.rank, i));
}

/// On a thread of the engine, or of a lane that waits.
void Rails::take_failure(std::span<const std::byte> message) const {
  layout::FaultRecord theirs;
  if (message.size() != sizeof(theirs)) return;
  std::memcpy(&theirs, message.data(), sizeof(theirs));
  for (int i = -1; i < num_delegates(); ++i) {
    std::byte* const region = rail_.params.segment + (i < 0 ? 0 : net().delegate(i));
    auto* fault = layout::array_at<layout::FaultRecord>(region, control_.fault);
    if (HostMemory::compare_exchange_relaxed_sys(&fault->claimed, 0U, 1U)) {
      const std::uint32_t claimed = 1;
      theirs.claimed = claimed;
      std::memcpy(layout::bytes_of(fault) + sizeof(claimed),
                  layout::bytes_of(&theirs) + sizeof(claimed), sizeof(theirs) - sizeof(claimed));
      // [sync:fault] release: the record. Acquired in core/fault_status.cc.
      HostMemory::store_release_sys(&fault->claimed, kComplete);
    }
    // Relaxed: it only ends waits.
    HostMemory::store_relaxed_sys(&layout::array_at<layout::Counter>(region, control_.abort)->value,
                                  std::uint64_t{1});
  }
}

void Rails::spread_failure() {
  const std::byte* const region = rail_.params.segment;
  const auto* abort = layout::array_at<layout::Counter>(region, control_.abort);
  if (has_spread_ || HostMemory::load_relaxed_sys(&abort->value) == 0) return;
  has_spread_ = true;
  const auto* fault = layout::array_at<layout::FaultRecord>(region, control_.fault);
  const base::Deadline deadline = base::Deadline::after(kFarewell);
  const auto claimed = [fault] {
    return HostMemory::load_acquire_sys(&fault->claimed);  // [sync:fault] acquire: the record
  };
  for (int polls = 1; claimed() != kComplete; ++polls) {
    if (deadline.expired()) return;
    primitives::back_off(polls);
  }
  layout::FaultRecord record;
  std::memcpy(&record, fault, sizeof(record));
  if (!engine_->broadcast(std::as_bytes(std::span(&record, 1))).ok()) return;
  for (int polls = 1; engine_->has_open_messages() && !deadline.expired(); ++polls) {
    engine_->serve();
    primitives::back_off(polls);
  }
}

}  // namespace ep::core
