// SPDX-License-Identifier: Apache-2.0
// The functions of libfabric, found at run time: a host without it runs everything else.
#pragma once

#include <ep/status.h>

#include <rdma/fabric.h>

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

namespace ep::fabric {

/// Everything else of libfabric's API is inline and goes through tables of the objects.
struct OfiLibrary {
  decltype(&::fi_version) version = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
};

/// What ep is written for, whatever newer library answers.
inline constexpr std::uint32_t kOfiApiVersion = FI_VERSION(1, 17);
inline constexpr const char* kOfiSoname = "libfabric.so.1";

/// Never unloaded. Errors: kUnsupported with what to install, or for a version below 1.17.
Result<OfiLibrary> open_ofi_library(const char* soname = kOfiSoname);

/// "1.17".
std::string text_of_version(std::uint32_t version);

/// kFabric "ofi: fi_domain: No such device (19)"; kOutOfMemory for FI_ENOMEM. `result` is what the
/// call returned, a negative error.
Status fi_status(const OfiLibrary& library,
                 std::string_view what,
                 std::int64_t result,
                 std::source_location where = std::source_location::current());

}  // namespace ep::fabric
