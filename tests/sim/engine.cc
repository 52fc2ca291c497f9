// SPDX-License-Identifier: Apache-2.0
// Launches roles as fibers, and stands for what callers do with tensors.
#include "tests/sim/engine.h"

#include "fabric/sim/memory.h"
#include "tests/sim/roles.h"

#include <cstring>
#include <source_location>
#include <vector>

namespace ep::test {
namespace {

std::int64_t num_rows_of(const intranode::RoutingParams& routing) {
  return layout::array_at<std::int64_t>(
      routing.block, routing.tables.sizes)[static_cast<int>(layout::Size::kRows)];
}

/// What an operation that failed left in the tensors is undefined, also while the caller looks.
bool is_fine(const primitives::OpParams& op) {
  return layout::array_at<layout::Counter>(op.own, op.layout.abort)->value == 0;
}

}  // namespace

fabric::sim::Lane& SimEngine::lane(const std::string& role,
                                   int channel,
                                   std::int64_t scratch_bytes) {
  auto& lane = lanes_[{role, channel}];
  if (!lane) {
    const std::string name =
        "rank " + std::to_string(rank_) + ", " + role + ", channel " + std::to_string(channel);
    lane = std::make_unique<fabric::sim::Lane>(machine_, rank_, name, launch_.group_threads);
    lane->has_copy_unit = launch_.has_copy_unit;
  }
  const auto bytes = static_cast<std::size_t>(scratch_bytes);
  if (lane->scratch_bytes < bytes) {
    lane->scratch = machine_.allocate_scratch(bytes);
    lane->scratch_bytes = bytes;
  }
  return *lane;
}

template <class Params>
void SimEngine::run(Params params, int num_channels) {
  const auto roles = sim_roles_of(params);
  const std::int64_t scratch_bytes = sim_scratch_bytes(params.routing.tables.shape);
  params.op.num_lanes = num_channels * static_cast<int>(roles.size());
  std::vector<fabric::sim::Machine::Task> tasks;
  for (int channel = 0; channel < num_channels; ++channel) {
    for (const auto& role : roles) {
      fabric::sim::Lane& of_role = lane(role.name, channel, scratch_bytes);
      of_role.copies.begin();
      const primitives::Lane view{
          .channel = channel, .scratch = of_role.scratch, .stage_bytes = launch_.stage_bytes};
      for (int thread = 0; thread < launch_.group_threads; ++thread) {
        tasks.push_back({.name = of_role.name,
                         .agent = of_role.agents[static_cast<std::size_t>(thread)],
                         .lane = &of_role,
                         .thread_rank = thread,
                         .body = [&params, &of_role, view, thread, run = role.run] {
                           run(fabric::sim::Group(of_role.rendezvous, thread), params, view);
                           if (thread == 0) of_role.copies.end();
                         }});
      }
    }
  }
  machine_.launch(std::move(tasks));
}

Status SimEngine::launch(const intranode::DispatchParams& params, int num_sms, Stream /*stream*/) {
  if (params.returns_gradient) write_rows(params.expert_rows, params.routing);
  run(params, num_sms);
  if (params.is_moving() && is_fine(params.op)) read_received(params);
  return {};
}

Status SimEngine::launch(const intranode::CombineParams& params, int num_sms, Stream /*stream*/) {
  write_rows(params.rows, params.routing);
  run(params, num_sms);
  if (is_fine(params.op)) write_rows(params.rows, params.routing);
  return {};
}

void SimEngine::note(const void* address, std::int64_t bytes, bool is_write) {
  fabric::sim::Checker& checker = machine_.checker();
  const auto actor = checker.actor(machine_.running().agent);
  const auto site = machine_.sites().of(std::source_location::current());
  const auto size = static_cast<std::size_t>(bytes);
  if (is_write) {
    checker.write(actor, address, size, site);
  } else {
    checker.read(actor, address, size, site);
  }
}

void SimEngine::write_rows(const intranode::RowInput& rows,
                           const intranode::RoutingParams& routing) {
  if (rows.data == nullptr || !machine_.space().contains(rows.data)) return;
  for (std::int64_t row = 0; row < num_rows_of(routing); ++row)
    note(rows.row(row), rows.row_bytes, true);
}

void SimEngine::read_received(const intranode::DispatchParams& params) {
  const std::int64_t num_rows = num_rows_of(params.routing);
  const auto* table = static_cast<std::byte* const*>(params.op.peer_table);
  const auto read_section = [&](layout::Section section, std::int64_t row_bytes) {
    const layout::Location at = params.block[section];
    note(table[rank_ * layout::kMaxSegments + at.segment] + at.offset_units * layout::kLocationUnit,
         num_rows * row_bytes, false);
  };
  const std::int64_t topk = params.has_expert_rows() ? 1 : params.routing.tables.shape.topk;
  read_section(layout::Section::kRows, params.x.row_bytes);
  read_section(layout::Section::kScales, params.scales.row_bytes);
  if (params.has_weights)
    read_section(layout::Section::kTopkWeights, topk * static_cast<std::int64_t>(sizeof(float)));
  if (params.has_records) read_section(layout::Section::kTopkIdx, topk * params.idx_bytes);
}

Status SimEngine::fill_zero(void* dst, std::int64_t bytes, Stream /*stream*/) {
  note(dst, bytes, true);
  std::memset(dst, 0, static_cast<std::size_t>(bytes));
  return {};
}

Status SimEngine::upload(void* dst, const void* src, std::int64_t bytes, Stream /*stream*/) {
  return write(dst, src, bytes);
}

Status SimEngine::read(void* dst, const void* src, std::int64_t bytes) {
  if (bytes != sizeof(std::uint32_t) && bytes != sizeof(std::uint64_t)) {
    note(src, bytes, false);
    std::memcpy(dst, src, static_cast<std::size_t>(bytes));
    return {};
  }
  const fabric::sim::WordAccess word{const_cast<void*>(src),  // NOLINT: it is only read
                                     static_cast<int>(bytes), fabric::sim::Scope::kSys, true};
  // [sync:fault] acquire: the record
  const std::uint64_t value = fabric::sim::load_atomic(word, std::source_location::current());
  std::memcpy(dst, &value, static_cast<std::size_t>(bytes));
  return {};
}

Status SimEngine::write(void* dst, const void* src, std::int64_t bytes) {
  std::memcpy(dst, src, static_cast<std::size_t>(bytes));
  return {};
}

}  // namespace ep::test
