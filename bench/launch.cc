// SPDX-License-Identifier: Apache-2.0
// Ranks as processes, as threads, or as one process of a launcher.
#include "bench/launch.h"

#include "base/env.h"
#include "bench/fork_ranks.h"

#include <string>
#include <thread>
#include <vector>

namespace ep::bench {
namespace {

ExitCode run_threads(const Options& options, const RankMain& rank_main) {
  auto bootstraps = make_in_process_bootstraps(options.ranks);
  if (!bootstraps.ok()) return fail_to_meet(0, bootstraps.status());
  MeetingBoard board(options.ranks);
  std::vector<ExitCode> codes(static_cast<std::size_t>(options.ranks), ExitCode::kRight);
  std::vector<std::thread> threads;
  threads.reserve(codes.size());
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      BoardMeeting meeting(board, rank);
      RankScope scope = {.rank = rank,
                         .num_ranks = options.ranks,
                         .bootstrap = *(*bootstraps)[index],
                         .meeting = meeting};
      codes[index] = run_guarded(scope, rank_main);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExitCode worst = ExitCode::kRight;
  for (ExitCode code : codes) worst = worst_of(worst, code);
  return worst;
}

ExitCode join_launcher(const Options& options, const RankMain& rank_main) {
  TcpBootstrapConfig config;
  config.timeout = options.timeout;
  auto bootstrap = make_tcp_bootstrap(config);
  if (!bootstrap.ok()) return fail_to_meet(0, bootstrap.status());
  Bootstrap& joined = **bootstrap;
  if (options.given.ranks && options.ranks != joined.num_ranks()) {
    return fail_to_meet(joined.rank(), Status(Errc::kInvalidArgument,
                                              "--ranks " + std::to_string(options.ranks) +
                                                  ", but the launcher started " +
                                                  std::to_string(joined.num_ranks()) +
                                                  "; with --launch fork ep-bench starts its own"));
  }
  BootstrapMeeting meeting(joined);
  RankScope scope = {.rank = joined.rank(),
                     .num_ranks = joined.num_ranks(),
                     .bootstrap = joined,
                     .meeting = meeting};
  return run_guarded(scope, rank_main);
}

}  // namespace

bool joins_launcher(const Options& options) {
  using base::EnvVar;
  if (options.given.launch) return false;
  for (EnvVar var : {EnvVar::kTorchRank, EnvVar::kOmpiRank, EnvVar::kSlurmProcId}) {
    if (base::env_text(var)) return true;
  }
  return false;
}

ExitCode launch_ranks(const Options& options, const RankMain& rank_main) {
  if (joins_launcher(options)) return join_launcher(options, rank_main);
  return options.launch == Launch::kFork ? run_forked(options, rank_main)
                                         : run_threads(options, rank_main);
}

}  // namespace ep::bench
