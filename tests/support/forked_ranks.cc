// SPDX-License-Identifier: Apache-2.0
// Ranks as processes of their own; for ranks.cc.
#include "tests/support/forked_ranks.h"

#include "base/env.h"
#include "tests/support/stack_dump.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace ep::test {
namespace {

using Clock = std::chrono::steady_clock;

/// RankSteps that parent and children share.
class SharedSteps {
 public:
  explicit SharedSteps(int num_ranks) : num_ranks_(static_cast<std::size_t>(num_ranks)) {
    void* memory =
        mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    steps_ = static_cast<RankStep*>(memory);
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) new (steps_ + rank) RankStep();
  }
  ~SharedSteps() { munmap(steps_, bytes()); }
  SharedSteps(const SharedSteps&) = delete;
  SharedSteps& operator=(const SharedSteps&) = delete;

  std::span<RankStep> all() const { return {steps_, num_ranks_}; }

 private:
  std::size_t bytes() const { return num_ranks_ * sizeof(RankStep); }

  std::size_t num_ranks_;
  RankStep* steps_ = nullptr;
};

struct Child {
  pid_t pid = 0;
  int pipe = -1;
  std::vector<std::byte> received{};
  bool is_open = true;
};

// Report on the pipe: number of failures, then each failure, then the bytes; every item behind its
// 64-bit length.
void append_item(std::vector<std::byte>& message, std::span<const std::byte> item) {
  const std::uint64_t length = item.size();
  const auto header = std::as_bytes(std::span(&length, 1));
  message.insert(message.end(), header.begin(), header.end());
  message.insert(message.end(), item.begin(), item.end());
}

std::vector<std::byte> encode(const RankReport& report) {
  std::vector<std::byte> message;
  const std::uint64_t num_failures = report.failures.size();
  append_item(message, std::as_bytes(std::span(&num_failures, 1)));
  for (const std::string& failure : report.failures)
    append_item(message, std::as_bytes(std::span(failure)));
  append_item(message, report.bytes);
  return message;
}

/// Reads items one after another; `is_valid` is false behind the end.
class ItemReader {
 public:
  explicit ItemReader(std::span<const std::byte> message) : rest_(message) {}

  std::span<const std::byte> next() {
    std::uint64_t length = 0;
    is_valid_ = is_valid_ && rest_.size() >= sizeof(length);
    if (!is_valid_) return {};
    std::memcpy(&length, rest_.data(), sizeof(length));
    rest_ = rest_.subspan(sizeof(length));
    is_valid_ = rest_.size() >= length;
    if (!is_valid_) return {};
    const auto item = rest_.first(length);
    rest_ = rest_.subspan(length);
    return item;
  }
  bool is_valid() const { return is_valid_; }

 private:
  std::span<const std::byte> rest_;
  bool is_valid_ = true;
};

RankReport decode(std::span<const std::byte> message) {
  RankReport report;
  ItemReader reader(message);
  std::uint64_t num_failures = 0;
  const auto header = reader.next();
  if (header.size() == sizeof(num_failures))
    std::memcpy(&num_failures, header.data(), sizeof(num_failures));
  for (std::uint64_t index = 0; index < num_failures && reader.is_valid(); ++index) {
    std::string failure;
    for (const std::byte value : reader.next()) failure.push_back(static_cast<char>(value));
    report.failures.push_back(std::move(failure));
  }
  const auto bytes = reader.next();
  report.bytes.assign(bytes.begin(), bytes.end());
  if (!reader.is_valid()) report.failures.emplace_back("the rank sent no complete report");
  return report;
}

