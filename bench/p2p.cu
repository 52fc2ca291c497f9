// SPDX-License-Identifier: Apache-2.0
// Measures the links: one process drives both GPUs, a gate starts them together.
#include "base/check.h"
#include "bench/gpu_info.h"
#include "bench/gpu_status.cuh"
#include "bench/p2p.h"
#include "bench/p2p_kernels.cuh"
#include "bench/stats.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>

namespace ep::bench {
namespace {

constexpr double kMicrosPerMilli = 1000;
constexpr std::uint32_t kBounces = 2000;
constexpr int kWideCtas = 1024;
constexpr int kWideThreads = 512;

/// Buffers and stream of one GPU.
class LinkEnd {
 public:
  explicit LinkEnd(int gpu) : gpu_(gpu) {}
  LinkEnd(const LinkEnd&) = delete;
  LinkEnd& operator=(const LinkEnd&) = delete;
  ~LinkEnd() {
    static_cast<void>(cudaSetDevice(gpu_));
    for (void* block : {src_, dst_, words_}) static_cast<void>(cudaFree(block));
    if (start_ != nullptr) static_cast<void>(cudaEventDestroy(start_));
    if (end_ != nullptr) static_cast<void>(cudaEventDestroy(end_));
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }

  Status init() {
    EP_TRY(use());
    EP_BENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    EP_BENCH_CUDA(cudaEventCreate(&start_));
    EP_BENCH_CUDA(cudaEventCreate(&end_));
    EP_BENCH_CUDA(cudaMalloc(&src_, kLinkBytes));
    EP_BENCH_CUDA(cudaMalloc(&dst_, kLinkBytes));
    EP_BENCH_CUDA(cudaMalloc(&words_, sizeof(Words)));
    EP_BENCH_CUDA(cudaMemset(words_, 0, sizeof(Words)));
    EP_BENCH_CUDA(cudaFuncSetAttribute(copy_rows_kernel,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(kLinkSharedBytes)));
    // Loading a kernel behind a closed gate would wait for it.
    cudaFuncAttributes attributes{};
    EP_BENCH_CUDA(cudaFuncGetAttributes(&attributes, bounce_kernel<false>));
    EP_BENCH_CUDA(cudaFuncGetAttributes(&attributes, bounce_kernel<true>));
    fill_random_kernel<<<kWideCtas, kWideThreads, 0, stream_>>>(static_cast<std::uint64_t*>(src_),
                                                                kLinkWords);
    EP_BENCH_CUDA(cudaGetLastError());
    return finish();
  }

  Status use() const {
    EP_BENCH_CUDA(cudaSetDevice(gpu_));
    return {};
  }
  Status finish() const {
    EP_TRY(use());
    EP_BENCH_CUDA(cudaStreamSynchronize(stream_));
    return {};
  }

  int gpu() const { return gpu_; }
  cudaStream_t stream() const { return stream_; }
  std::byte* src() const { return static_cast<std::byte*>(src_); }
  std::byte* dst() const { return static_cast<std::byte*>(dst_); }
  std::uint32_t* flag() const { return &static_cast<Words*>(words_)->flag; }
  std::uint32_t* expired() const { return &static_cast<Words*>(words_)->expired; }
  std::uint64_t* tickets() const { return &static_cast<Words*>(words_)->tickets; }

  Status clear() const {
    EP_TRY(use());
    EP_BENCH_CUDA(cudaMemsetAsync(words_, 0, sizeof(Words), stream_));
    return {};
  }
  Status clear_destination() const {
    EP_TRY(use());
    EP_BENCH_CUDA(cudaMemsetAsync(dst_, 0, kLinkBytes, stream_));
    return finish();
  }
  Status record_start() const {
    EP_BENCH_CUDA(cudaEventRecord(start_, stream_));
    return {};
  }
  Status record_end() const {
    EP_BENCH_CUDA(cudaEventRecord(end_, stream_));
    return {};
  }
  Result<double> micros() const {
    float millis = 0;
    EP_BENCH_CUDA(cudaEventElapsedTime(&millis, start_, end_));
    return static_cast<double>(millis) * kMicrosPerMilli;
  }

