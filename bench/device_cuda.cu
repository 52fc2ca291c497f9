// SPDX-License-Identifier: Apache-2.0
// A rank's GPU: its stream, the gate before a timed operation, events around it.
#include "base/check.h"
#include "bench/check_kernels.cuh"
#include "bench/device.h"
#include "bench/gpu_info.h"
#include "bench/gpu_kernels.cuh"
#include "bench/gpu_status.cuh"

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <utility>

namespace ep::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMicrosPerMilli = 1000;

class CudaGraph : public Graph {
 public:
  CudaGraph(cudaGraphExec_t exec, cudaStream_t stream) : exec_(exec), stream_(stream) {}
  ~CudaGraph() override { static_cast<void>(cudaGraphExecDestroy(exec_)); }
  Status launch() override {
    EP_BENCH_CUDA(cudaGraphLaunch(exec_, stream_));
    return {};
  }

 private:
  cudaGraphExec_t exec_;
  cudaStream_t stream_;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int gpu) : gpu_(gpu) {}
  ~CudaDevice() override {
    // Errors were reported by the calls before; here they would only repeat.
    static_cast<void>(cudaSetDevice(gpu_));
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
    if (start_ != nullptr) static_cast<void>(cudaEventDestroy(start_));
    if (end_ != nullptr) static_cast<void>(cudaEventDestroy(end_));
    static_cast<void>(cudaFree(flushed_));
    static_cast<void>(cudaFreeHost(gate_));
  }

  Status init() {
    EP_BENCH_CUDA(cudaSetDevice(gpu_));
    EP_BENCH_CUDA(cudaDeviceGetAttribute(&num_sms_, cudaDevAttrMultiProcessorCount, gpu_));
    EP_BENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    EP_BENCH_CUDA(cudaEventCreate(&start_));
    EP_BENCH_CUDA(cudaEventCreate(&end_));
    // A sink beside the words that are read.
    EP_BENCH_CUDA(cudaMalloc(&flushed_, kFlushBytes + sizeof(uint4)));
    EP_BENCH_CUDA(cudaMemset(flushed_, 0, kFlushBytes + sizeof(uint4)));
    EP_BENCH_CUDA(cudaHostAlloc(&gate_, sizeof(GateWords), cudaHostAllocMapped));
    *static_cast<GateWords*>(gate_) = {};
    return load_kernels();
  }

  bool is_host() const override { return false; }
  Stream stream() const override { return {stream_}; }

  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override {
    constexpr std::size_t kLeastBytes = 16;  // a null pointer would be no tensor
    void* memory = nullptr;
    EP_BENCH_CUDA(cudaMalloc(&memory, bytes < kLeastBytes ? kLeastBytes : bytes));
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory),
                                      [](std::byte* block) { static_cast<void>(cudaFree(block)); });
  }
  Status copy_in(std::byte* device, std::span<const std::byte> host) override {
    EP_BENCH_CUDA(
        cudaMemcpyAsync(device, host.data(), host.size(), cudaMemcpyHostToDevice, stream_));
    return synchronize();
  }
  Status copy_out(std::span<std::byte> host, const std::byte* device) override {
    EP_BENCH_CUDA(
        cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, stream_));
    return synchronize();
  }
  Status fill(std::byte* device, int byte, std::size_t bytes) override {
    EP_BENCH_CUDA(cudaMemsetAsync(device, byte, bytes, stream_));
    return {};
  }
  Status delay(std::chrono::microseconds time) override {
    constexpr std::uint64_t kNsPerMicro = 1000;
    delay_kernel<<<1, 1, 0, stream_>>>(kNsPerMicro * static_cast<std::uint64_t>(time.count()));
    EP_BENCH_CUDA(cudaGetLastError());
    return {};
  }

  bool can_check() const override { return true; }
  Status check(const ReceivedTable& table, WrongRows* wrong) override {
    check_received_kernel<<<num_check_ctas(), kCheckThreads, 0, stream_>>>(table, wrong);
    EP_BENCH_CUDA(cudaGetLastError());
    return {};
  }
  Status check(const OutputTable& table, WrongRows* wrong) override {
    check_output_kernel<<<num_check_ctas(), kCheckThreads, 0, stream_>>>(table, wrong);
    EP_BENCH_CUDA(cudaGetLastError());
    return {};
  }

  Status synchronize() override {
    EP_BENCH_CUDA(cudaStreamSynchronize(stream_));
    return {};
  }

  Result<std::unique_ptr<Graph>> capture(const Call& call) override {
    EP_BENCH_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    const Status called = call();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    const auto owner = std::shared_ptr<CUgraph_st>(graph, [](cudaGraph_t captured) {
      if (captured != nullptr) static_cast<void>(cudaGraphDestroy(captured));
    });
    EP_TRY(called);
    EP_BENCH_CUDA(ended);
    cudaGraphExec_t exec = nullptr;
    EP_BENCH_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    Result<std::unique_ptr<Graph>> result(std::make_unique<CudaGraph>(exec, stream_));
    EP_BENCH_CUDA(cudaGraphUpload(exec, stream_));
    EP_TRY(synchronize());
    return result;
  }

  Result<OpTime> time(const Timed& timed) override {
    ++round_;
    const Status queued = queue_between_events(timed);
    // Also after an error: the stream must not stay closed until the gate gives up.
    if (!queued.ok()) open_gate();
    const Status finished = synchronize();
    EP_TRY(queued);
    EP_TRY(finished);
    EP_TRY(check_gate());
    float millis = 0;
    EP_BENCH_CUDA(cudaEventElapsedTime(&millis, start_, end_));
    OpTime time;
    time.micros = static_cast<double>(millis) * kMicrosPerMilli;
    if (timed.is_queued) time.host_micros = host_micros_;
    return time;
  }

 private:
  int num_check_ctas() const {
    constexpr int kCtasPerSm = 8;
    return kCtasPerSm * num_sms_;
  }

  /// Loading a kernel behind one that spins would wait for it.
  Status load_kernels() {
    cudaFuncAttributes attributes{};
    EP_BENCH_CUDA(cudaFuncGetAttributes(&attributes, check_received_kernel));
    EP_BENCH_CUDA(cudaFuncGetAttributes(&attributes, check_output_kernel));
    EP_BENCH_CUDA(cudaFuncGetAttributes(&attributes, delay_kernel));
    EP_TRY(launch_flush());
    gate_kernel<<<1, 1, 0, stream_>>>(static_cast<GateWords*>(gate_), 0);
    EP_BENCH_CUDA(cudaGetLastError());
    return synchronize();
  }

  Status launch_flush() {
    constexpr int kCtasPerSm = 4;
    const auto* words = static_cast<const uint4*>(flushed_);
    const std::size_t num_words = kFlushBytes / sizeof(uint4);
    auto* sink = reinterpret_cast<std::uint32_t*>(static_cast<uint4*>(flushed_) + num_words);
    flush_kernel<<<kCtasPerSm * num_sms_, kFlushThreads, 0, stream_>>>(words, num_words, sink);
    EP_BENCH_CUDA(cudaGetLastError());
    return {};
  }

  Status queue_between_events(const Timed& timed) {
    EP_TRY(launch_flush());
    gate_kernel<<<1, 1, 0, stream_>>>(static_cast<GateWords*>(gate_), round_);
    EP_BENCH_CUDA(cudaGetLastError());
    if (!timed.is_queued) EP_TRY(meet_and_open(timed.meet));
    EP_BENCH_CUDA(cudaEventRecord(start_, stream_));
    const Clock::time_point start = Clock::now();
    EP_TRY(timed.call());
    host_micros_ = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    EP_BENCH_CUDA(cudaEventRecord(end_, stream_));
    return timed.is_queued ? meet_and_open(timed.meet) : Status();
  }

  Status meet_and_open(const Call& meet) {
    // Ranks leave the first meeting when the last has come, some of them from sleep; the second
    // finds all awake.
    EP_TRY(meet());
    EP_TRY(meet());
    open_gate();
    return {};
  }

  void open_gate() {
    // Relaxed: nothing but the gate is published.
    std::atomic_ref(static_cast<GateWords*>(gate_)->opened)
        .store(round_, std::memory_order_relaxed);
  }

  Status check_gate() const {
    if (static_cast<const GateWords*>(gate_)->expired != round_) return {};
    return Status(Errc::kPeerTimeout, "the ranks did not queue an operation within 2 s");
  }

  int gpu_;
  int num_sms_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
  void* flushed_ = nullptr;
  void* gate_ = nullptr;
  std::uint32_t round_ = 0;
  double host_micros_ = 0;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(int rank) {
  int num_gpus = 0;
  EP_BENCH_CUDA(cudaGetDeviceCount(&num_gpus));
  auto device = std::make_unique<CudaDevice>(gpu_of_rank(rank, num_gpus));
  EP_TRY(device->init());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace ep::bench
