// SPDX-License-Identifier: Apache-2.0
// Calls of a group on a GPU that must be refused before anything is launched on their stream:
// memory of another place, pointers that are not aligned, captures that cannot be, streams of
// others.
#include <ep/ep.h>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ep {
namespace {

constexpr std::int64_t kTokens = 8;
constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kTopk = 2;
constexpr std::size_t kXBytes = kTokens * kHidden * 2;

void must(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

int count_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/// Memory of any kind, zeroed, with room for what is shifted.
class Memory {
 public:
  using Free = cudaError_t (*)(void*);
  Memory(void* address, Free free) : address_(address), free_(free) {}
  Memory(Memory&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), free_(other.free_) {}
  Memory& operator=(Memory&&) = delete;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (address_ != nullptr) EXPECT_EQ(free_(address_), cudaSuccess);
  }

  static constexpr std::size_t kBytes = 2 * kXBytes;
  static Memory on_device(int device = 0) {
    void* address = nullptr;
    must(cudaSetDevice(device));
    must(cudaMalloc(&address, kBytes));
    must(cudaMemset(address, 0, kBytes));
    must(cudaDeviceSynchronize());
    must(cudaSetDevice(0));
    return {address, [](void* memory) { return cudaFree(memory); }};
  }
  static Memory pinned() {
    void* address = nullptr;
    must(cudaMallocHost(&address, kBytes));
    return {address, [](void* memory) { return cudaFreeHost(memory); }};
  }
  static Memory managed() {
    void* address = nullptr;
    must(cudaMallocManaged(&address, kBytes));
    return {address, [](void* memory) { return cudaFree(memory); }};
  }

  std::byte* at(std::size_t offset = 0) const { return static_cast<std::byte*>(address_) + offset; }

 private:
  void* address_;
  Free free_;
};

ConstTensorView x_at(const void* address) { return {address, DType::kBf16, {kTokens, kHidden}}; }
ConstTensorView idx_at(const void* address) { return {address, DType::kInt32, {kTokens, kTopk}}; }

class BadInputOnGpu : public testing::Test {
 protected:
  using Spoil = std::function<void(DispatchInput&, DispatchOptions&)>;

  void SetUp() override {
    if (count_devices() == 0) GTEST_SKIP() << "needs a GPU";
    must(cudaSetDevice(0));
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    x_ = std::make_unique<Memory>(Memory::on_device());
    idx_ = std::make_unique<Memory>(Memory::on_device());
    auto bootstraps = make_in_process_bootstraps(1);
    ASSERT_TRUE(bootstraps.ok());
    GroupConfig config;
    config.backend = Backend::kCuda;
    config.max_tokens = kTokens;
    config.max_hidden_bytes = kHidden * 2;
    config.max_topk = static_cast<int>(kTopk);
    config.max_experts = 4;
    config.pool_bytes = 1 << 20;
    auto group = Group::create(*(*bootstraps)[0], config);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    group_ = std::move(*group);
  }
  void TearDown() override {
    group_.reset();
    if (stream_ != nullptr) must(cudaStreamDestroy(stream_));
  }

  Result<DispatchOutput> dispatch(const Spoil& spoil) {
    DispatchInput input;
    input.x = x_at(x_->at());
    input.topk_idx = idx_at(idx_->at());
    DispatchOptions options;
    options.stream = {stream_};
    spoil(input, options);
    return ep::dispatch(*group_, input, options);
  }

  void expect_a_good_dispatch() {
    const auto output = dispatch([](DispatchInput&, DispatchOptions&) {});
    EXPECT_TRUE(output.ok()) << output.status().to_string();
    must(cudaStreamSynchronize(stream_));
    EXPECT_TRUE(group_->status().ok());
  }

  void expect_refused(const Spoil& spoil, const std::vector<std::string>& mentions) {
    const Status status = dispatch(spoil).status();
    EXPECT_EQ(status.code(), Errc::kInvalidArgument) << status.to_string();
    for (const std::string& mention : mentions) {
      EXPECT_NE(status.message().find(mention), std::string::npos)
          << mention << " in " << status.message();
    }
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left behind for the caller's next check";
    expect_a_good_dispatch();
  }

