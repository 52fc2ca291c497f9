// SPDX-License-Identifier: Apache-2.0
// Random workloads over all operations of a group, on ranks that are fibers.
#include "tests/sim/scenario.h"

#include "core/group_state.h"
#include "fabric/sim/arena.h"
#include "tests/support/routing_cases.h"

#include <memory>
#include <optional>
#include <utility>

namespace ep::test {
namespace {

using fabric::sim::Machine;

constexpr std::size_t kRankBytes = std::size_t{96} << 20;

/// Ranks of one machine have no need to meet.
class SimBootstrap final : public Bootstrap {
 public:
  SimBootstrap(int rank, int num_ranks) : rank_(rank), num_ranks_(num_ranks) {}
  int rank() const override { return rank_; }
  int num_ranks() const override { return num_ranks_; }
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> /*mine*/,
                                        std::chrono::milliseconds /*timeout*/) override {
    return Status(Errc::kUnsupported, "simulated ranks do not gather");
  }

 private:
  int rank_;
  int num_ranks_;
};

/// A region of a rank's arena, and how far behind its begin an address lies.
struct Region {
  const char* name;
  std::int64_t offset;
};

Region region_of(const fabric::sim::ArenaTable& table,
                 const layout::ControlLayout& control,
                 const std::byte* address) {
  const fabric::sim::Space& space = *table.space;
  const int rank = space.part_of(address);
  if (rank == table.num_ranks) return {"scratch", address - space.part(rank)};
  const Region regions[] = {{"local", control.local},
                            {"fault", control.fault},
                            {"abort", control.abort},
                            {"ops", control.ops},
                            {"blocks", control.blocks},
                            {"counts", control.counts},
                            {"totals", control.totals},
                            {"arrived", control.arrived},
                            {"arrived_base", control.arrived_base},
                            {"pulled", control.pulled},
                            {"pulled_base", control.pulled_base},
                            {"returned", control.returned},
                            {"returned_base", control.returned_base},
                            {"chunk_flags", control.chunk_flags},
                            {"ring_ready", control.ring_ready},
                            {"ring_freed", control.ring_freed},
                            {"pair_index", control.pair_index},
                            {"ring_payload", control.ring_payload},
                            {"pool", control.total_bytes}};
  const std::byte* segment0 = table.bases[static_cast<std::size_t>(rank) * fabric::kMaxSegments];
  Region found{"gone", address - space.part(rank)};
  for (const Region& region : regions) {
    const std::int64_t offset = address - segment0 - region.offset;
    if (offset >= 0) found = {region.name, offset};
  }
  return found;
}

std::string describe_address(const fabric::sim::ArenaTable& table,
                             const layout::ControlLayout& control,
                             const std::byte* address) {
  const Region region = region_of(table, control, address);
  const int rank = table.space->part_of(address);
  const std::string text = std::string(region.name) + " + " + std::to_string(region.offset);
  return rank == table.num_ranks ? text : "rank " + std::to_string(rank) + ", " + text;
}

std::unique_ptr<Group> make_group(const SimScenario& scenario,
                                  Machine& machine,
                                  const std::shared_ptr<fabric::sim::ArenaTable>& table,
                                  int rank) {
  const int num_ranks = table->num_ranks;
  const core::ResolvedConfig config = core::resolve_config(scenario.config, num_ranks).value();
  const auto control = layout::make_control_layout(core::control_shape(config.config, num_ranks));
  auto state = std::make_unique<core::GroupState>(core::GroupState::Parts{
      .config = config,
      .arena = std::make_unique<fabric::sim::Arena>(table, rank, control.total_bytes),
      .engine = std::make_unique<SimEngine>(machine, rank, scenario.launch)});
  static_cast<void>(state->initialize());
  return std::make_unique<Group>(std::make_unique<ep::Group>(std::move(state)), nullptr);
}

bool write_trace(fabric::sim::Trace& trace,
                 const fabric::sim::Checker& checker,
                 const std::string& path) {
  for (std::size_t i = 0; i < checker.num_agents(); ++i) {
    const auto agent = static_cast<fabric::sim::AgentId>(i);
    trace.name_track(checker.rank_of(agent), agent, checker.name_of(agent));
  }
  return trace.write(path);
}

/// One rank's program.
class RankProgram {
 public:
  RankProgram(const SimScenario& scenario, const Oracle& oracle, Group& group)
      : scenario_(scenario),
        oracle_(oracle),
        group_(group),
        bootstrap_(group.rank(), group.num_ranks()),
        context_(bootstrap_, step_) {}

  void run() {
    if (scenario_.fault.kind != SimFault::Kind::kNone) return run_until_fault();
    for (const SimStep& step : scenario_.steps) {
      if (!run_step(step)) return;
    }
  }
  std::vector<std::string> failures() { return context_.take_report().failures; }

