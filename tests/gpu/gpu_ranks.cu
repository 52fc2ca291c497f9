// SPDX-License-Identifier: Apache-2.0
// GPU memory and streams of the ranks of one process.
#include "base/check.h"
#include "tests/gpu/gpu_ranks.h"

#include <cuda_runtime.h>

#include <algorithm>

namespace ep::test {
namespace {

// Enough for any wait of these tests, and short of a hung test.
constexpr std::uint64_t kTimeoutNs = 2'000'000'000;
constexpr int kPoison = 0xA5;

void must(cudaError_t error) { EP_CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

/// Once per process: a second call would be an error of the driver.
bool enable_peers(int num_gpus) {
  for (int device = 0; device < num_gpus; ++device) {
    must(cudaSetDevice(device));
    for (int peer = 0; peer < num_gpus; ++peer) {
      if (peer != device) must(cudaDeviceEnablePeerAccess(peer, 0));
    }
  }
  return true;
}

}  // namespace

int num_usable_gpus() {
  int num_gpus = 0;
  if (cudaGetDeviceCount(&num_gpus) != cudaSuccess) return 0;
  for (int peer = 1; peer < num_gpus; ++peer) {
    int reaches = 0;
    if (cudaDeviceCanAccessPeer(&reaches, 0, peer) != cudaSuccess || reaches == 0) return 1;
  }
  return num_gpus;
}

GpuRank::GpuRank(int device, std::int64_t control_bytes, std::int64_t arena_bytes)
    : device_(device),
      control_bytes_(control_bytes),
      arena_bytes_(arena_bytes),
      end_(control_bytes) {
  use_device();
  void* memory = nullptr;
  must(cudaMalloc(&memory, static_cast<std::size_t>(arena_bytes)));
  must(cudaMemset(memory, 0, static_cast<std::size_t>(control_bytes)));
  arena_ = static_cast<std::byte*>(memory);
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_ = stream;
  must(cudaDeviceSynchronize());
}

GpuRank::~GpuRank() {
  use_device();
  must(cudaStreamDestroy(static_cast<cudaStream_t>(stream_)));
  must(cudaFree(arena_));
}

void GpuRank::use_device() const { must(cudaSetDevice(device_)); }

std::byte* GpuRank::allocate(std::int64_t bytes) {
  std::byte* block = arena_ + end_;
  end_ += layout::round_up(std::max<std::int64_t>(bytes, 1), layout::kLineBytes);
  EP_CHECK(end_ <= arena_bytes_, "arena too small for the test");
  use_device();
  must(cudaMemset(block, kPoison, static_cast<std::size_t>(arena_ + end_ - block)));
  must(cudaDeviceSynchronize());
  return block;
}

layout::Location GpuRank::locate(const void* address) const {
  const std::int64_t offset = static_cast<const std::byte*>(address) - arena_;
  return {.segment = 0, .offset_units = static_cast<std::uint32_t>(offset / layout::kLocationUnit)};
}

void GpuRank::write(std::byte* dst, std::span<const std::byte> bytes) const {
  use_device();
  must(cudaMemcpy(dst, bytes.data(), bytes.size(), cudaMemcpyDefault));
  must(cudaDeviceSynchronize());
}

void GpuRank::read(std::span<std::byte> bytes, const void* src) const {
  use_device();
  must(cudaMemcpy(bytes.data(), src, bytes.size(), cudaMemcpyDefault));
}

void GpuRank::wait() const {
  use_device();
  must(cudaStreamSynchronize(static_cast<cudaStream_t>(stream_)));
}

GpuRanks::GpuRanks(const layout::ControlShape& shape, std::int64_t arena_bytes)
    : layout_(layout::make_control_layout(shape)) {
  const int num_gpus = num_usable_gpus();
  static const bool has_peers = enable_peers(num_gpus);
  EP_CHECK(has_peers, "peers are enabled or the process has ended");
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    ranks_.push_back(std::make_unique<GpuRank>(rank % num_gpus, layout_.total_bytes,
                                               layout_.total_bytes + arena_bytes));
  }
  std::vector<std::byte*> table(static_cast<std::size_t>(shape.num_ranks * layout::kMaxSegments));
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    table[static_cast<std::size_t>(rank * layout::kMaxSegments)] = (*this)[rank].arena();
  }
  for (const auto& rank : ranks_) {
    rank->use_device();
    const Result<intranode::LoadedKernels> kernels = intranode::load_kernels();
    EP_CHECK(kernels.ok(), kernels.status().message().c_str());
    kernels_.push_back(*kernels);
    void* copy = nullptr;
    must(cudaMalloc(&copy, table.size() * sizeof(std::byte*)));
    must(cudaMemcpy(copy, table.data(), table.size() * sizeof(std::byte*), cudaMemcpyDefault));
    tables_.push_back(copy);
  }
  must(cudaHostAlloc(&gone_flags_,
                     static_cast<std::size_t>(shape.num_ranks) * sizeof(std::uint32_t),
                     cudaHostAllocPortable | cudaHostAllocMapped));
  std::fill_n(static_cast<std::uint32_t*>(gone_flags_), shape.num_ranks, 0U);
}

GpuRanks::~GpuRanks() {
  for (void* table : tables_) must(cudaFree(table));
  must(cudaFreeHost(gone_flags_));
}

primitives::OpParams GpuRanks::op_params(int rank) {
  primitives::OpParams params;
  params.peer_table = tables_[static_cast<std::size_t>(rank)];
  params.own = (*this)[rank].arena();
  for (int peer = 0; peer < std::min(layout_.shape.num_ranks, primitives::OpParams::kNumBases);
       ++peer)
    params.bases[peer] = (*this)[peer].arena();
  params.gone_flags = gone_flags_;
  params.board = params.own;
  params.num_peers = layout_.shape.num_ranks;
  params.layout = layout_;
  params.rank = rank;
  params.timeout_ns = kTimeoutNs;
  return params;
}

layout::FaultRecord GpuRanks::fault(int rank) {
  return (*this)[rank]
      .download<layout::FaultRecord>((*this)[rank].arena() + layout_.fault, 1)
      .front();
}

layout::LocalState GpuRanks::local_state(int rank) {
  return (*this)[rank]
      .download<layout::LocalState>((*this)[rank].arena() + layout_.local, 1)
      .front();
}

}  // namespace ep::test
