// SPDX-License-Identifier: Apache-2.0
// Reports of ranks.
#include "bench/rank_scope.h"

#include <exception>
#include <unistd.h>

namespace ep::bench {

ExitCode run_guarded(RankScope& scope, const RankMain& rank_main) {
  try {
    return rank_main(scope);
  } catch (const std::exception& error) {  // std::bad_alloc; anything else is a bug
    print_rank_error(scope.rank, error.what());
    scope.meeting.leave();
    return ExitCode::kPeer;
  }
}

ExitCode fail_to_meet(int rank, const Status& status) {
  print_rank_error(rank, status.to_string());
  return ExitCode::kPeer;
}

void print_rank_error(int rank, const std::string& message) {
  const std::string line = "ep-bench: rank " + std::to_string(rank) + ": " + message + "\n";
  // One write, so that the lines of several ranks do not mix.
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
}

}  // namespace ep::bench
