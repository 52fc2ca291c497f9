// SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory.
#include "fabric/host/mapping.h"

#include "base/check.h"
#include "base/errno_status.h"
#include "base/log.h"

#include <algorithm>
#include <errno.h>
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include <utility>

namespace ep::fabric {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

/// MFD_NOEXEC_SEAL, since Linux 6.3; newer than the headers of Debian 12.
constexpr unsigned kNoExecSeal = 0x8;

int open_memfd() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = ::memfd_create("ep-arena", kFlags | kNoExecSeal);
  if (fd >= 0 || errno != EINVAL) return fd;
  return ::memfd_create("ep-arena", kFlags);
}

Status too_large(std::int64_t bytes, const char* limit, std::int64_t limit_bytes) {
  return Status(Errc::kOutOfMemory, "arena: segment of " + std::to_string(bytes) + " bytes, but " +
                                        limit + " is " + std::to_string(limit_bytes) + " bytes");
}

/// Beyond RLIMIT_FSIZE the kernel would not fail but kill the process with SIGXFSZ.
Status check_limits(std::int64_t bytes) {
  const std::int64_t machine_bytes = machine_memory_bytes();
  if (bytes > machine_bytes) return too_large(bytes, "the memory of this machine", machine_bytes);
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes)) {
    return too_large(bytes, "RLIMIT_FSIZE", static_cast<std::int64_t>(limit.rlim_cur));
  }
  return Status();
}

}  // namespace

std::int64_t machine_memory_bytes() {
  struct sysinfo info {};
  EP_CHECK(::sysinfo(&info) == 0);
  return static_cast<std::int64_t>((info.totalram + info.totalswap) * info.mem_unit);
}

Result<base::UniqueFd> create_memory(std::int64_t bytes) {
  EP_TRY(check_limits(bytes));
  base::UniqueFd fd(open_memfd());
  if (!fd.is_open()) return base::errno_status("arena: memfd_create", errno);
  if (::ftruncate(fd.get(), bytes) != 0) {
    return base::errno_status("arena: ftruncate to " + std::to_string(bytes) + " bytes", errno);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return base::errno_status("arena: F_ADD_SEALS", errno);
  }
  return fd;
}

Status check_memory(int fd, std::int64_t bytes) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return base::errno_status("arena: fstat", errno);
  if (status.st_size != bytes) {
    return Status(Errc::kFabric, "arena: memory of " + std::to_string(status.st_size) +
                                     " bytes, announced as " + std::to_string(bytes));
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return Status(Errc::kFabric, "arena: memory whose size is not sealed");
  }
  return Status();
}

Result<std::shared_ptr<Mapping>> Mapping::create(int fd, std::int64_t bytes) {
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  const auto size = static_cast<std::size_t>(bytes);
  void* const base = ::mmap(nullptr, size, kProtection, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return base::errno_status("arena: mmap of " + std::to_string(bytes) + " bytes", errno);
  }
  return std::shared_ptr<Mapping>(new Mapping(static_cast<std::byte*>(base), bytes));
}

Mapping::~Mapping() {
  if (::munmap(base_, static_cast<std::size_t>(bytes_)) != 0) {
    base::log(LogLevel::kError, "arena: munmap: errno " + std::to_string(errno));
  }
}

bool Mapping::contains(const void* address, std::int64_t bytes) const {
  // Pointers of different objects compare through std::less only.
  const std::less_equal<const void*> is_not_after;
  if (bytes < 0 || bytes > bytes_ || !is_not_after(base_, address)) return false;
  // An empty range lies where its first byte would: the end of one mapping may be the start of
  // another.
  return is_not_after(address, base_ + (bytes_ - std::max<std::int64_t>(bytes, 1)));
}

}  // namespace ep::fabric
