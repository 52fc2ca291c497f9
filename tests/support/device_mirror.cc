// SPDX-License-Identifier: Apache-2.0
// Lets a test write and read the tensors of a GPU as if they were in memory of the host.
#include "tests/support/device_mirror.h"

#include "base/env.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace ep::test {
namespace {

// Copies keep the host's position within this, so that misaligned views stay misaligned.
constexpr std::uintptr_t kKeptAlignment = 256;
// Views that are wrong on purpose may claim any size.
constexpr std::int64_t kMaxCopyBytes = std::int64_t{16} << 30;

/// From the first to the last element; empty if the view has none, or is wrong on purpose.
std::span<std::byte> extent_of(const ConstTensorView& view) {
  if (view.data == nullptr || view.num_elems() <= 0) return {};
  std::int64_t last = 0;
  for (int dim = 0; dim < view.num_dims; ++dim) last += (view.size(dim) - 1) * view.stride(dim);
  const std::int64_t bytes = (last + 1) * size_of(view.dtype);
  if (last < 0 || bytes > kMaxCopyBytes) return {};
  auto* begin = static_cast<std::byte*>(const_cast<void*>(view.data));
  return {begin, static_cast<std::size_t>(bytes)};
}

bool contains(std::span<const std::byte> outer, std::span<const std::byte> inner) {
  return outer.data() <= inner.data() && inner.data() + inner.size() <= outer.data() + outer.size();
}

/// Skips every test of a run on GPUs where there is none.
class NeedsDevice : public ::testing::Environment {
 public:
  void SetUp() override {
    if (test_backend() == Backend::kCuda && Device::count() == 0) GTEST_SKIP() << "no GPU here";
  }
};
const ::testing::Environment* const kNeedsDevice =
    ::testing::AddGlobalTestEnvironment(new NeedsDevice());

}  // namespace

Backend test_backend() {
  return base::env_text(base::EnvVar::kTestBackend) == "cuda" ? Backend::kCuda : Backend::kHost;
}

std::shared_ptr<DeviceMirror> DeviceMirror::of_rank(int rank) {
  thread_local std::shared_ptr<DeviceMirror> mirror;
  if (mirror == nullptr) mirror = std::make_shared<DeviceMirror>(rank % Device::count());
  return mirror;
}

DeviceMirror::Shadow* DeviceMirror::find(std::span<const std::byte> host) {
  auto behind = shadows_.upper_bound(host.data());
  if (behind == shadows_.begin()) return nullptr;
  Shadow& shadow = std::prev(behind)->second;
  return contains(shadow.bytes, host) ? &shadow : nullptr;
}

void DeviceMirror::drop_unused() {
  std::erase_if(shadows_, [](const auto& entry) { return entry.second.block.expired(); });
}

Tensor DeviceMirror::show(const Tensor& tensor) {
  if (!tensor) return tensor;
  drop_unused();
  TensorView view = tensor.view();
  const auto bytes = static_cast<std::size_t>(view.num_elems() * size_of(view.dtype));
  Shadow shadow{.bytes = std::vector<std::byte>(std::max<std::size_t>(bytes, 1)),
                .device = static_cast<std::byte*>(view.data),
                .block = tensor.storage()};
  if (bytes > 0) device_->download(std::span(shadow.bytes).first(bytes), shadow.device);
  view.data = shadow.bytes.data();
  shadows_.emplace(shadow.bytes.data(), std::move(shadow));
  return Tensor(view, tensor.storage());
}

void DeviceMirror::upload(const Tensor& tensor) {
  const std::span<std::byte> host = extent_of(tensor.view());
  if (const Shadow* shadow = find(host))
    device_->upload(shadow->device + (host.data() - shadow->bytes.data()), host);
}

DeviceMirror::Call::~Call() {
  for (const Copy& copy : copies_) mirror_->device_->release(copy.block);
}

std::byte* DeviceMirror::Call::place(Bytes host) {
  if (host.empty()) return nullptr;
  Device& device = *mirror_->device_;
  if (const Shadow* shadow = mirror_->find(host)) {
    std::byte* address = shadow->device + (host.data() - shadow->bytes.data());
    device.upload(address, host);
    return address;
  }
  for (const Copy& copy : copies_) {
    if (contains(copy.host, host)) return copy.device + (host.data() - copy.host.data());
  }
  std::byte* block = device.allocate(static_cast<std::int64_t>(host.size() + kKeptAlignment));
  std::byte* address = block + reinterpret_cast<std::uintptr_t>(host.data()) % kKeptAlignment;
  device.upload(address, host);
  copies_.push_back({host, block, address});
  return address;
}

ConstTensorView DeviceMirror::Call::input(const ConstTensorView& view) {
  ConstTensorView placed = view;
  if (const std::byte* address = place(extent_of(view))) placed.data = address;
  return placed;
}

TensorView DeviceMirror::Call::output(const TensorView& view) {
  TensorView placed = view;
  const Bytes host = extent_of(view);
  if (std::byte* address = place(host)) {
    placed.data = address;
    outputs_.emplace_back(host, address);
  }
  return placed;
}

Tensor DeviceMirror::Call::output(const Tensor& tensor) {
  if (!tensor) return tensor;
  TensorView view = tensor.view();
  auto* host = static_cast<std::byte*>(view.data);
  Shadow* shadow = mirror_->find({host, 0});
  if (shadow == nullptr) return tensor;
  // All of it: a test looks at what lies around its outputs.
  mirror_->device_->upload(shadow->device, shadow->bytes);
  outputs_.emplace_back(Bytes(shadow->bytes), shadow->device);
  view.data = shadow->device + (host - shadow->bytes.data());
  return Tensor(view, tensor.storage());
}

Stream DeviceMirror::Call::stream(Stream of_test) const {
  return of_test.handle == nullptr ? mirror_->device_->stream() : of_test;
}

void DeviceMirror::Call::finish() {
  mirror_->device_->wait();
  for (const auto& [host, device] : outputs_) mirror_->device_->download(host, device);
}

}  // namespace ep::test
