// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/scenario.h"

#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  ep::fabric::sim::Sites sites;
  const std::uint64_t from = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const std::uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 100;
  std::uint64_t steps = 0;
  int bad = 0;
  const bool mut = argc > 3 && std::string(argv[3]) == "mut";
  ep::fabric::sim::Mutation m;
  if (argc > 3 && ep::fabric::sim::Mutation::parse(argv[3], m)) sites.weaken(m);
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    const auto scenario = ep::test::draw_scenario(seed);
    if (count < 5) std::printf("%s\n", scenario.describe().c_str());
    const auto result = ep::test::run_scenario(scenario, sites);
    steps += result.num_steps;
    if (result.findings.empty()) continue;
    ++bad;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), scenario.describe().c_str());
    for (const auto& finding : result.findings) std::printf("  %s\n", finding.c_str());
    if (bad > 0) break;
  }
  std::printf("%llu steps, %d bad\n", static_cast<unsigned long long>(steps), bad);
  if (!mut) return bad;
  for (const auto& met : sites.orders_met()) {
    sites.weaken(met);
    std::string first = "-";
    std::uint64_t seed = 1;
    for (; seed <= 400; ++seed) {
      const auto result = ep::test::run_scenario(ep::test::draw_scenario(seed), sites);
      if (!result.findings.empty()) { first = result.findings[0]; break; }
    }
    std::printf("%-45s %5llu %s\n", met.to_string().c_str(), static_cast<unsigned long long>(seed), first.substr(0, 90).c_str());
    std::fflush(stdout);
  }
}
