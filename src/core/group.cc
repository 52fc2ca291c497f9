// SPDX-License-Identifier: Apache-2.0
// Creation of groups, and their memory.
#include "base/check.h"
#include "base/env.h"
#include "core/config_agreement.h"
#include "core/cuda_backend.h"
#include "core/group_state.h"
#include "core/host_engine.h"
#include "core/rails.h"
#include "fabric/host/arena.h"
#include "primitives/row_reducer.h"

#include <ep/group.h>
#include <ep/sm_budget.h>

#include <algorithm>
#include <string>
#include <utility>

namespace ep {
namespace core {
namespace {

constexpr std::chrono::milliseconds kDefaultTimeout{10'000};
constexpr int kMaxRingSlots = 64;
constexpr int kHostRingSlots = 4;
constexpr int kMaxNetSlots = 64;
// Offsets of rows are 64-bit; their numbers travel as 32-bit words.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 28;
constexpr std::int64_t kMaxHiddenBytes = std::int64_t{1} << 24;
constexpr int kMaxExperts = 1 << 20;

Status out_of_range(const std::string& field,
                    std::int64_t value,
                    std::int64_t min,
                    std::int64_t max) {
  return Status(Errc::kInvalidArgument, "group: " + field + " = " + std::to_string(value) +
                                            ", need " + std::to_string(min) + " to " +
                                            std::to_string(max));
}

struct Range {
  const char* field;
  std::int64_t value;
  std::int64_t min;
  std::int64_t max;
};

Status check_ranges(const GroupConfig& config, int num_ranks) {
  const Range ranges[] = {
      {"max_tokens", config.max_tokens, 1, kMaxTokens},
      {"max_hidden_bytes", config.max_hidden_bytes, 16, kMaxHiddenBytes},
      {"max_topk", config.max_topk, 1, primitives::kMaxTopk},
      {"max_experts", config.max_experts, 1, kMaxExperts},
      {"pool_bytes", config.pool_bytes, 0, layout::kMaxSegmentBytes},
      {"ring_slots", config.ring_slots.value_or(1), 1, kMaxRingSlots},
      {"num_sms", config.num_sms.value_or(1), 1, SmBudget::kMaxSms},
      {"lsa_size", config.lsa_size.value_or(num_ranks), 1, num_ranks},
      {"net.num_slots", config.net.num_slots, 1, kMaxNetSlots},
      {"timeout (ms)", config.timeout.value_or(kDefaultTimeout).count(), 1,
       base::kMaxSeconds * 1000},
  };
  for (const Range& range : ranges) {
    if (range.value < range.min || range.value > range.max) {
      return out_of_range(range.field, range.value, range.min, range.max);
    }
  }
  if (config.max_hidden_bytes % 16 != 0) {
    return Status(Errc::kInvalidArgument,
                  "group: max_hidden_bytes = " + std::to_string(config.max_hidden_bytes) +
                      " is not a multiple of 16");
  }
  if (config.first_epoch < 1)
    return Status(Errc::kInvalidArgument, "group: first_epoch = 0, need >= 1");
  return Status();
}

Status check_experts(const GroupConfig& config, int num_ranks) {
  if (config.experts.is_empty()) return Status();
  if (config.experts.num_ranks() != num_ranks ||
      config.experts.num_experts() > config.max_experts) {
    return Status(Errc::kInvalidArgument,
                  "group: expert map of " + std::to_string(config.experts.num_experts()) +
                      " experts on " + std::to_string(config.experts.num_ranks()) +
                      " ranks, but max_experts = " + std::to_string(config.max_experts) +
                      " and num_ranks = " + std::to_string(num_ranks));
  }
  return Status();
}

Status check_supported(const GroupConfig& config, int num_ranks) {
  if (config.backend != Backend::kHost && !has_cuda_backend()) {
    return Status(Errc::kUnsupported, "group: the CUDA backend is not available in this build");
  }
  if (config.backend != Backend::kHost && config.lsa_size.value_or(num_ranks) < num_ranks) {
    return Status(Errc::kUnsupported,
                  "group: lsa_size = " + std::to_string(config.lsa_size.value_or(0)) + " of " +
                      std::to_string(num_ranks) +
                      " ranks needs the path between nodes, which CUDA groups do not have yet");
  }
  return Status();
}

/// Segment 0.
struct SegmentPlan {
  layout::ControlLayout control;
  NodeTable nodes;
  layout::NetLayout net;

  bool has_rails() const { return nodes.map().num_nodes > 1; }
  std::int64_t net_bytes() const { return has_rails() ? net.total_bytes - control.total_bytes : 0; }
  std::int64_t total_bytes() const { return control.total_bytes + net_bytes(); }
};

/// Precondition: the config is resolved.
SegmentPlan plan_segment(const GroupConfig& config, int num_ranks) {
  const layout::ControlLayout control =
      layout::make_control_layout(control_shape(config, num_ranks));
  NodeTable nodes(num_ranks, *config.lsa_size);
  const layout::NetLayout net = net_layout(config, nodes, control);
  return {.control = control, .nodes = std::move(nodes), .net = net};
}

/// Collective.
Status make_host_parts(Bootstrap& bootstrap, const SegmentPlan& plan, GroupState::Parts& parts) {
  const base::Deadline deadline = base::Deadline::after(parts.config.timeout);
  const int node = plan.nodes.map().node_of[bootstrap.rank()];
  EP_TRY_ASSIGN(std::unique_ptr<fabric::HostArena> arena,
                fabric::HostArena::create(bootstrap, plan.total_bytes(), deadline, node));
  fabric::HostArena& shared = *arena;
  parts.arena = std::move(arena);
  if (plan.has_rails()) {
    EP_TRY_ASSIGN(parts.rails, Rails::create(bootstrap, {.config = parts.config.config,
                                                         .control = plan.control,
                                                         .nodes = plan.nodes,
                                                         .net = plan.net,
                                                         .arena = shared}));
  }
  parts.engine = std::make_unique<HostEngine>(parts.rails.get());
  return Status();
}

/// Collective. No rank waits for the arena of one that cannot use its GPU.
Status make_cuda_parts(Bootstrap& bootstrap, std::int64_t control_bytes, GroupState::Parts& parts) {
  Result<CudaEngineParts> made = make_cuda_engine();
  EP_TRY(agree_on_outcome(bootstrap, made.status(), "use its GPU", parts.config.timeout));
  parts.engine = std::move(made->engine);
  const int wanted_sms = parts.config.config.num_sms.value_or(SmBudget::process_default());
  EP_TRY_ASSIGN(parts.share, agree_on_share(bootstrap, made->device, parts.engine->max_sms(),
                                            wanted_sms, parts.config.timeout));
  const base::Deadline deadline = base::Deadline::after(parts.config.timeout);
  EP_TRY_ASSIGN(parts.arena,
                make_cuda_arena(bootstrap, made->device.ordinal, control_bytes, deadline));
  return Status();
}

}  // namespace

Result<ResolvedConfig> resolve_config(const GroupConfig& config, int num_ranks) {
  ResolvedConfig resolved{.config = config};
  GroupConfig& filled = resolved.config;
  if (!filled.lsa_size) {
    EP_TRY_ASSIGN(const std::optional<std::int64_t> lsa_size,
                  base::env_int(base::EnvVar::kLsaSize, {1, num_ranks}));
    filled.lsa_size = static_cast<int>(lsa_size.value_or(num_ranks));
  }
  if (!filled.timeout) {
    EP_TRY_ASSIGN(const std::optional<std::chrono::milliseconds> timeout,
                  base::env_seconds(base::EnvVar::kTimeout));
    filled.timeout = timeout.value_or(kDefaultTimeout);
  }
  if (!filled.ring_slots) {
    filled.ring_slots = filled.backend == Backend::kHost ? kHostRingSlots : kMaxRingSlots;
  }
  EP_TRY(check_ranges(filled, num_ranks));
  EP_TRY(check_experts(filled, num_ranks));
  EP_TRY(check_supported(filled, num_ranks));
  if (filled.experts.is_empty()) {
    EP_TRY_ASSIGN(filled.experts, ExpertMap::balanced(filled.max_experts, num_ranks));
  }
  resolved.timeout = *filled.timeout;
  return resolved;
}

layout::ControlShape control_shape(const GroupConfig& config, int num_ranks) {
  return {.num_ranks = num_ranks,
          .max_tokens = config.max_tokens,
          .max_experts = config.max_experts,
          .max_row_bytes = config.max_hidden_bytes,
          .ring_slots = *config.ring_slots};
}

}  // namespace core

Group::Group(std::unique_ptr<core::GroupState> state) : state_(std::move(state)) {}
Group::~Group() = default;

Result<ArenaPlan> Group::plan(const GroupConfig& config, int num_ranks) {
  if (num_ranks < 1) {
    return Status(Errc::kInvalidArgument,
                  "plan: num_ranks = " + std::to_string(num_ranks) + ", need >= 1");
  }
  EP_TRY_ASSIGN(const core::ResolvedConfig resolved, core::resolve_config(config, num_ranks));
  const core::SegmentPlan segment = core::plan_segment(resolved.config, num_ranks);
  ArenaPlan plan{.control_bytes = segment.control.control_bytes,
                 .ring_bytes = segment.control.ring_bytes,
                 .net_bytes = segment.net_bytes()};
  if (config.pool_bytes > 0) {
    plan.pool_bytes =
        fabric::Pool::segment_bytes_for(config.pool_bytes, core::GroupState::kPoolGrowthBytes);
  }
  const auto segment_bytes = [&](std::int64_t bytes) {
    return config.backend == Backend::kCuda && bytes > 0 ? core::cuda_segment_bytes(bytes) : bytes;
  };
  plan.pool_bytes = segment_bytes(plan.pool_bytes);
  plan.total_bytes = segment_bytes(segment.total_bytes()) + plan.pool_bytes;
  return plan;
}

Result<std::unique_ptr<Group>> Group::create(Bootstrap& bootstrap, const GroupConfig& config) {
  const Result<core::ResolvedConfig> local = core::resolve_config(config, bootstrap.num_ranks());
  EP_TRY(core::agree_on_config(bootstrap, local));
  const core::SegmentPlan plan = core::plan_segment(local->config, bootstrap.num_ranks());
  core::GroupState::Parts parts{
      .config = *local, .arena = nullptr, .engine = nullptr, .share = nullptr};
  EP_TRY(config.backend == Backend::kCuda
             ? core::make_cuda_parts(bootstrap, plan.total_bytes(), parts)
             : core::make_host_parts(bootstrap, plan, parts));
  auto state = std::make_unique<core::GroupState>(std::move(parts));
  Status memory = state->initialize();
  if (memory.ok() && config.pool_bytes > 0) memory = state->pool().reserve(config.pool_bytes);
  EP_TRY(core::agree_on_outcome(bootstrap, memory, "reserve its pool", local->timeout));
  return std::unique_ptr<Group>(new Group(std::move(state)));
}

int Group::rank() const { return state_->rank(); }
int Group::num_ranks() const { return state_->num_ranks(); }
int Group::num_sms(const OpShape& shape, std::optional<int> of_call) const {
  return state_->num_channels(of_call, shape);
}
const GroupConfig& Group::config() const { return state_->config(); }
Result<Tensor> Group::allocate(DType dtype, std::initializer_list<std::int64_t> shape) {
  return state_->allocate(dtype, shape);
}
Status Group::reserve(std::int64_t bytes) { return state_->pool().reserve(bytes); }
std::int64_t Group::arena_bytes() const { return state_->arena().total_bytes(); }
int Group::num_segments() const { return state_->arena().num_segments(); }
NetUse Group::net_use() const {
  return state_->rails() == nullptr ? NetUse() : state_->rails()->use();
}
Status Group::status() const { return state_->take_status(); }

}  // namespace ep
