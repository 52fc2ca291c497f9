// SPDX-License-Identifier: Apache-2.0
// Looks up the functions of libfabric.
#include "fabric/ofi/library.h"

#include "base/check.h"
#include "base/log.h"

#include <rdma/fi_errno.h>

#include <cstdlib>
#include <dlfcn.h>

namespace ep::fabric {
namespace {

template <class Function>
Status find(void* library, const char* soname, const char* name, Function& function) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr) {
    return Status(Errc::kUnsupported, std::string("ofi: ") + soname + " has no " + name);
  }
  function = reinterpret_cast<Function>(symbol);
  return Status();
}

}  // namespace

std::string text_of_version(std::uint32_t version) {
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

Result<OfiLibrary> open_ofi_library(const char* soname) {
  void* const opened = ::dlopen(soname, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const reason = ::dlerror();
    return Status(Errc::kUnsupported, std::string("ofi: no libfabric on this host, install ") +
                                          "libfabric1 (" +
                                          (reason == nullptr ? "no reason given" : reason) + ")");
  }
  OfiLibrary library;
  EP_TRY(find(opened, soname, "fi_version", library.version));
  if (FI_VERSION_LT(library.version(), kOfiApiVersion)) {
    return Status(Errc::kUnsupported, std::string("ofi: ") + soname + " is libfabric " +
                                          text_of_version(library.version()) +
                                          ", expected at least " + text_of_version(kOfiApiVersion));
  }
  EP_TRY(find(opened, soname, "fi_strerror", library.strerror));
  EP_TRY(find(opened, soname, "fi_getinfo", library.getinfo));
  EP_TRY(find(opened, soname, "fi_freeinfo", library.freeinfo));
  EP_TRY(find(opened, soname, "fi_dupinfo", library.dupinfo));
  EP_TRY(find(opened, soname, "fi_fabric", library.fabric));
  return library;
}

Status fi_status(const OfiLibrary& library,
                 std::string_view what,
                 std::int64_t result,
                 std::source_location where) {
  const int error = static_cast<int>(std::abs(result));
  const char* const text = library.strerror(error);
  std::string message = "ofi: ";
  message.append(what).append(": ").append(text == nullptr ? "unknown" : text);
  message.append(" (").append(std::to_string(error)).append(")");
  if (base::is_logged(LogLevel::kDebug)) {
    base::log(LogLevel::kDebug, std::string(where.function_name()) + ": " + message);
  }
  return Status(error == FI_ENOMEM ? Errc::kOutOfMemory : Errc::kFabric, std::move(message), error);
}

}  // namespace ep::fabric