  void expect_memory_refused(const void* address, const std::string& what) {
    expect_refused([&](DispatchInput& input, DispatchOptions&) { input.x = x_at(address); },
                   {"x: bf16[8, 64]", "lies in " + what, "need memory of device 0"});
    expect_refused(
        [&](DispatchInput& input, DispatchOptions&) { input.topk_idx = idx_at(address); },
        {"topk_idx: int32[8, 2]", "lies in " + what});
  }

  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Memory> x_;
  std::unique_ptr<Memory> idx_;
  std::unique_ptr<Group> group_;
};

TEST_F(BadInputOnGpu, MemoryOfTheHostIsNamed) {
  alignas(16) static std::byte ordinary[Memory::kBytes];
  expect_memory_refused(ordinary, "ordinary host memory");
  const Memory pinned = Memory::pinned();
  expect_memory_refused(pinned.at(), "pinned host memory");
  const Memory managed = Memory::managed();
  expect_memory_refused(managed.at(), "managed memory");
}

TEST_F(BadInputOnGpu, MemoryOfAnotherDeviceIsNamed) {
  if (count_devices() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const Memory other = Memory::on_device(1);
  expect_memory_refused(other.at(), "memory of device 1");
}

TEST_F(BadInputOnGpu, PointersThatAreNotAlignedAreNamed) {
  expect_refused([&](DispatchInput& input, DispatchOptions&) { input.x = x_at(x_->at(8)); },
                 {"x: bf16[8, 64]", "not aligned to 16 bytes"});
  expect_refused(
      [&](DispatchInput& input, DispatchOptions&) { input.topk_idx = idx_at(idx_->at(2)); },
      {"topk_idx: int32[8, 2]", "not aligned to its elements of 4 bytes"});
}

TEST_F(BadInputOnGpu, ACaptureWithoutACapacityIsRefusedAndGoesOn) {
  expect_a_good_dispatch();
  must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  const Status status = dispatch([](DispatchInput&, DispatchOptions&) {}).status();
  EXPECT_EQ(status.code(), Errc::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find("capacity: is needed under stream capture"), std::string::npos)
      << status.message();
  cudaGraph_t graph = nullptr;
  must(cudaStreamEndCapture(stream_, &graph));
  std::size_t num_nodes = 1;
  must(cudaGraphGetNodes(graph, nullptr, &num_nodes));
  EXPECT_EQ(num_nodes, 0U) << "something was launched";
  must(cudaGraphDestroy(graph));
  expect_a_good_dispatch();
}

TEST_F(BadInputOnGpu, AStreamOfAnotherDeviceIsNamed) {
  if (count_devices() < 2) GTEST_SKIP() << "needs 2 GPUs";
  cudaStream_t foreign = nullptr;
  must(cudaSetDevice(1));
  must(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking));
  must(cudaSetDevice(0));
  expect_refused([&](DispatchInput&, DispatchOptions& options) { options.stream = {foreign}; },
                 {"stream: belongs to device 1, the group to device 0"});
  must(cudaStreamDestroy(foreign));
}

TEST(NoGpu, AGroupIsUnsupportedAndSaysWhy) {
  if (count_devices() > 0) GTEST_SKIP() << "needs a host without a GPU";
  static_cast<void>(cudaGetLastError());
  auto bootstraps = make_in_process_bootstraps(1);
  ASSERT_TRUE(bootstraps.ok());
  const auto group = Group::create(*(*bootstraps)[0], {.backend = Backend::kCuda});
  EXPECT_EQ(group.status().code(), Errc::kUnsupported) << group.status().to_string();
  EXPECT_NE(group.status().message().find("no CUDA d"), std::string::npos)
      << group.status().message();
}

}  // namespace
}  // namespace ep
