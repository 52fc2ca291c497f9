// SPDX-License-Identifier: Apache-2.0
// Forks, reaps, and kills what does not end by itself.
#include "bench/fork_ranks.h"

#include "base/check.h"
#include "base/env.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace ep::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// A rank that saw the deadline pass still has to report and leave.
constexpr std::chrono::seconds kGraceAfterTimeout{5};
constexpr std::chrono::milliseconds kReapPeriod{2};

Status out_of_memory(const char* call) {
  const int error = errno;
  return Status(Errc::kOutOfMemory, std::string(call) + ": " + std::strerror(error), error);
}

/// A board that parent and children share.
class SharedBoard {
 public:
  /// Null if there is no memory.
  static std::unique_ptr<SharedBoard> create(int num_ranks) {
    void* memory = mmap(nullptr, sizeof(MeetingBoard), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    return std::unique_ptr<SharedBoard>(new SharedBoard(new (memory) MeetingBoard(num_ranks)));
  }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  ~SharedBoard() { munmap(board_, sizeof(MeetingBoard)); }

  MeetingBoard& operator*() const { return *board_; }

 private:
  explicit SharedBoard(MeetingBoard* board) : board_(board) {}
  MeetingBoard* board_;
};

/// Variables of a launcher around us must not reach ranks that we start ourselves.
void forget_launcher() {
  using base::EnvVar;
  for (EnvVar var :
       {EnvVar::kMasterAddr, EnvVar::kMasterPort, EnvVar::kTorchMasterAddr,
        EnvVar::kTorchMasterPort, EnvVar::kTorchRank, EnvVar::kTorchWorldSize,
        EnvVar::kTorchLocalWorldSize, EnvVar::kOmpiRank, EnvVar::kOmpiSize, EnvVar::kOmpiLocalSize,
        EnvVar::kSlurmProcId, EnvVar::kSlurmNumTasks, EnvVar::kSlurmNumNodes}) {
    unsetenv(std::string(base::name_of(var)).c_str());
  }
}

/// Names the abstract socket on which the ranks of this run meet.
std::string private_job_id() {
  return "ep-bench-" + std::to_string(getpid()) + "-" +
         std::to_string(Clock::now().time_since_epoch().count());
}

struct ForkPlan {
  const Options& options;
  const RankMain& rank_main;
  MeetingBoard& board;
  std::string job_id;
  pid_t parent;
};

ExitCode run_child(const ForkPlan& plan, int rank) {
  // The ranks of a killed ep-bench must not live on; it may have died before this line.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != plan.parent) return ExitCode::kPeer;
  TcpBootstrapConfig config;
  config.rank = rank;
  config.num_ranks = plan.options.ranks;
  config.job_id = plan.job_id;
  config.timeout = plan.options.timeout;
  auto bootstrap = make_tcp_bootstrap(config);
  BoardMeeting meeting(plan.board, rank);
  if (!bootstrap.ok()) {
    meeting.leave();
    return fail_to_meet(rank, bootstrap.status());
  }
  RankScope scope = {
      .rank = rank, .num_ranks = plan.options.ranks, .bootstrap = **bootstrap, .meeting = meeting};
  return run_guarded(scope, plan.rank_main);
}

/// The children of a run, until all are reaped.
class Children {
 public:
  Children(MeetingBoard& board, std::chrono::milliseconds timeout)
      : board_(board), grace_(timeout + kGraceAfterTimeout) {}
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    kill_all();
    while (num_alive() > 0) reap_one(0);
  }

  void add(pid_t pid) { pids_.push_back(pid); }

  ExitCode wait_for_all() {
    while (num_alive() > 0) {
      // Until something fails there is nothing to do but wait for the next end.
      if (!deadline_) {
        reap_one(0);
      } else if (!reap_one(WNOHANG)) {
        if (Clock::now() > *deadline_) kill_late();
        std::this_thread::sleep_for(kReapPeriod);
      }
    }
    return worst_;
  }

 private:
  static constexpr pid_t kReaped = 0;

  int num_alive() const {
    int count = 0;
    for (pid_t pid : pids_) count += pid != kReaped ? 1 : 0;
    return count;
  }

  /// True if a child ended.
  bool reap_one(int options) {
    int state = 0;
    const pid_t pid = waitpid(-1, &state, options);
    if (pid <= 0) return false;
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] != pid) continue;
      pids_[rank] = kReaped;
      note_end(static_cast<int>(rank), state);
    }
    return true;
  }

  void note_end(int rank, int state) {
    const bool is_killed = WIFSIGNALED(state);
    const ExitCode code = is_killed ? ExitCode::kPeer : static_cast<ExitCode>(WEXITSTATUS(state));
    worst_ = worst_of(worst_, code);
    if (is_killed && !is_killing_) {
      print_rank_error(rank, "killed by signal " + std::to_string(WTERMSIG(state)));
    }
    // A wrong row is found at the end and stops nobody.
    if (code <= ExitCode::kWrongRow) return;
    board_.report_failure(rank, is_killed ? WTERMSIG(state) : 0);
    if (!deadline_) deadline_ = Clock::now() + grace_;
  }

  void kill_late() {
    for (std::size_t rank = 0; rank < pids_.size() && !is_killing_; ++rank) {
      if (pids_[rank] != kReaped) print_rank_error(static_cast<int>(rank), "hangs, killed");
    }
    kill_all();
  }

  void kill_all() {
    is_killing_ = true;
    for (pid_t pid : pids_) {
      if (pid != kReaped) kill(pid, SIGKILL);
    }
  }

  MeetingBoard& board_;
  std::chrono::milliseconds grace_;
  std::vector<pid_t> pids_;  // by rank
  std::optional<Clock::time_point> deadline_;
  bool is_killing_ = false;
  ExitCode worst_ = ExitCode::kRight;
};

}  // namespace

ExitCode run_forked(const Options& options, const RankMain& rank_main) {
  const auto board = SharedBoard::create(options.ranks);
  if (board == nullptr) return fail_to_meet(0, out_of_memory("mmap"));
  forget_launcher();
  const ForkPlan plan = {.options = options,
                         .rank_main = rank_main,
                         .board = **board,
                         .job_id = private_job_id(),
                         .parent = getpid()};
  std::fflush(nullptr);  // or every child would print what is buffered
  Children children(plan.board, options.timeout);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      const ExitCode code = run_child(plan, rank);
      std::fflush(nullptr);
      _exit(static_cast<int>(code));
    }
    if (pid < 0) return fail_to_meet(rank, out_of_memory("fork"));
    children.add(pid);
  }
  return children.wait_for_all();
}

}  // namespace ep::bench
