// SPDX-License-Identifier: Apache-2.0
// Forked workers, each with a pipe for its result.
#include "tests/sim/workers.h"

#include "base/check.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ep::test {
namespace {

struct Worker {
  pid_t pid = 0;
  int result = -1;
  std::uint64_t* progress = nullptr;  // shared with the process
};

Worker start(std::size_t index, const Work& work) {
  int ends[2];
  EP_CHECK(pipe(ends) == 0);
  void* shared = mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EP_CHECK(shared != MAP_FAILED);
  auto* progress = static_cast<std::uint64_t*>(shared);
  const pid_t pid = fork();
  EP_CHECK(pid >= 0);
  if (pid > 0) {
    close(ends[1]);
    return {pid, ends[0], progress};
  }
  close(ends[0]);
  const std::string text = work(index, *progress);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(ends[1], text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) break;
    done += static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
  _exit(0);
}

WorkerResult finish(const Worker& worker) {
  WorkerResult result;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(worker.result, buffer, sizeof(buffer))) != 0;) {
    if (got < 0 && errno != EINTR) break;
    result.text.append(buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  close(worker.result);
  int status = 0;
  while (waitpid(worker.pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.progress = *worker.progress;
  munmap(worker.progress, sizeof(*worker.progress));
  if (WIFSIGNALED(status)) result.exit_signal = WTERMSIG(status);
  return result;
}

}  // namespace

std::vector<WorkerResult> run_workers(std::size_t count, int num_jobs, const Work& work) {
  std::vector<WorkerResult> results;
  std::vector<Worker> workers;
  const auto most = static_cast<std::size_t>(num_jobs);
  for (std::size_t i = 0; i < count; ++i) {
    workers.push_back(start(i, work));
    if (i + 1 >= most) results.push_back(finish(workers[i + 1 - most]));
  }
  for (std::size_t i = results.size(); i < count; ++i) results.push_back(finish(workers[i]));
  return results;
}

}  // namespace ep::test
