// SPDX-License-Identifier: Apache-2.0
// Claims of SMs: exchanged between the ranks of a group, counted over the groups of a process.
#include "core/device_budget.h"

#include "base/check.h"
#include "core/config_agreement.h"
#include "core/sm_curve.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <utility>

namespace ep::core {
namespace {

/// SMs of each device that the groups of this process were promised.
class TakenSms {
 public:
  static TakenSms& of_process() {
    static TakenSms taken;
    return taken;
  }

  int of(const fabric::DeviceUuid& device) {
    const std::lock_guard lock(mutex_);
    const auto found = taken_.find(device);
    return found == taken_.end() ? 0 : found->second;
  }
  /// False, and nothing is taken, where that would be more than `limit` in all.
  bool take(const fabric::DeviceUuid& device, int num_sms, int limit) {
    const std::lock_guard lock(mutex_);
    int& taken = taken_[device];
    if (taken + num_sms > limit) return false;
    taken += num_sms;
    return true;
  }
  void give_back(const fabric::DeviceUuid& device, int num_sms) {
    const std::lock_guard lock(mutex_);
    taken_[device] -= num_sms;
  }

 private:
  std::mutex mutex_;
  std::map<fabric::DeviceUuid, int> taken_;
};

/// Tells processes apart.
std::uint64_t process_key() {
  static const std::uint64_t kKey = [] {
    std::random_device random;
    return (std::uint64_t{random()} << 32) | random();
  }();
  return kKey;
}

/// The claims on one device.
struct DeviceClaims {
  std::vector<std::size_t> ranks;
  int device_sms = 1;
  int claimed = 0;  ///< by ranks that say how much, and by other groups
  int of_others = 0;
  int num_open = 0;  ///< ranks that do not say
};

DeviceClaims claims_on(const std::vector<BudgetClaim>& claims, const fabric::DeviceUuid& device) {
  DeviceClaims found;
  for (std::size_t rank = 0; rank < claims.size(); ++rank) {
    const BudgetClaim& claim = claims[rank];
    if (claim.device != device) continue;
    found.ranks.push_back(rank);
    found.device_sms = claim.device_sms;
    found.of_others = std::max(found.of_others, claim.taken_sms);
    found.claimed += claim.wanted_sms;
    if (claim.wanted_sms == 0) ++found.num_open;
  }
  found.claimed += found.of_others;
  return found;
}

Status too_many(const std::vector<BudgetClaim>& claims, const DeviceClaims& on_device) {
  std::string ranks;
  std::string budgets;
  for (const std::size_t rank : on_device.ranks) {
    // A rank that does not say needs one.
    const int wanted = std::max(claims[rank].wanted_sms, 1);
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    budgets += (budgets.empty() ? "" : " + ") + std::to_string(wanted);
  }
  return Status(Errc::kInvalidArgument,
                "group: num_sms: rank(s) " + ranks + " share a device and take " + budgets +
                    " SMs, and " + std::to_string(on_device.of_others) +
                    " are promised to other groups of the process: " +
                    std::to_string(on_device.claimed + on_device.num_open) +
                    " in all, but the device has " + std::to_string(on_device.device_sms) +
                    " (kernels that wait for each other must fit on it together)");
}

}  // namespace

Result<std::vector<BudgetClaim>> divide_devices(std::vector<BudgetClaim> claims, int most_sms) {
  const std::vector<BudgetClaim> of_ranks = claims;
  for (BudgetClaim& claim : claims) {
    const DeviceClaims on_device = claims_on(of_ranks, claim.device);
    const int left = on_device.device_sms - on_device.claimed;
    if (left < on_device.num_open) return too_many(of_ranks, on_device);
    if (claim.wanted_sms == 0) claim.wanted_sms = std::min(left / on_device.num_open, most_sms);
  }
  return claims;
}

Result<std::unique_ptr<DeviceShare>> DeviceShare::reserve(const std::vector<BudgetClaim>& divided,
                                                          int rank) {
  std::unique_ptr<DeviceShare> share(new DeviceShare());
  share->mine_ = divided[static_cast<std::size_t>(rank)];
  const BudgetClaim mine = share->mine_;
  for (const BudgetClaim& claim : divided) {
    if (claim.device != mine.device) continue;
    ++share->num_ranks_;
    if (claim.process == mine.process) share->own_sms_ += claim.wanted_sms;
  }
  if (TakenSms::of_process().take(mine.device, mine.wanted_sms, mine.device_sms)) return share;
  share->mine_.wanted_sms = 0;  // nothing to give back
  return Status(Errc::kInvalidArgument,
                "group: num_sms = " + std::to_string(mine.wanted_sms) +
                    ": groups of this process that were created meanwhile hold " +
                    std::to_string(TakenSms::of_process().of(mine.device)) + " of the device's " +
                    std::to_string(mine.device_sms) + " SMs");
}

DeviceShare::~DeviceShare() { TakenSms::of_process().give_back(mine_.device, mine_.wanted_sms); }

int DeviceShare::num_taken_by_others() const {
  return std::max(TakenSms::of_process().of(mine_.device) - own_sms_, 0);
}

int DeviceShare::limit() const {
  return std::max((mine_.device_sms - num_taken_by_others()) / num_ranks_, num_sms());
}

std::string DeviceShare::describe() const {
  return std::to_string(num_ranks_) + " rank(s) of the group share a device of " +
         std::to_string(mine_.device_sms) + " SMs, and other groups of the process hold " +
         std::to_string(num_taken_by_others()) + ": at most " + std::to_string(limit()) + " each";
}

Result<std::unique_ptr<DeviceShare>> agree_on_share(Bootstrap& bootstrap,
                                                    const fabric::DeviceIdentity& device,
                                                    int device_sms,
                                                    int wanted_sms,
                                                    std::chrono::milliseconds timeout) {
  const BudgetClaim mine{.device = device.uuid,
                         .process = process_key(),
                         .device_sms = device_sms,
                         .wanted_sms = std::min(wanted_sms, device_sms),
                         .taken_sms = TakenSms::of_process().of(device.uuid)};
  EP_TRY_ASSIGN(const std::vector<Bootstrap::Bytes> all,
                bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), timeout));
  std::vector<BudgetClaim> claims(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != sizeof(BudgetClaim))
      return Status(Errc::kFabric, "group: rank " + std::to_string(rank) + " sent no claim of SMs");
    std::memcpy(&claims[rank], all[rank].data(), sizeof(BudgetClaim));
  }
  EP_TRY_ASSIGN(const std::vector<BudgetClaim> divided,
                divide_devices(std::move(claims), largest_measured_budget()));
  auto share = DeviceShare::reserve(divided, bootstrap.rank());
  EP_TRY(agree_on_outcome(bootstrap, share.status(), "reserve its SMs", timeout));
  return share;
}

}  // namespace ep::core