  /// Errors: kInternal unless all of dst() is what all src() are.
  Status check_destination() const {
    EP_TRY(clear());
    auto* num_wrong = &static_cast<Words*>(words_)->num_wrong;
    count_wrong_kernel<<<kWideCtas, kWideThreads, 0, stream_>>>(
        static_cast<const std::uint64_t*>(dst_), kLinkWords, num_wrong);
    EP_BENCH_CUDA(cudaGetLastError());
    EP_TRY_ASSIGN(const Words words, read_words());
    if (words.num_wrong == 0) return {};
    return Status(Errc::kInternal, "p2p: " + std::to_string(words.num_wrong) + " of " +
                                       std::to_string(kLinkWords) + " words on GPU " +
                                       std::to_string(gpu_) + " are wrong");
  }
  /// Errors: kPeerTimeout if a flag did not come.
  Status check_flags() const {
    EP_TRY_ASSIGN(const Words words, read_words());
    if (words.expired == 0) return {};
    return Status(Errc::kPeerTimeout, "p2p: flag " + std::to_string(words.expired) +
                                          " did not reach GPU " + std::to_string(gpu_) +
                                          " within 2 s");
  }

 private:
  struct Words {
    std::uint64_t tickets;
    unsigned long long num_wrong;
    std::uint32_t expired;
    alignas(128) std::uint32_t flag;
  };

  Result<Words> read_words() const {
    EP_TRY(finish());
    Words words{};
    EP_BENCH_CUDA(cudaMemcpy(&words, words_, sizeof(Words), cudaMemcpyDeviceToHost));
    return words;
  }

  int gpu_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
  void* src_ = nullptr;
  void* dst_ = nullptr;
  void* words_ = nullptr;
};

/// Starts work on the streams of several GPUs at once.
class LinkGate {
 public:
  LinkGate() = default;
  LinkGate(const LinkGate&) = delete;
  LinkGate& operator=(const LinkGate&) = delete;
  ~LinkGate() { static_cast<void>(cudaFreeHost(words_)); }

  Status init() {
    EP_BENCH_CUDA(
        cudaHostAlloc(&words_, sizeof(GateWords), cudaHostAllocMapped | cudaHostAllocPortable));
    *static_cast<GateWords*>(words_) = {};
    return {};
  }
  void begin_round() { ++round_; }
  Status close(const LinkEnd& end) const {
    gate_kernel<<<1, 1, 0, end.stream()>>>(static_cast<GateWords*>(words_), round_);
    EP_BENCH_CUDA(cudaGetLastError());
    return {};
  }
  void open() {
    std::atomic_ref(static_cast<GateWords*>(words_)->opened)
        .store(round_, std::memory_order_relaxed);
  }
  Status check() const {
    if (static_cast<const GateWords*>(words_)->expired != round_) return {};
    return Status(Errc::kPeerTimeout, "p2p: nothing was queued within 2 s");
  }

 private:
  void* words_ = nullptr;
  std::uint32_t round_ = 0;
};

using Launch = std::function<Status(const LinkEnd& mine, const LinkEnd& other)>;

class LinkMeter {
 public:
  explicit LinkMeter(const LinkPlan& plan) : plan_(plan) {}

  Status init(int num_ends) {
    EP_TRY(gate_.init());
    for (int gpu = 0; gpu < num_ends; ++gpu) {
      ends_.push_back(std::make_unique<LinkEnd>(gpu));
      EP_TRY(ends_.back()->init());
    }
    for (int gpu = 0; gpu < num_ends && num_ends > 1; ++gpu) {
      EP_TRY(at(gpu).use());
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(1 - gpu, 0);
      if (enabled != cudaErrorPeerAccessAlreadyEnabled) EP_BENCH_CUDA(enabled);
    }
    return {};
  }

  bool has_peer() const { return ends_.size() > 1; }
  std::vector<LinkSample> take_samples() { return std::move(samples_); }

  /// `dst_is_peer`: whose destination the launch fills, to be checked.
  Status add_copy(LinkSample sample, const Launch& launch, bool dst_is_peer) {
    for (const auto& end : ends_) EP_TRY(end->clear_destination());
    sample.bytes = kLinkBytes;
    EP_TRY_ASSIGN(sample.micros, median_of(launch, sample.directions));
    for (int gpu = 0; gpu < sample.directions; ++gpu) {
      EP_TRY(at(dst_is_peer ? 1 - gpu : gpu).check_destination());
    }
    samples_.push_back(sample);
    return {};
  }

  Status add_flag(const char* what, const Launch& launch) {
    LinkSample sample = {.what = what, .directions = 1};
    EP_TRY_ASSIGN(const double micros, median_of(launch, 2));
    for (const auto& end : ends_) EP_TRY(end->check_flags());
    constexpr double kWaysPerBounce = 2;
    sample.micros = micros / (kBounces * kWaysPerBounce);
    samples_.push_back(sample);
    return {};
  }

 private:
  const LinkEnd& at(int gpu) const { return *ends_[static_cast<std::size_t>(gpu)]; }

