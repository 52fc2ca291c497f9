// SPDX-License-Identifier: Apache-2.0
// Registers memory as the provider's mr_mode says.
#include "fabric/ofi/registration.h"

#include "base/check.h"

#include <atomic>
#include <cerrno>
#include <sys/random.h>

namespace ep::fabric {
namespace {

constexpr std::uint64_t kRights = FI_WRITE | FI_READ | FI_REMOTE_WRITE | FI_REMOTE_READ;

/// Where the keys are ours: what a stranger cannot guess, as far as they are wide enough.
std::uint64_t new_key(std::size_t key_bytes) {
  static std::atomic<std::uint64_t> count{0};
  std::uint64_t key = 0;
  const bool is_wide = key_bytes >= sizeof(key);
  const bool is_random =
      is_wide && ::getrandom(&key, sizeof(key), 0) == static_cast<ssize_t>(sizeof(key));
  return is_random ? key : count.fetch_add(1);  // relaxed would do: only unique
}

}  // namespace

Result<Registration> Registration::make(const OfiLibrary& library,
                                        fid_domain& domain,
                                        const RegistrationRules& rules,
                                        std::span<fid_ep* const> endpoints,
                                        std::span<std::byte> memory) {
  Registration registration(memory, (rules.mr_mode & FI_MR_VIRT_ADDR) != 0);
  if ((rules.mr_mode & FI_MR_ENDPOINT) == 0) {
    EP_TRY(registration.add_region(library, domain, rules, nullptr));
    return registration;
  }
  for (fid_ep* endpoint : endpoints) {
    EP_TRY(registration.add_region(library, domain, rules, endpoint));
  }
  return registration;
}

Status Registration::add_region(const OfiLibrary& library,
                                fid_domain& domain,
                                const RegistrationRules& rules,
                                fid_ep* endpoint) {
  const bool has_own_key = (rules.mr_mode & FI_MR_PROV_KEY) != 0;
  const std::uint64_t key = has_own_key ? 0 : new_key(rules.key_bytes);
  fid_mr* region = nullptr;
  int result =
      fi_mr_reg(&domain, memory_.data(), memory_.size(), kRights, 0, key, 0, &region, nullptr);
  if (result != 0) {
    return fi_status(library, "fi_mr_reg of " + std::to_string(memory_.size()) + " bytes", result);
  }
  regions_.emplace_back(region);
  if (endpoint == nullptr) return Status();
  result = fi_mr_bind(region, &endpoint->fid, 0);
  if (result == 0) result = fi_mr_enable(region);
  return result == 0 ? Status() : fi_status(library, "binding a window to its endpoint", result);
}

WindowDescription Registration::describe() const {
  WindowDescription description = {
      .base = has_virtual_addresses_ ? reinterpret_cast<std::uintptr_t>(memory_.data()) : 0,
      .bytes = static_cast<std::int64_t>(memory_.size()),
      .keys = {}};
  for (const FidPtr<fid_mr>& region : regions_) {
    description.keys.push_back(fi_mr_key(region.get()));
  }
  return description;
}

}  // namespace ep::fabric
