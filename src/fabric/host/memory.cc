// SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory.
#include "fabric/host/memory.h"

#include "base/check.h"
#include "base/errno_status.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
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

/// A mapped memfd.
class HostMapping final : public Mapping {
 public:
  HostMapping(std::byte* base, std::int64_t bytes) : Mapping(base, bytes) {}
  ~HostMapping() override {
    if (::munmap(base(), static_cast<std::size_t>(bytes())) != 0) {
      base::log(LogLevel::kError, "arena: munmap: errno " + std::to_string(errno));
    }
  }
};

Result<std::shared_ptr<Mapping>> map_memfd(int fd, std::int64_t bytes) {
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  const auto size = static_cast<std::size_t>(bytes);
  void* const base = ::mmap(nullptr, size, kProtection, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return base::errno_status("arena: mmap of " + std::to_string(bytes) + " bytes", errno);
  }
  return std::shared_ptr<Mapping>(
      std::make_shared<HostMapping>(static_cast<std::byte*>(base), bytes));
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

HostMemory::HostMemory(int num_ranks)
    : gone_(std::make_unique<std::atomic<std::uint32_t>[]>(static_cast<std::size_t>(num_ranks))) {}

Result<SegmentMemory::Created> HostMemory::create(std::int64_t bytes, std::int64_t used_bytes) {
  if (used_bytes > machine_memory_bytes() - bytes) {
    return Status(Errc::kOutOfMemory, "arena: segment of " + std::to_string(bytes) +
                                          " bytes after " + std::to_string(used_bytes) +
                                          ", but the memory of this machine is " +
                                          std::to_string(machine_memory_bytes()) + " bytes");
  }
  EP_TRY_ASSIGN(base::UniqueFd fd, create_memory(bytes));
  EP_TRY_ASSIGN(std::shared_ptr<Mapping> mapping, map_memfd(fd.get(), bytes));
  return Created{.handle = {.fd = std::move(fd), .fabric = {}}, .mapping = std::move(mapping)};
}

Result<std::shared_ptr<Mapping>> HostMemory::map(const SegmentHandle& handle, std::int64_t bytes) {
  if (handle.fabric) return Status(Errc::kFabric, "arena: memory of the host by a FABRIC handle");
  EP_TRY(check_memory(handle.fd.get(), bytes));
  return map_memfd(handle.fd.get(), bytes);
}

Status HostMemory::map_failure(std::string_view what, int native_code) const {
  return base::errno_status(what, native_code);
}

}  // namespace ep::fabric