  Result<double> median_of(const Launch& launch, int directions) {
    std::vector<double> micros;
    EP_TRY(time_once(launch, directions));  // loads kernels
    for (int i = 0; i < plan_.repetitions; ++i) {
      EP_TRY_ASSIGN(const double time, time_once(launch, directions));
      micros.push_back(time);
    }
    return stats_of(micros).median;
  }

  Result<double> time_once(const Launch& launch, int directions) {
    // Cleared on all GPUs before any of them may store a flag.
    for (const auto& end : ends_) EP_TRY(end->clear());
    for (const auto& end : ends_) EP_TRY(end->finish());
    gate_.begin_round();
    const Status queued = queue(launch, directions);
    gate_.open();
    for (const auto& end : ends_) EP_TRY(end->finish());
    EP_TRY(queued);
    EP_TRY(gate_.check());
    double slowest_micros = 0;
    for (int gpu = 0; gpu < directions; ++gpu) {
      EP_TRY_ASSIGN(const double micros, at(gpu).micros());
      slowest_micros = std::max(slowest_micros, micros);
    }
    return slowest_micros;
  }

  Status queue(const Launch& launch, int directions) const {
    for (int gpu = 0; gpu < directions; ++gpu) {
      const LinkEnd& mine = at(gpu);
      EP_TRY(mine.use());
      EP_TRY(gate_.close(mine));
      EP_TRY(mine.record_start());
      EP_TRY(launch(mine, at(has_peer() ? 1 - gpu : gpu)));
      EP_TRY(mine.record_end());
    }
    return {};
  }

  const LinkPlan& plan_;
  LinkGate gate_;
  std::vector<std::unique_ptr<LinkEnd>> ends_;
  std::vector<LinkSample> samples_;
};

Status launch_rows(const LinkEnd& by, std::byte* dst, const std::byte* src, int sms) {
  copy_rows_kernel<<<sms, kLinkThreads, kLinkSharedBytes, by.stream()>>>(dst, src, by.tickets());
  EP_BENCH_CUDA(cudaGetLastError());
  return {};
}

template <bool kIsOrdered>
Status launch_bounce(const LinkEnd& mine, const LinkEnd& other) {
  const FlagPair flags = {.mine = mine.flag(),
                          .theirs = other.flag(),
                          .expired = mine.expired(),
                          .is_first = mine.gpu() == 0};
  bounce_kernel<kIsOrdered><<<1, 1, 0, mine.stream()>>>(flags, kBounces);
  EP_BENCH_CUDA(cudaGetLastError());
  return {};
}

Status launch_engine(const LinkEnd& mine, const LinkEnd& other) {
  EP_BENCH_CUDA(cudaMemcpyPeerAsync(other.dst(), other.gpu(), mine.src(), mine.gpu(), kLinkBytes,
                                    mine.stream()));
  return {};
}

Status measure_sms(LinkMeter& meter, int sms) {
  EP_TRY(meter.add_copy(
      {.what = "local_copy", .sms = sms},
      [sms](const LinkEnd& mine, const LinkEnd&) {
        return launch_rows(mine, mine.dst(), mine.src(), sms);
      },
      false));
  for (int directions = 1; directions <= 2 && meter.has_peer(); ++directions) {
    EP_TRY(meter.add_copy(
        {.what = "push", .sms = sms, .directions = directions},
        [sms](const LinkEnd& mine, const LinkEnd& other) {
          return launch_rows(mine, other.dst(), mine.src(), sms);
        },
        true));
    EP_TRY(meter.add_copy(
        {.what = "pull", .sms = sms, .directions = directions},
        [sms](const LinkEnd& mine, const LinkEnd& other) {
          return launch_rows(mine, mine.dst(), other.src(), sms);
        },
        false));
  }
  return {};
}

}  // namespace

Result<std::vector<LinkSample>> measure_links(const LinkPlan& plan) {
  EP_TRY_ASSIGN(const GpuMachine machine, read_gpus());
  const bool has_peer = machine.num_gpus() > 1;
  if (has_peer && !(machine.reaches[0][1] && machine.reaches[1][0])) {
    return Status(Errc::kUnsupported, "p2p: GPUs 0 and 1 do not reach each other");
  }
  LinkMeter meter(plan);
  EP_TRY(meter.init(has_peer ? 2 : 1));
  for (int sms : plan.sms) EP_TRY(measure_sms(meter, sms));
  if (has_peer) {
    for (int directions = 1; directions <= 2; ++directions) {
      EP_TRY(
          meter.add_copy({.what = "copy_engine", .directions = directions}, launch_engine, true));
    }
    EP_TRY(meter.add_flag("flag_relaxed", launch_bounce<false>));
    EP_TRY(meter.add_flag("flag_ordered", launch_bounce<true>));
  }
  return meter.take_samples();
}

}  // namespace ep::bench
