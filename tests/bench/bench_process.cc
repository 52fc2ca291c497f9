// SPDX-License-Identifier: Apache-2.0
// fork, exec and two pipes.
#include "tests/bench/bench_process.h"

#include "base/env.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <poll.h>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace ep::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kExecFailed = 127;
constexpr int kSignalBase = 128;
constexpr std::chrono::milliseconds kPollPeriod{5};

[[noreturn]] void exec_bench(const std::vector<std::string>& args, const Environment& added) {
  for (const base::EnvSpec& spec : base::env_table()) unsetenv(std::string(spec.name).c_str());
  for (const auto& [name, value] : added) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv = {const_cast<char*>(EP_BENCH_PROGRAM)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execv(EP_BENCH_PROGRAM, argv.data());
  _exit(kExecFailed);
}

/// Appends what is there; closes `fd` and sets it to -1 at the end.
void drain(int& fd, std::string& text) {
  constexpr std::size_t kChunkBytes = 1 << 16;
  std::array<char, kChunkBytes> chunk;
  const ssize_t size = read(fd, chunk.data(), chunk.size());
  if (size > 0) {
    text.append(chunk.data(), static_cast<std::size_t>(size));
    return;
  }
  close(fd);
  fd = -1;
}

/// State letter of /proc/PID/stat; 'X' if there is no such process.
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t end = text.rfind(") ");
  return end == std::string::npos || end + 2 >= text.size() ? 'X' : text[end + 2];
}

}  // namespace

BenchProcess::BenchProcess(const std::vector<std::string>& args, const Environment& added) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (pipe(out.data()) != 0 || pipe(err.data()) != 0) std::abort();
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    for (int fd : {out[0], out[1], err[0], err[1]}) close(fd);
    exec_bench(args, added);
  }
  close(out[1]);
  close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

BenchProcess::~BenchProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(out_);
  close(err_);
}

std::vector<pid_t> BenchProcess::wait_for_children(std::size_t count) const {
  const std::string path =
      "/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children";
  std::vector<pid_t> children;
  const Clock::time_point deadline = Clock::now() + bench_patience();
  while (children.size() < count && Clock::now() < deadline) {
    std::this_thread::sleep_for(kPollPeriod);
    children.clear();
    std::ifstream file(path);
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  return children;
}

BenchOutcome BenchProcess::wait() {
  BenchOutcome outcome;
  while (out_ >= 0 || err_ >= 0) {
    std::array<pollfd, 2> fds = {{{out_, POLLIN, 0}, {err_, POLLIN, 0}}};
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (out_ >= 0 && fds[0].revents != 0) drain(out_, outcome.out);
    if (err_ >= 0 && fds[1].revents != 0) drain(err_, outcome.err);
  }
  int state = 0;
  waitpid(pid_, &state, 0);
  pid_ = -1;
  outcome.exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : kSignalBase + WTERMSIG(state);
  return outcome;
}

std::vector<nlohmann::json> BenchOutcome::lines() const {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::string BenchOutcome::last_line_of(const std::string& text) {
  if (text.size() < 2) return text;
  const std::size_t start = text.rfind('\n', text.size() - 2);
  const std::size_t first = start == std::string::npos ? 0 : start + 1;
  return text.substr(first, text.size() - 1 - first);
}

BenchOutcome run_bench(const std::vector<std::string>& args, const Environment& added) {
  return BenchProcess(args, added).wait();
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool is_gone_within(pid_t pid, std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    const char state = state_of(pid);
    if (state == 'X' || state == 'Z') return true;
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kPollPeriod);
  }
}

std::chrono::milliseconds bench_patience() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return std::chrono::seconds(60);
#else
  return std::chrono::seconds(15);
#endif
}

}  // namespace ep::test
