// SPDX-License-Identifier: Apache-2.0
// ep_prove: runs the protocols in the simulator (./dev prove).
#include "tests/sim/prove.h"
#include "tests/sim/prove_options.h"
#include "tests/sim/scenario.h"

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace ep::test {
namespace {

int replay(const ProveOptions& options) {
  fabric::sim::Sites sites;
  sites.weaken(options.weakened);
  const SimScenario scenario = draw_scenario(options.first_seed);
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(scenario.seed),
              scenario.describe().c_str());
  const SimResult result = run_scenario(scenario, sites, options.trace_path);
  for (const std::string& finding : result.findings) std::printf("  %s\n", finding.c_str());
  std::printf("%llu steps, %zu findings\n", static_cast<unsigned long long>(result.num_steps),
              result.findings.size());
  return result.findings.empty() ? 0 : 1;
}

std::string quoted(const std::string& text) {
  std::string escaped = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped + "\"";
}

/// For tools/sim_report.py.
bool write_report(const std::string& path, const std::vector<MutantResult>& mutants) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  const char* separator = "[";
  for (const MutantResult& mutant : mutants) {
    std::fprintf(file,
                 "%s\n{\"order\": \"%s\", \"file\": \"%s\", \"line\": %d, \"region\": \"%s\", "
                 "\"seed\": %llu, "
                 "\"scenario\": %s, \"finding\": %s}",
                 separator, name_of(mutant.mutation.order), mutant.mutation.file.c_str(),
                 mutant.mutation.line, mutant.mutation.region.c_str(),
                 static_cast<unsigned long long>(mutant.seed), quoted(mutant.scenario).c_str(),
                 quoted(mutant.finding).c_str());
    separator = ",";
  }
  std::fputs("\n]\n", file);
  return std::fclose(file) == 0;
}

/// Whether one that no seed finds is allowed is the business of tools/sim_report.py.
bool prove_mutants(const ProveOptions& options, const SearchResult& seeds) {
  const auto mutants = search_mutants(seeds.orders_met, options.mutant_seeds, options.num_jobs);
  int num_missed = 0;
  for (const MutantResult& mutant : mutants) {
    if (mutant.seed == 0) ++num_missed;
    std::printf("%-46s %5llu  %s\n", mutant.mutation.to_string().c_str(),
                static_cast<unsigned long long>(mutant.seed),
                mutant.finding.substr(0, mutant.finding.find('\n')).c_str());
  }
  std::printf("%zu mutants, %d found by no seed\n", mutants.size(), num_missed);
  return options.report_path.empty() || write_report(options.report_path, mutants);
}

/// The full protocol of 64 ranks in this process.
int prove_large() {
  constexpr int kNumRanks = 64;
  fabric::sim::Sites sites;
  int num_findings = 0;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    const auto begin = std::chrono::steady_clock::now();
    const SimScenario scenario = large_scenario(kNumRanks, seed);
    const SimResult result = run_scenario(scenario, sites);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    for (const std::string& finding : result.findings) std::printf("  %s\n", finding.c_str());
    std::printf("EP %d, %s: %llu steps, %zu findings, %.1f s\n", kNumRanks,
                scenario.problem.layout == Layout::kFlat ? "flat" : "expert_major",
                static_cast<unsigned long long>(result.num_steps), result.findings.size(),
                took.count());
    num_findings += static_cast<int>(result.findings.size());
  }
  return num_findings;
}

int prove(const ProveOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const SearchResult seeds = search_seeds(options.first_seed, options.num_seeds, options.num_jobs);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::fputs(seeds.findings.c_str(), stdout);
  std::printf("%llu seeds, %llu steps, %s, %.1f s\n",
              static_cast<unsigned long long>(seeds.num_runs),
              static_cast<unsigned long long>(seeds.num_steps),
              seeds.findings.empty() ? "0 violations" : "VIOLATED", took.count());
  if (!seeds.findings.empty() || (options.has_large && prove_large() > 0)) return 1;
  return options.mutant_seeds > 0 && !prove_mutants(options, seeds) ? 1 : 0;
}

}  // namespace
}  // namespace ep::test

int main(int argc, char** argv) {
  ep::test::ProveOptions options;
  if (!ep::test::parse_prove_options(argc, argv, options)) return 2;
  return options.is_replay ? ep::test::replay(options) : ep::test::prove(options);
}