 private:
  void run_until_fault() {
    const SimFault& fault = scenario_.fault;
    if (fault.kind == SimFault::Kind::kAbsent && fault.rank == group_.rank()) return;
    Status status;
    for (int round = 0; status.ok(); ++round) status = run_round();
    context_.expect(status.code() == Errc::kPeerTimeout && status.peer() == fault.rank,
                    "rank " + std::to_string(fault.rank) + " is to blame: " + status.to_string());
  }

  Status run_round() {
    const Problem& problem = scenario_.problem;
    const RankInputs inputs(problem, group_.rank());
    const DispatchOptions options{.layout = problem.layout, .experts = map_of(problem)};
    const auto output = dispatch(group_, inputs.views(), options);
    if (!output.ok()) return output.status();
    return combine(group_, output->handle, {.rows = output->x.view()}).status();
  }

  bool run_step(const SimStep& step) {
    switch (step.kind) {
      case SimStep::Kind::kDispatch:
        output_ = checked_dispatch(context_, group_, oracle_, step.dispatch);
        return output_.has_value();
      case SimStep::Kind::kCached:
        return checked_dispatch_cached(context_, group_, oracle_, output_->handle, step.dispatch)
            .has_value();
      case SimStep::Kind::kCombine:
        return checked_combine(context_, group_, oracle_, output_->handle, step.combine)
            .has_value();
      case SimStep::Kind::kCombineBackward:
        return checked_combine_backward(context_, group_, oracle_, output_->handle, step.combine);
      case SimStep::Kind::kDispatchBackward:
        return checked_dispatch_backward(context_, group_, oracle_, output_->handle, step.combine);
    }
    return false;
  }

  const SimScenario& scenario_;
  const Oracle& oracle_;
  Group& group_;
  SimBootstrap bootstrap_;
  RankStep step_;
  RankContext context_;
  std::optional<DispatchOutput> output_;
};

}  // namespace

std::string SimScenario::describe() const {
  constexpr const char* kNames[] = {"dispatch", "cached", "combine", "combine_backward",
                                    "dispatch_backward"};
  std::string text = problem.describe() + ", " + std::to_string(launch.group_threads) +
                     " threads per lane, " + (launch.has_copy_unit ? "" : "no copy unit, ") +
                     std::to_string(config.num_sms.value_or(0)) + " channels, " +
                     std::to_string(config.ring_slots.value_or(0)) + " ring slots:";
  if (fault.kind != SimFault::Kind::kNone)
    text +=
        " rank " + std::to_string(fault.rank) +
        (fault.kind == SimFault::Kind::kAbsent ? " is absent"
                                               : " ends at step " + std::to_string(fault.at_step));
  for (const SimStep& step : steps) text += std::string(" ") + kNames[static_cast<int>(step.kind)];
  return text;
}

SimResult run_scenario(const SimScenario& scenario,
                       fabric::sim::Sites& sites,
                       const std::string& trace_path) {
  const int num_ranks = scenario.problem.routing.num_ranks();
  const Oracle oracle(scenario.problem);
  fabric::sim::Trace trace;
  const core::ResolvedConfig config = core::resolve_config(scenario.config, num_ranks).value();
  const auto control = layout::make_control_layout(core::control_shape(config.config, num_ranks));
  std::shared_ptr<fabric::sim::ArenaTable> table;
  Machine machine(
      sites,
      {.seed = scenario.seed,
       .num_ranks = num_ranks,
       .rank_bytes = kRankBytes,
       .scratch_bytes = kRankBytes,
       .trace = trace_path.empty() ? nullptr : &trace,
       .describe =
           [&](const std::byte* address) { return describe_address(*table, control, address); },
       .region_of =
           [&](const std::byte* address) { return region_of(*table, control, address).name; }});
  table = std::make_shared<fabric::sim::ArenaTable>(machine.space(), num_ranks);
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<std::unique_ptr<RankProgram>> programs;
  for (int rank = 0; rank < num_ranks; ++rank) {
    groups.push_back(make_group(scenario, machine, table, rank));
    programs.push_back(std::make_unique<RankProgram>(scenario, oracle, *groups.back()));
    machine.add_host(rank, [program = programs.back().get()] { program->run(); });
  }
  if (scenario.fault.kind == SimFault::Kind::kKilled)
    machine.kill_at(scenario.fault.at_step, scenario.fault.rank);
  machine.run();
  SimResult result{.findings = machine.checker().violations(), .num_steps = machine.num_steps()};
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (scenario.fault.kind == SimFault::Kind::kKilled && rank == scenario.fault.rank) continue;
    for (const std::string& failure : programs[static_cast<std::size_t>(rank)]->failures())
      result.findings.push_back("rank " + std::to_string(rank) + " " + failure);
  }
  if (!trace_path.empty() && !write_trace(trace, machine.checker(), trace_path))
    result.findings.push_back("cannot write " + trace_path);
  return result;
}

}  // namespace ep::test
