// SPDX-License-Identifier: Apache-2.0
// Runs the script as a process of its own; the lines are its standard input.
#include "bench/plot.h"

#include "base/check.h"
#include "base/unique_fd.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <spawn.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace ep::bench {
namespace {

constexpr const char* kScript = "plot_bench.py";

/// Beside the program where both were copied elsewhere, else in the sources.
std::string script_path() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto beside = program.parent_path() / kScript;
  if (!error && std::filesystem::exists(beside, error)) return beside.string();
  return std::string(EP_BENCH_TOOLS_DIR) + "/" + kScript;
}

Status system_error(const char* call, int error) {
  return Status(Errc::kUnsupported, std::string(call) + ": " + std::strerror(error), error);
}

class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  void redirect(int from, int to) { posix_spawn_file_actions_adddup2(&actions_, from, to); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

/// A script that has ended early gets the rest of its input nowhere.
void send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

/// The exit code of the script.
Result<int> run_script(const std::string& argument, std::string_view input) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return system_error("socketpair", errno);
  }
  base::UniqueFd ours(ends[0]);
  base::UniqueFd theirs(ends[1]);
  SpawnActions actions;
  actions.redirect(theirs.get(), STDIN_FILENO);
  actions.redirect(STDERR_FILENO, STDOUT_FILENO);  // stdout belongs to --json -
  std::vector<std::string> words = {"python3", script_path(), argument};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], actions.get(), nullptr, argv.data(), environ);
  if (error != 0) return system_error("python3", error);
  theirs.reset();
  send_all(ours.get(), input);
  ours.reset();
  int state = 0;
  while (waitpid(pid, &state, 0) < 0) {
    if (errno != EINTR) return system_error("waitpid", errno);
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

}  // namespace

Status check_plotting() {
  EP_TRY_ASSIGN(const int code, run_script("--check", {}));
  if (code == 0) return {};
  return Status(Errc::kUnsupported,
                "--plot needs python3 with matplotlib (Debian and Ubuntu: python3-matplotlib)");
}

Status plot_lines(const std::string& json_lines, const std::string& png_path) {
  EP_TRY_ASSIGN(const int code, run_script(png_path, json_lines));
  if (code == 0) return {};
  return Status(Errc::kInternal, "plot_bench.py ended with " + std::to_string(code));
}

}  // namespace ep::bench
