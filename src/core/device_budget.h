// SPDX-License-Identifier: Apache-2.0
// How the ranks and groups of a process share the SMs of a device. Kernels that wait for each other
// must be resident together: what they are promised adds up to at most the device's SMs.
#pragma once

#include "fabric/arena_identity.h"

#include <ep/bootstrap.h>
#include <ep/status.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ep::core {

/// What a rank asks for when its group is created.
struct BudgetClaim {
  fabric::DeviceUuid device{};
  std::uint64_t process = 0;  ///< the same for ranks of one process
  std::int32_t device_sms = 1;
  std::int32_t wanted_sms = 0;  ///< 0: as many as calls take by themselves, or what is left
  std::int32_t taken_sms = 0;   ///< by other groups of the process on this device
};

/// What all ranks get, from the claims of all: the same answer on every rank. Claims of 0 share
/// what the others leave, up to `most_sms` each. Errors: kInvalidArgument with the numbers where a
/// device has fewer SMs than its ranks and the other groups there take.
Result<std::vector<BudgetClaim>> divide_devices(std::vector<BudgetClaim> claims, int most_sms);

/// SMs of a device that other groups of the process cannot have; given back on destruction.
class DeviceShare {
 public:
  /// Local; `divided` comes from divide_devices(). Errors: kInvalidArgument with the numbers if
  /// another group of the process has come in between.
  static Result<std::unique_ptr<DeviceShare>> reserve(const std::vector<BudgetClaim>& divided,
                                                      int rank);
  ~DeviceShare();
  DeviceShare(const DeviceShare&) = delete;
  DeviceShare& operator=(const DeviceShare&) = delete;

  /// What the rank was promised.
  int num_sms() const { return mine_.wanted_sms; }
  /// The most that a call may use while all groups keep what they were promised: this rank's equal
  /// part of what other groups leave. At least num_sms().
  int limit() const;
  /// "3 rank(s) of the group share a device of 132 SMs, ...": for the refusal of a call.
  std::string describe() const;

 private:
  DeviceShare() = default;
  int num_taken_by_others() const;

  BudgetClaim mine_;
  int num_ranks_ = 0;  ///< of the group on this device
  int own_sms_ = 0;    ///< of those in this process
};

/// Collective: exchanges claims, divides and reserves. `wanted_sms` as in BudgetClaim.
Result<std::unique_ptr<DeviceShare>> agree_on_share(Bootstrap& bootstrap,
                                                    const fabric::DeviceIdentity& device,
                                                    int device_sms,
                                                    int wanted_sms,
                                                    std::chrono::milliseconds timeout);

}  // namespace ep::core
