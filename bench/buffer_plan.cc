// SPDX-License-Identifier: Apache-2.0
// Sizes everything for the worst routing: memory is committed when it is first written.
#include "bench/buffer_plan.h"

#include "bench/number.h"

#include <ep/expert_map.h>

#include <algorithm>
#include <limits>

namespace ep::bench {
namespace {

/// What a block of the pool may take beyond its bytes.
constexpr std::int64_t kBlockSlackBytes = 4096;
/// Tensors of one DispatchOutput.
constexpr std::int64_t kDispatchTensors = 8;
/// More than the L2 of any GPU; the device is asked only after the ranks have started.
constexpr std::int64_t kGpuCacheBytes = std::int64_t{160} << 20;
/// The run's buffers may take this part of the machine's memory.
constexpr std::int64_t kMemoryShare = 3;

std::int64_t most_local_experts(const Options& options) {
  return (options.experts + options.ranks - 1) / options.ranks;
}

std::int64_t most_rows(const Options& options) {
  const std::int64_t tokens = std::int64_t{options.ranks} * options.tokens;
  if (options.layout == Layout::kFlat) return tokens;
  const std::int64_t num_local = most_local_experts(options);
  const std::int64_t rows = tokens * std::min<std::int64_t>(options.topk, num_local);
  return rows + num_local * (options.align - 1);
}

/// Rows that one token becomes, at most.
std::int64_t most_copies(const Options& options) {
  return options.layout == Layout::kFlat ? std::min(options.topk, options.ranks) : options.topk;
}

std::int64_t row_bytes(const Options& options) { return options.hidden * size_of(options.dtype); }

std::int64_t expert_row_bytes(const Options& options) {
  return options.hidden * size_of(expert_dtype_of(options.dtype));
}

std::int64_t cache_bytes(const Job& job) {
  return job.options.backend == Backend::kCuda ? kGpuCacheBytes : job.host.cache_bytes;
}

/// How many times `bytes` exceed the last-level cache.
std::int64_t sets_beyond_cache(const Job& job, std::int64_t bytes) {
  return cache_bytes(job) / std::max<std::int64_t>(bytes, 1) + 1;
}

void plan_sets(const Job& job, BufferPlan& plan) {
  const Options& options = job.options;
  const std::int64_t tokens = std::int64_t{options.ranks} * options.tokens;
  plan.cache_bytes = cache_bytes(job);
  // A token is read once and arrives at least once.
  plan.set_bytes = 2 * tokens * row_bytes(options);
  // Input and output, received and expert rows.
  const std::int64_t most_bytes =
      tokens * (row_bytes(options) + expert_row_bytes(options)) * (1 + most_copies(options));
  const bool is_cuda = options.backend == Backend::kCuda;
  // On CUDA the bytes of one rank: its GPU may hold no other.
  const std::int64_t cached_bytes = is_cuda ? plan.set_bytes / options.ranks : plan.set_bytes;
  const std::int64_t wanted = std::max<std::int64_t>(sets_beyond_cache(job, cached_bytes),
                                                     is_cuda ? kMinCudaSets : kMinSets);
  const std::int64_t fitting =
      job.host.memory_bytes / kMemoryShare / std::max<std::int64_t>(most_bytes, 1);
  const std::int64_t allowed = std::clamp<std::int64_t>(fitting, 1, kMaxSets);
  plan.num_sets = static_cast<int>(std::min(wanted, allowed));
  plan.is_capped = wanted > allowed;
}

void plan_copies(const Job& job, BufferPlan& plan) {
  const Options& options = job.options;
  const std::int64_t larger_row = std::max(row_bytes(options), expert_row_bytes(options));
  plan.max_copy_bytes =
      std::max<std::int64_t>(options.tokens, 1) * most_copies(options) * larger_row;
  const std::int64_t pair_bytes = 2 * plan.max_copy_bytes * options.ranks;
  const std::int64_t fitting =
      job.host.memory_bytes / kMemoryShare / std::max<std::int64_t>(pair_bytes, 1);
  const std::int64_t allowed = std::clamp<std::int64_t>(fitting, 1, kMaxSets);
  plan.num_copy_sets = static_cast<int>(std::min(sets_beyond_cache(job, pair_bytes), allowed));
}

/// Of one set: what a dispatch returns, and the experts' rows.
std::int64_t set_pool_bytes(const Options& options, std::int64_t rows) {
  const std::int64_t choice_bytes =
      options.topk * std::int64_t{sizeof(std::int64_t) + sizeof(float)};
  const std::int64_t scale_bytes =
      num_scales_of(options.dtype, options.hidden) * std::int64_t{sizeof(float)};
  const std::int64_t count_bytes =
      2 * most_local_experts(options) * std::int64_t{sizeof(std::int64_t)};
  const std::int64_t received = rows * (row_bytes(options) + scale_bytes + choice_bytes);
  const std::int64_t experts =
      options.placement == Placement::kArena ? rows * expert_row_bytes(options) : 0;
  return received + experts + count_bytes + (kDispatchTensors + 1) * kBlockSlackBytes;
}

NetOptions net_options_of(const Options& options) {
  NetOptions net;
  net.provider = options.provider.value_or("");
  net.is_unordered = options.net == NetKind::kUnordered;
  net.chaos_seed = options.chaos_seed;
  return net;
}

}  // namespace

BufferPlan plan_buffers(const Job& job) {
  const Options& options = job.options;
  BufferPlan plan;
  const bool has_rows = options.capacity.kind == Capacity::Kind::kRows;
  plan.max_rows = has_rows ? options.capacity.rows : most_rows(options);
  if (options.capacity.kind != Capacity::Kind::kExact) plan.capacity = plan.max_rows;
  plan_sets(job, plan);
  plan_copies(job, plan);
  const std::int64_t sets = plan.num_sets * set_pool_bytes(options, plan.max_rows);
  if (options.backend == Backend::kCuda) plan.num_copy_sets = 0;  // no memcpy beside it
  const std::int64_t copies = plan.num_copy_sets * (plan.max_copy_bytes + kBlockSlackBytes);
  plan.pool_bytes = sets + copies;
  return plan;
}

OpShape op_shape_of(const Options& options, Movement movement) {
  const DType dtype =
      movement == Movement::kDispatch ? options.dtype : expert_dtype_of(options.dtype);
  return {.num_ranks = options.ranks,
          .num_tokens = options.tokens,
          .hidden_bytes = options.hidden * size_of(dtype),
          .topk = options.topk,
          .movement = movement,
          .layout = options.layout,
          .backend = options.backend};
}

GroupConfig group_config_of(const Job& job, const BufferPlan& plan) {
  const Options& options = job.options;
  GroupConfig config;
  config.backend = options.backend;
  config.max_tokens = std::max<std::int64_t>(options.tokens, 1);
  config.max_hidden_bytes = std::max(row_bytes(options), expert_row_bytes(options));
  config.max_topk = options.topk;
  config.max_experts = options.experts;
  config.pool_bytes = plan.pool_bytes;
  config.num_sms = options.sms;
  config.lsa_size = lsa_size_of(options);
  if (has_nodes(options)) config.net = net_options_of(options);
  config.timeout = options.timeout;
  return config;
}

}  // namespace ep::bench
