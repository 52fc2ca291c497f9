// SPDX-License-Identifier: Apache-2.0
// Seeds and mutants, shared out over processes.
#include "tests/sim/prove.h"

#include "tests/sim/scenario.h"
#include "tests/sim/workers.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string_view>

namespace ep::test {
namespace {

using fabric::sim::Mutation;
using fabric::sim::Sites;

std::string describe_findings(const SimScenario& scenario, const SimResult& result) {
  std::string text = "seed " + std::to_string(scenario.seed) + ": " + scenario.describe() + "\n";
  for (const std::string& finding : result.findings) text += "  " + finding + "\n";
  return text + "  replay: ./dev prove --seed " + std::to_string(scenario.seed) +
         " --trace trace.json\n";
}

/// Every num_jobs-th seed: "runs steps\n", a mutation per line, an empty line, findings.
std::string search_share(std::uint64_t first,
                         std::uint64_t end,
                         std::uint64_t stride,
                         Progress progress) {
  Sites sites;
  std::uint64_t num_runs = 0;
  std::uint64_t num_steps = 0;
  std::string findings;
  for (std::uint64_t seed = first; seed < end && findings.empty(); seed += stride) {
    progress = seed;
    const SimScenario scenario = draw_scenario(seed);
    const SimResult result = run_scenario(scenario, sites);
    ++num_runs;
    num_steps += result.num_steps;
    if (!result.findings.empty()) findings = describe_findings(scenario, result);
  }
  std::string text = std::to_string(num_runs) + " " + std::to_string(num_steps) + "\n";
  for (const Mutation& mutation : sites.orders_met()) text += mutation.to_string() + "\n";
  return text + "\n" + findings;
}

void merge(SearchResult& all, const WorkerResult& share) {
  if (share.exit_signal != 0) {
    all.findings += "seed " + std::to_string(share.progress) +
                    ": the run was ended by: " + strsignal(share.exit_signal) + "\n";
    return;
  }
  std::istringstream text(share.text);
  std::uint64_t num_runs = 0;
  std::uint64_t num_steps = 0;
  text >> num_runs >> num_steps;
  all.num_runs += num_runs;
  all.num_steps += num_steps;
  std::string line;
  std::getline(text, line);
  while (std::getline(text, line) && !line.empty()) {
    Mutation mutation;
    if (!Mutation::parse(line, mutation)) continue;
    if (std::find(all.orders_met.begin(), all.orders_met.end(), mutation) == all.orders_met.end())
      all.orders_met.push_back(mutation);
  }
  while (std::getline(text, line)) all.findings += line + "\n";
}

/// "scenario\nfinding" of the seed in `progress`, empty if none finds it.
std::string search_mutant(const Mutation& mutation, std::uint64_t most, Progress progress) {
  Sites sites;
  sites.weaken(mutation);
  for (std::uint64_t seed = 1; seed <= most; ++seed) {
    progress = seed;
    const SimScenario scenario = draw_scenario(seed);
    const SimResult result = run_scenario(scenario, sites);
    if (!result.findings.empty()) return scenario.describe() + "\n" + result.findings.front();
  }
  progress = 0;
  return "";
}

}  // namespace

SearchResult search_seeds(std::uint64_t first, std::uint64_t count, int num_jobs) {
  const auto stride = static_cast<std::uint64_t>(num_jobs);
  const auto shares = run_workers(stride, num_jobs, [&](std::size_t job, Progress progress) {
    return search_share(first + job, first + count, stride, progress);
  });
  SearchResult all;
  for (const WorkerResult& share : shares) merge(all, share);
  return all;
}

std::vector<MutantResult> search_mutants(const std::vector<Mutation>& mutations,
                                         std::uint64_t most,
                                         int num_jobs) {
  const auto searches =
      run_workers(mutations.size(), num_jobs, [&](std::size_t i, Progress progress) {
        return search_mutant(mutations[i], most, progress);
      });
  std::vector<MutantResult> results;
  for (std::size_t i = 0; i < mutations.size(); ++i) {
    MutantResult result{.mutation = mutations[i], .seed = searches[i].progress};
    std::istringstream text(searches[i].text);
    std::getline(text, result.scenario);
    std::getline(text, result.finding, '\0');
    if (searches[i].exit_signal != 0)
      result.finding = std::string("the run was ended by: ") + strsignal(searches[i].exit_signal);
    results.push_back(result);
  }
  return results;
}

}  // namespace ep::test