void write_all(int pipe, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(pipe, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

// A launcher's variables would outrank the private socket.
void forget_launcher() {
  for (const base::EnvSpec& spec : base::env_table()) {
    const bool is_setting =
        spec.var == base::EnvVar::kLog || spec.var == base::EnvVar::kTestScale ||
        spec.var == base::EnvVar::kTestBackend || spec.var == base::EnvVar::kTestLsaSize;
    if (!is_setting) unsetenv(std::string(spec.name).c_str());
  }
}

RankReport run_child(int rank,
                     const std::string& job_id,
                     const RanksOptions& options,
                     RankStep& step,
                     const RankBody& body) {
  forget_launcher();
  install_stack_dump();
  TcpBootstrapConfig config;
  config.rank = rank;
  config.num_ranks = options.num_ranks;
  config.job_id = job_id;
  config.timeout = std::chrono::seconds(20 * kSanitizerSlowdown);
  auto bootstrap = make_tcp_bootstrap(config);
  if (bootstrap.ok()) return run_body(**bootstrap, step, body);
  return {.failures = {bootstrap.status().to_string()}};
}

Child start_child(int rank,
                  const std::string& job_id,
                  const RanksOptions& options,
                  RankStep& step,
                  const RankBody& body) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::bad_alloc();
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    close(ends[0]);
    write_all(ends[1], encode(run_child(rank, job_id, options, step, body)));
    _exit(0);
  }
  close(ends[1]);
  return {.pid = pid, .pipe = ends[0]};
}

void read_some(Child& child) {
  std::array<std::byte, 1 << 16> chunk{};
  const ssize_t got = read(child.pipe, chunk.data(), chunk.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) {
    close(child.pipe);
    child.is_open = false;
    return;
  }
  child.received.insert(child.received.end(), chunk.begin(), chunk.begin() + got);
}

/// True once every pipe is closed; false at the deadline.
bool read_until(std::vector<Child>& children, Clock::time_point deadline) {
  while (true) {
    std::vector<pollfd> polled;
    std::vector<Child*> open;
    for (Child& child : children) {
      if (!child.is_open) continue;
      polled.push_back({.fd = child.pipe, .events = POLLIN, .revents = 0});
      open.push_back(&child);
    }
    if (open.empty()) return true;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    poll(polled.data(), polled.size(), static_cast<int>(left.count()));
    for (std::size_t at = 0; at < polled.size(); ++at) {
      if (polled[at].revents != 0) read_some(*open[at]);
    }
  }
}

void kill_hung(std::vector<Child>& children, std::span<const RankStep> steps) {
  std::fprintf(stderr, "hang:\n%s", describe_steps(steps).c_str());
  for (const Child& child : children) {
    if (child.is_open) dump_stacks(child.pid);
  }
  for (Child& child : children) {
    if (!child.is_open) continue;
    kill(child.pid, SIGKILL);
    close(child.pipe);
  }
}

RankReport reap(const Child& child) {
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return {.exit_signal = WTERMSIG(status)};
  RankReport report = decode(child.received);
  if (WEXITSTATUS(status) != 0) {
    report.failures.push_back("exit code " + std::to_string(WEXITSTATUS(status)));
  }
  return report;
}

std::string new_job_id() {
  static int num_jobs = 0;
  return "ep-test-" + std::to_string(getpid()) + "-" + std::to_string(num_jobs++);
}

}  // namespace

std::vector<RankReport> run_as_forks(const RanksOptions& options, const RankBody& body) {
  const SharedSteps steps(options.num_ranks);
  const std::string job_id = new_job_id();
  std::vector<Child> children;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    RankStep& step = steps.all()[static_cast<std::size_t>(rank)];
    children.push_back(start_child(rank, job_id, options, step, body));
    pids.push_back(children.back().pid);
  }
  if (options.while_running) options.while_running(pids);
  const bool is_done = read_until(children, Clock::now() + options.limit);
  if (!is_done) kill_hung(children, steps.all());
  std::vector<RankReport> reports;
  for (const Child& child : children) {
    reports.push_back(reap(child));
    if (!is_done && child.is_open)
      reports.back().failures.emplace_back("hang: killed by the watchdog");
  }
  return reports;
}

}  // namespace ep::test
