// SPDX-License-Identifier: Apache-2.0
// Stacks of all threads of this or of a child process, for the report of a hang.
#include "tests/support/stack_dump.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <execinfo.h>
#include <filesystem>
#include <string>
#include <sys/syscall.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace ep::test {
namespace {

// Not used by libc, sanitizers or the library.
int dump_signal() { return SIGRTMIN + 5; }

void write_own_stack(int /*signal*/) {
  constexpr int kMaxFrames = 48;
  std::array<void*, kMaxFrames> frames{};
  std::array<char, 64> header{};
  const long thread = syscall(SYS_gettid);
  const int length =
      std::snprintf(header.data(), header.size(), "--- stack of thread %ld\n", thread);
  if (write(STDERR_FILENO, header.data(), static_cast<std::size_t>(length)) < 0) return;
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), kMaxFrames), STDERR_FILENO);
}

}  // namespace

void install_stack_dump() {
  // The first call loads a library, which a signal handler must not do.
  std::array<void*, 1> frame{};
  backtrace(frame.data(), 1);
  struct sigaction action = {};
  action.sa_handler = write_own_stack;
  action.sa_flags = SA_RESTART;
  sigaction(dump_signal(), &action, nullptr);
}

void dump_stacks(pid_t process) {
  const std::string folder = "/proc/" + std::to_string(process) + "/task";
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) {
    const long thread = std::stol(entry.path().filename().string());
    if (process == getpid() && thread == syscall(SYS_gettid)) continue;
    syscall(SYS_tgkill, process, thread, dump_signal());
    // One after the other, so that the stacks do not mix.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace ep::test
