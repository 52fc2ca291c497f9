// SPDX-License-Identifier: Apache-2.0
// Runs operations on a GPU.
#include "base/check.h"
#include "base/log.h"
#include "core/cuda_engine.h"
#include "fabric/cuda/device.h"
#include "fabric/cuda/driver.h"
#include "fabric/cuda/status.h"
#include "intranode/cuda.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ep::core {
namespace {

using fabric::cuda_status;
using fabric::log_failure;

/// Control words and sizes are small; larger reads go in pieces.
constexpr std::int64_t kReadBytes = 4096;

cudaStream_t stream_of(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

/// Makes a device the thread's, and gives it back.
class DeviceScope {
 public:
  explicit DeviceScope(int device) : status_(enter(device)) {}
  ~DeviceScope() {
    if (is_changed_) log_failure(cudaSetDevice(of_caller_), "cudaSetDevice");
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  const Status& status() const { return status_; }

 private:
  Status enter(int device) {
    EP_TRY(cuda_status(cudaGetDevice(&of_caller_), "cudaGetDevice"));
    if (of_caller_ == device) return {};
    EP_TRY(cuda_status(cudaSetDevice(device), "cudaSetDevice"));
    is_changed_ = true;
    return {};
  }

  int of_caller_ = 0;
  bool is_changed_ = false;
  Status status_;
};

/// Calls on a stream of our own are no part of what the thread may be capturing elsewhere.
class RelaxedCaptureScope {
 public:
  RelaxedCaptureScope() {
    log_failure(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
  }
  ~RelaxedCaptureScope() {
    log_failure(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
  }
  RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
  RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// What graphs no longer hold. A graph ends in a callback that may not call the driver, which the
/// release of a segment does; so the engine, or its end, does it.
class Retired {
 public:
  using Objects = std::vector<std::shared_ptr<const void>>;

  void add(Objects objects) {
    const std::lock_guard lock(mutex_);
    std::move(objects.begin(), objects.end(), std::back_inserter(objects_));
  }
  void clear() {
    Objects objects;
    const std::lock_guard lock(mutex_);
    objects.swap(objects_);
  }

 private:
  std::mutex mutex_;
  Objects objects_;
};

/// Owned by a graph.
struct GraphShare {
  Retired::Objects objects;
  std::shared_ptr<Retired> retired;
};

void CUDART_CB end_graph_share(void* address) {
  const std::unique_ptr<GraphShare> share(static_cast<GraphShare*>(address));
  share->retired->add(std::move(share->objects));
}

/// The graph that a stream is being captured into.
#if CUDART_VERSION >= 13000
cudaError_t find_graph(cudaStream_t stream, cudaGraph_t* graph) {
  cudaStreamCaptureStatus status{};
  unsigned long long id = 0;
  return cudaStreamGetCaptureInfo(stream, &status, &id, graph);
}
#else
cudaError_t find_graph(cudaStream_t stream, cudaGraph_t* graph) {
  cudaStreamCaptureStatus status{};
  unsigned long long id = 0;
  return cudaStreamGetCaptureInfo_v2(stream, &status, &id, graph);
}
#endif

Status give_to_graph(cudaStream_t stream, std::unique_ptr<GraphShare> share) {
  cudaGraph_t graph = nullptr;
  EP_TRY(cuda_status(find_graph(stream, &graph), "cudaStreamGetCaptureInfo"));
  cudaUserObject_t object = nullptr;
  EP_TRY(cuda_status(cudaUserObjectCreate(&object, share.get(), end_graph_share, 1,
                                          cudaUserObjectNoDestructorSync),
                     "cudaUserObjectCreate"));
  static_cast<void>(share.release());
  return cuda_status(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove),
                     "cudaGraphRetainUserObject");
}

/// A stream within its capture, or outside of any.
struct StreamPlace {
  unsigned long long stream_id = 0;
  unsigned long long capture_id = 0;  ///< 0: not captured

  friend bool operator==(const StreamPlace&, const StreamPlace&) = default;
};

Status wrong_memory(const std::string& what, int device) {
  return Status(Errc::kInvalidArgument,
                "lies in " + what + ", need memory of device " + std::to_string(device));
}

/// Allocations of the engine's device that were asked for lately, by the ids that the driver gives
/// them. It uses no id twice: memory that was freed is not found here.
class KnownAllocations {
 public:
  using Id = unsigned long long;
  static constexpr Id kNone = 0;

  bool contains(Id id) const {
    return id != kNone && std::find(ids_.begin(), ids_.end(), id) != ids_.end();
  }
  void add(Id id) {
    ids_[next_] = id;
    next_ = (next_ + 1) % ids_.size();
  }

 private:
  /// Inputs and outputs of a call are at most seven.
  std::array<Id, 16> ids_{};
  std::size_t next_ = 0;
};

/// One CTA: what an operation runs stays within any budget. A memset of the driver takes as many
/// SMs as it likes.
__global__ void zero_kernel(std::byte* dst, std::int64_t bytes) {
  const std::int64_t num_vectors = bytes / static_cast<std::int64_t>(sizeof(int4));
  for (std::int64_t i = threadIdx.x; i < num_vectors; i += blockDim.x)
    reinterpret_cast<int4*>(dst)[i] = int4{};
  const std::int64_t first = num_vectors * static_cast<std::int64_t>(sizeof(int4));
  for (std::int64_t i = first + threadIdx.x; i < bytes; i += blockDim.x) dst[i] = std::byte{0};
}
constexpr int kZeroThreads = 1024;

class CudaEngine final : public Engine {
 public:
  explicit CudaEngine(int device) : device_(device) {}
  ~CudaEngine() override;

  Status initialize();

  bool is_synchronous() const override { return false; }
  Status begin(Stream stream) override;
  void end() override;
  bool is_capturing() const override { return place_.capture_id != 0; }
  void retain(std::shared_ptr<const void> object) override {
    if (is_capturing()) retained_.push_back(std::move(object));
  }

  Status launch(const intranode::DispatchParams& params, int num_sms, Stream stream) override {
    EP_TRY(order(stream));
    return intranode::launch_dispatch(kernels_, stream, params, num_sms);
  }
  Status launch(const intranode::CombineParams& params, int num_sms, Stream stream) override {
    EP_TRY(order(stream));
    return intranode::launch_combine(kernels_, stream, params, num_sms);
  }
  Status fill_zero(void* dst, std::int64_t bytes, Stream stream) override;
  Status upload(void* dst, const void* src, std::int64_t bytes, Stream stream) override;
  Status wait(Stream stream) override {
    const RelaxedCaptureScope relaxed;  // the thread may be capturing another stream
    return cuda_status(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
  }

  Status read(void* dst, const void* src, std::int64_t bytes) override;
  Status write(void* dst, const void* src, std::int64_t bytes) override;

  Status check_memory(const void* address) const override;
  bool needs_aligned_sums() const override { return true; }
  Stream own_stream() const override { return {own_stream_}; }
  layout::OpReport& report() override { return *report_; }
  int max_sms() const override { return num_sms_; }
  int suggest_sms(const OpShape& shape) const override { return suggest_num_sms(shape); }

 private:
  /// The stream waits for the group's previous operation; end() makes the next one wait for it.
  Status order(Stream stream);
  Status query_place(cudaStream_t stream);
  Status read_piece(void* dst, const void* src, std::int64_t bytes);

  const int device_;
  int num_sms_ = 1;
  const fabric::Driver* driver_ = nullptr;
  intranode::LoadedKernels kernels_;
  cudaStream_t own_stream_ = nullptr;
  layout::OpReport* report_ = nullptr;
  /// Pinned, for read().
  void* landing_ = nullptr;

  /// After the last operation that ran, and after the last one that was captured. An event of a
  /// capture has no meaning outside of it.
  cudaEvent_t ran_ = nullptr;
  cudaEvent_t captured_ = nullptr;
  StreamPlace last_run_;
  StreamPlace last_captured_;

  /// A stream of this device.
  std::optional<unsigned long long> checked_stream_id_;
  mutable KnownAllocations known_allocations_;

  // Of the present call.
  int device_of_caller_ = 0;
  StreamPlace place_;
  /// Ordered behind the previous operation.
  std::optional<cudaStream_t> ordered_;
  Retired::Objects retained_;

  const std::shared_ptr<Retired> retired_ = std::make_shared<Retired>();
};

CudaEngine::~CudaEngine() {
  const DeviceScope scope(device_);
  const RelaxedCaptureScope relaxed;
  // A peer that never comes ends the last operation by its deadline.
  if (ran_ != nullptr) log_failure(cudaEventSynchronize(ran_), "cudaEventSynchronize");
  if (own_stream_ != nullptr) log_failure(cudaStreamDestroy(own_stream_), "cudaStreamDestroy");
  if (ran_ != nullptr) log_failure(cudaEventDestroy(ran_), "cudaEventDestroy");
  if (captured_ != nullptr) log_failure(cudaEventDestroy(captured_), "cudaEventDestroy");
  if (landing_ != nullptr) log_failure(cudaFreeHost(landing_), "cudaFreeHost");
  if (report_ != nullptr) log_failure(cudaFreeHost(report_), "cudaFreeHost");
  retired_->clear();
}

Status CudaEngine::initialize() {
  const DeviceScope scope(device_);
  EP_TRY(scope.status());
  EP_TRY(cuda_status(cudaDeviceGetAttribute(&num_sms_, cudaDevAttrMultiProcessorCount, device_),
                     "cudaDeviceGetAttribute"));
  EP_TRY(cuda_status(cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking),
                     "cudaStreamCreateWithFlags"));
  for (cudaEvent_t* event : {&ran_, &captured_}) {
    EP_TRY(cuda_status(cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                       "cudaEventCreateWithFlags"));
  }
  EP_TRY(cuda_status(cudaMallocHost(&landing_, static_cast<std::size_t>(kReadBytes)),
                     "cudaMallocHost"));
  void* report = nullptr;
  EP_TRY(cuda_status(
      cudaHostAlloc(&report, sizeof(layout::OpReport), cudaHostAllocPortable | cudaHostAllocMapped),
      "cudaHostAlloc"));
  report_ = new (report) layout::OpReport();
  EP_TRY_ASSIGN(driver_, fabric::load_driver());
  EP_TRY_ASSIGN(kernels_, intranode::load_kernels());
  cudaFuncAttributes attributes;  // asking loads it
  return cuda_status(cudaFuncGetAttributes(&attributes, zero_kernel), "cudaFuncGetAttributes");
}

Status CudaEngine::query_place(cudaStream_t stream) {
  cudaStreamCaptureStatus capture{};
  unsigned long long capture_id = 0;
  const cudaError_t of_capture = cudaStreamGetCaptureInfo(stream, &capture, &capture_id);
  if (of_capture != cudaSuccess || capture == cudaStreamCaptureStatusInvalidated) {
    return Status(Errc::kInvalidArgument,
                  std::string("stream: is none of this process, or of a broken capture: ") +
                      cudaGetErrorString(of_capture),
                  of_capture);
  }
  place_.capture_id = capture == cudaStreamCaptureStatusActive ? capture_id : 0;
  if (is_capturing()) {
    // The driver answers no question about such a stream; within a capture its handle is unique.
    place_.stream_id = reinterpret_cast<std::uintptr_t>(stream);
    return {};
  }
  EP_TRY(cuda_status(cudaStreamGetId(stream, &place_.stream_id), "cudaStreamGetId"));
  // The driver never uses an id twice, so the stream of the call before needs no second look.
  if (checked_stream_id_ == place_.stream_id) return {};
  int device = 0;
  EP_TRY(cuda_status(cudaStreamGetDevice(stream, &device), "cudaStreamGetDevice"));
  if (device != device_) {
    return Status(Errc::kInvalidArgument, "stream: belongs to device " + std::to_string(device) +
                                              ", the group to device " + std::to_string(device_));
  }
  checked_stream_id_ = place_.stream_id;
  return {};
}

Status CudaEngine::begin(Stream stream) {
  place_ = {};
  ordered_.reset();
  retired_->clear();
  EP_TRY(cuda_status(cudaGetDevice(&device_of_caller_), "cudaGetDevice"));
  if (device_of_caller_ != device_) {
    EP_TRY(cuda_status(cudaSetDevice(device_), "cudaSetDevice"));
  }
  return query_place(stream_of(stream));
}

void CudaEngine::end() {
  if (ordered_) {
    const cudaEvent_t event = is_capturing() ? captured_ : ran_;
    log_failure(cudaEventRecord(event, *ordered_), "cudaEventRecord");
    (is_capturing() ? last_captured_ : last_run_) = place_;
    if (!retained_.empty()) {
      auto share = std::make_unique<GraphShare>(GraphShare{std::move(retained_), retired_});
      const Status status = give_to_graph(*ordered_, std::move(share));
      if (!status.ok()) base::log(LogLevel::kError, status.message());
    }
  }
  retained_.clear();
  // Between operations nothing is captured: what the caller allocates may grow the pool.
  place_ = {};
  if (device_of_caller_ != device_) log_failure(cudaSetDevice(device_of_caller_), "cudaSetDevice");
}

Status CudaEngine::order(Stream stream) {
  const cudaStream_t handle = stream_of(stream);
  if (ordered_ && *ordered_ == handle) return {};
  if (ordered_) {
    EP_TRY(cuda_status(cudaEventRecord(ran_, *ordered_), "cudaEventRecord"));
    last_run_ = place_;
  }
  if (handle == own_stream_) {
    place_ = {};
    EP_TRY(cuda_status(cudaStreamGetId(handle, &place_.stream_id), "cudaStreamGetId"));
  }
  ordered_ = handle;
  if (is_capturing()) {
    const bool is_behind = last_captured_.capture_id == place_.capture_id;
    if (!is_behind || last_captured_ == place_) return {};
    return cuda_status(cudaStreamWaitEvent(handle, captured_), "cudaStreamWaitEvent");
  }
  if (last_run_ == place_) return {};
  return cuda_status(cudaStreamWaitEvent(handle, ran_), "cudaStreamWaitEvent");
}

Status CudaEngine::fill_zero(void* dst, std::int64_t bytes, Stream stream) {
  EP_TRY(order(stream));
  if (bytes == 0) return {};
  zero_kernel<<<1, kZeroThreads, 0, stream_of(stream)>>>(static_cast<std::byte*>(dst), bytes);
  return cuda_status(cudaGetLastError(), "zero_kernel");
}

Status CudaEngine::upload(void* dst, const void* src, std::int64_t bytes, Stream stream) {
  EP_TRY(order(stream));
  return cuda_status(cudaMemcpyAsync(dst, src, static_cast<std::size_t>(bytes),
                                     cudaMemcpyHostToDevice, stream_of(stream)),
                     "cudaMemcpyAsync");
}

Status CudaEngine::read_piece(void* dst, const void* src, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  EP_TRY(cuda_status(cudaMemcpyAsync(landing_, src, size, cudaMemcpyDeviceToHost, own_stream_),
                     "cudaMemcpyAsync"));
  EP_TRY(cuda_status(cudaStreamSynchronize(own_stream_), "cudaStreamSynchronize"));
  std::memcpy(dst, landing_, size);
  return {};
}

Status CudaEngine::read(void* dst, const void* src, std::int64_t bytes) {
  const DeviceScope scope(device_);
  EP_TRY(scope.status());
  const RelaxedCaptureScope relaxed;
  for (std::int64_t done = 0; done < bytes; done += kReadBytes) {
    EP_TRY(read_piece(static_cast<std::byte*>(dst) + done,
                      static_cast<const std::byte*>(src) + done,
                      std::min(kReadBytes, bytes - done)));
  }
  return {};
}

Status CudaEngine::write(void* dst, const void* src, std::int64_t bytes) {
  const DeviceScope scope(device_);
  EP_TRY(scope.status());
  const RelaxedCaptureScope relaxed;
  EP_TRY(cuda_status(cudaMemcpyAsync(dst, src, static_cast<std::size_t>(bytes),
                                     cudaMemcpyHostToDevice, own_stream_),
                     "cudaMemcpyAsync"));
  return cuda_status(cudaStreamSynchronize(own_stream_), "cudaStreamSynchronize");
}

Status CudaEngine::check_memory(const void* address) const {
  // One attribute costs the driver less than the four below.
  KnownAllocations::Id id = KnownAllocations::kNone;
  const CUresult found = driver_->pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                                        reinterpret_cast<std::uintptr_t>(address));
  if (found != CUDA_SUCCESS) id = KnownAllocations::kNone;
  if (known_allocations_.contains(id)) return {};
  cudaPointerAttributes attributes{};
  EP_TRY(cuda_status(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes"));
  switch (attributes.type) {
    case cudaMemoryTypeUnregistered:
      return wrong_memory("ordinary host memory", device_);
    case cudaMemoryTypeHost:
      return wrong_memory("pinned host memory", device_);
    case cudaMemoryTypeManaged:
      return wrong_memory("managed memory", device_);
    case cudaMemoryTypeDevice:
      if (attributes.device == device_) {
        known_allocations_.add(id);
        return {};
      }
      return wrong_memory("memory of device " + std::to_string(attributes.device), device_);
  }
  return wrong_memory("memory of an unknown kind", device_);
}

}  // namespace

Result<int> current_cuda_device() {
  EP_TRY(fabric::check_driver());
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  // Where there is none at all, open_device() says so.
  if (error != cudaErrorNoDevice) EP_TRY(cuda_status(error, "cudaGetDevice"));
  EP_TRY(fabric::open_device(device));
  return device;
}

Result<std::unique_ptr<Engine>> create_cuda_engine(int device) {
  auto engine = std::make_unique<CudaEngine>(device);
  EP_TRY(engine->initialize());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace ep::core
