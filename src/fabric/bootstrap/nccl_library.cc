// SPDX-License-Identifier: Apache-2.0
// Looks up the functions of NCCL.
#include "fabric/bootstrap/nccl_library.h"

#include "base/check.h"

#include <dlfcn.h>

namespace ep::fabric {
namespace {

constexpr const char* kSoname = "libnccl.so.2";
/// Before 2.9 versions had one digit less.
constexpr int kFirstLongVersion = 10'000;

std::string text_of_version(int version) {
  const int minor_unit = 100;
  const int major_unit = version < kFirstLongVersion ? 1000 : kFirstLongVersion;
  return std::to_string(version / major_unit) + "." +
         std::to_string(version % major_unit / minor_unit) + "." +
         std::to_string(version % minor_unit);
}

std::string text_of_dlerror() {
  const char* const text = ::dlerror();
  return text == nullptr ? "no reason given" : text;
}

/// Where to look, and its name in messages.
struct Place {
  void* scope = nullptr;
  std::string name;
};

Result<Place> find_place(const std::optional<std::string>& path) {
  if (path) {
    void* const opened = ::dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened != nullptr) return Place{opened, *path};
    return Status(Errc::kUnsupported, "bootstrap: NCCL library: " + text_of_dlerror());
  }
  if (void* const loaded = ::dlopen(kSoname, RTLD_NOW | RTLD_NOLOAD); loaded != nullptr) {
    return Place{loaded, kSoname};
  }
  if (::dlsym(RTLD_DEFAULT, "ncclAllGather") != nullptr) return Place{RTLD_DEFAULT, "this process"};
  return Status(Errc::kUnsupported, std::string("bootstrap: this process has loaded no ") +
                                        kSoname + "; name the library that made the communicator");
}

template <class Function>
Status find(const Place& place, const char* name, Function& function) {
  void* const symbol = ::dlsym(place.scope, name);
  if (symbol == nullptr) {
    return Status(Errc::kUnsupported, "bootstrap: " + place.name + " has no " + name);
  }
  function = reinterpret_cast<Function>(symbol);
  return Status();
}

Status check_version(const NcclLibrary& library, const Place& place) {
  int version = 0;
  EP_TRY(nccl_status(library, library.get_version(&version), "ncclGetVersion"));
  if (version >= kMinNcclVersion) return Status();
  return Status(Errc::kUnsupported, "bootstrap: " + place.name + " is NCCL " +
                                        text_of_version(version) + ", expected at least " +
                                        text_of_version(kMinNcclVersion));
}

}  // namespace

Result<NcclLibrary> find_nccl(const std::optional<std::string>& path) {
  EP_TRY_ASSIGN(const Place place, find_place(path));
  NcclLibrary library;
  EP_TRY(find(place, "ncclGetVersion", library.get_version));
  EP_TRY(find(place, "ncclGetErrorString", library.get_error_string));
  EP_TRY(find(place, "ncclGetLastError", library.get_last_error));
  EP_TRY(check_version(library, place));
  EP_TRY(find(place, "ncclCommCount", library.comm_count));
  EP_TRY(find(place, "ncclCommCuDevice", library.comm_cu_device));
  EP_TRY(find(place, "ncclCommUserRank", library.comm_user_rank));
  EP_TRY(find(place, "ncclCommGetAsyncError", library.comm_get_async_error));
  EP_TRY(find(place, "ncclAllGather", library.all_gather));
  return library;
}

Status nccl_status(const NcclLibrary& library, int result, std::string_view what) {
  if (result == kNcclSuccess) return Status();
  const char* const text = library.get_error_string(result);
  std::string message = "bootstrap: ";
  message.append(what).append(": ").append(text == nullptr ? "unknown" : text);
  message.append(" (ncclResult ").append(std::to_string(result)).append(")");
  // Of the process: without a communicator, which may be on its way to destruction.
  const char* const last = library.get_last_error(nullptr);
  if (last != nullptr && *last != '\0') message.append("; last error of NCCL: ").append(last);
  return Status(Errc::kNccl, std::move(message), result);
}

}  // namespace ep::fabric
