// SPDX-License-Identifier: Apache-2.0
// The processor as a device.
#include "bench/device.h"

#include "base/check.h"

#include <chrono>
#include <cstring>
#include <thread>

namespace ep::bench {
namespace {

class HostDevice : public Device {
 public:
  bool is_host() const override { return true; }
  Stream stream() const override { return {}; }

  Result<std::shared_ptr<std::byte>> allocate(std::size_t /*bytes*/) override {
    return std::shared_ptr<std::byte>();
  }
  Status copy_in(std::byte* device, std::span<const std::byte> host) override {
    if (device != host.data()) std::memcpy(device, host.data(), host.size());
    return {};
  }
  Status copy_out(std::span<std::byte> host, const std::byte* device) override {
    if (device != host.data()) std::memcpy(host.data(), device, host.size());
    return {};
  }
  Status fill(std::byte* device, int byte, std::size_t bytes) override {
    std::memset(device, byte, bytes);
    return {};
  }
  Status delay(std::chrono::microseconds time) override {
    std::this_thread::sleep_for(time);
    return {};
  }
  Status synchronize() override { return {}; }

  Result<std::unique_ptr<Graph>> capture(const Call& /*call*/) override {
    return Status(Errc::kUnsupported, "the host has no graphs");
  }

  Result<OpTime> time(const Timed& timed) override {
    using Clock = std::chrono::steady_clock;
    EP_TRY(timed.meet());
    const Clock::time_point start = Clock::now();
    EP_TRY(timed.call());
    return OpTime{.micros = std::chrono::duration<double, std::micro>(Clock::now() - start).count(),
                  .host_micros = {}};
  }
};

}  // namespace

Status Device::check(const ReceivedTable& /*table*/, WrongRows* /*wrong*/) {
  return Status(Errc::kUnsupported, "this device checks no received rows");
}
Status Device::check(const OutputTable& /*table*/, WrongRows* /*wrong*/) {
  return Status(Errc::kUnsupported, "this device checks no output rows");
}

std::unique_ptr<Device> make_host_device() { return std::make_unique<HostDevice>(); }

Result<std::unique_ptr<Device>> make_device(Backend backend, int rank) {
  if (backend == Backend::kCuda) return make_cuda_device(rank);
  return make_host_device();
}

}  // namespace ep::bench
