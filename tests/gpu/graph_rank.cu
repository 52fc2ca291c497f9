// SPDX-License-Identifier: Apache-2.0
// Buffers at fixed addresses around the library's calls.
#include "base/check.h"
#include "tests/gpu/graph_rank.h"

#include <cuda_runtime.h>

#include <chrono>
#include <span>
#include <thread>
#include <utility>

namespace ep::test {
namespace {

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

std::span<const std::byte> bytes_at(const ConstTensorView& view) {
  return {static_cast<const std::byte*>(view.data),
          to_size(view.num_elems() * size_of(view.dtype))};
}

void must(cudaError_t error) { EP_CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

cudaStream_t handle_of(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace

CapturedCall::CapturedCall(CapturedCall&& other) noexcept
    : exec_(std::exchange(other.exec_, nullptr)) {}

CapturedCall& CapturedCall::operator=(CapturedCall&& other) noexcept {
  std::swap(exec_, other.exec_);
  return *this;
}

CapturedCall::~CapturedCall() {
  if (exec_ != nullptr)
    static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(exec_)));
}

CapturedCall CapturedCall::record(RankContext& context,
                                  Stream stream,
                                  const std::function<Status()>& call,
                                  Status& status) {
  CapturedCall captured;
  const auto fine = [&context](cudaError_t error, const char* what) {
    return context.expect(error == cudaSuccess,
                          std::string(what) + ": " + cudaGetErrorString(error));
  };
  if (!fine(cudaStreamBeginCapture(handle_of(stream), cudaStreamCaptureModeThreadLocal),
            "cudaStreamBeginCapture"))
    return captured;
  static_cast<void>(status = call());
  cudaGraph_t graph = nullptr;
  const bool has_ended =
      fine(cudaStreamEndCapture(handle_of(stream), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t exec = nullptr;
  if (has_ended && status.ok() &&
      fine(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate"))
    captured.exec_ = exec;
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  return captured;
}

std::string CapturedCall::launch(Stream stream) const {
  const cudaError_t error = cudaGraphLaunch(static_cast<cudaGraphExec_t>(exec_), handle_of(stream));
  return error == cudaSuccess ? "" : std::string("cudaGraphLaunch: ") + cudaGetErrorString(error);
}

GraphRank::GraphRank(RankContext& context, const Problem& sample, std::int64_t pool_bytes)
    : context_(context), sample_(sample) {
  const int index = context.rank() % Device::count();
  device_ = Device::open(index);
  mirror_ = std::make_shared<DeviceMirror>(index);
  GroupConfig config = config_for(sample);
  config.backend = Backend::kCuda;
  config.pool_bytes = pool_bytes;
  auto group = ep::Group::create(context.bootstrap(), config);
  if (!context.expect_ok(group.status(), "Group::create")) return;
  group_ = std::move(group).value();
  const std::int64_t num_choices = num_tokens() * sample_.routing.topk;
  x_ = allocate_input(num_tokens() * sample_.row_bytes());
  topk_idx_ = allocate_input(num_choices * size_of(DType::kInt64));
  topk_weights_ = allocate_input(num_choices * size_of(DType::kFp32));
  out_ = device_->allocate(num_tokens() * sample_.row_bytes());
}

std::int64_t GraphRank::num_tokens() const {
  return sample_.routing.ranks[to_size(context_.rank())].num_tokens;
}

Status GraphRank::allocate_rows() {
  const std::int64_t num_rows = sample_.capacity_of(context_.rank()).value_or(0);
  auto rows = group_->allocate(sample_.dtype, {num_rows, sample_.hidden});
  if (rows.ok()) rows_ = *rows;
  return rows.status();
}

void GraphRank::set_problem(const Oracle& oracle, const RowValues& values) {
  const RankInputs inputs(oracle.problem(), context_.rank());
  const DispatchInput views = inputs.views();
  device_->upload(x_.memory, bytes_at(views.x));
  device_->upload(topk_idx_.memory, bytes_at(views.topk_idx));
  device_->upload(topk_weights_.memory, bytes_at(views.topk_weights));
  if (!rows_) return;
  const ExpectedRank& expected = oracle.rank(context_.rank());
  const std::size_t row_bytes = to_size(sample_.row_bytes());
  std::vector<std::byte> rows(to_size(rows_.view().size(0)) * row_bytes, std::byte{0xFF});
  for (std::size_t row = 0; row < expected.rows.size(); ++row) {
    if (!expected.rows[row].is_padding)
      values.fill_expert_row(context_.rank(), expected.rows[row],
                             std::span(rows).subspan(row * row_bytes, row_bytes));
  }
  device_->upload(rows_.data<std::byte>(), rows);
  // What is not written again must show.
  poison(out_, num_tokens() * sample_.row_bytes());
}

void GraphRank::make_inputs_late(std::chrono::milliseconds delay) {
  const cudaStream_t stream = handle_of(this->stream());
  for (const Input& input : {x_, topk_idx_, topk_weights_}) {
    must(cudaMemcpyAsync(input.waiting, input.memory, to_size(input.bytes),
                         cudaMemcpyDeviceToDevice, stream));
    poison(input.memory, input.bytes);
  }
  must(cudaLaunchHostFunc(
      stream,
      [](void* millis) {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(reinterpret_cast<std::intptr_t>(millis)));
      },
      reinterpret_cast<void*>(static_cast<std::intptr_t>(delay.count()))));
  for (const Input& input : {x_, topk_idx_, topk_weights_}) {
    must(cudaMemcpyAsync(input.memory, input.waiting, to_size(input.bytes),
                         cudaMemcpyDeviceToDevice, stream));
  }
}

void GraphRank::overwrite_inputs() {
  for (const Input& input : {x_, topk_idx_, topk_weights_}) poison(input.memory, input.bytes);
}

void GraphRank::overwrite_rows() {
  poison(rows_.data<std::byte>(), rows_.view().num_elems() * size_of(sample_.dtype));
}

void GraphRank::poison(std::byte* memory, std::int64_t bytes) {
  must(cudaMemsetAsync(memory, 0xFF, to_size(bytes), handle_of(stream())));
}

GraphRank::Input GraphRank::allocate_input(std::int64_t bytes) {
  return {.memory = device_->allocate(bytes), .waiting = device_->allocate(bytes), .bytes = bytes};
}

DispatchInput GraphRank::input() const {
  DispatchInput input;
  input.x = ConstTensorView(x_.memory, sample_.dtype, {num_tokens(), sample_.hidden});
  const int topk = sample_.routing.topk;
  input.topk_idx = ConstTensorView(topk_idx_.memory, DType::kInt64, {num_tokens(), topk});
  input.topk_weights = ConstTensorView(topk_weights_.memory, DType::kFp32, {num_tokens(), topk});
  return input;
}

DispatchOptions GraphRank::options() const {
  DispatchOptions options;
  options.layout = sample_.layout;
  options.alignment = sample_.alignment;
  options.experts = map_of(sample_);
  options.capacity = sample_.capacity_of(context_.rank());
  options.stream = stream();
  return options;
}

Status GraphRank::dispatch() {
  auto output = ep::dispatch(*group_, input(), options());
  if (output.ok()) received_ = *output;
  return output.status();
}

Status GraphRank::dispatch_of_exact_size() {
  DispatchOptions exact = options();
  exact.capacity.reset();
  return ep::dispatch(*group_, input(), exact).status();
}

Status GraphRank::combine() {
  CombineInput rows;
  rows.rows = rows_.view();
  CombineOptions options;
  options.stream = stream();
  options.out = TensorView(out_, sample_.dtype, {num_tokens(), sample_.hidden});
  return ep::combine(*group_, received_->handle, rows, options).status();
}

std::string GraphRank::wrong_received(const Oracle& oracle) {
  wait();
  if (const Status status = group_->status(); !status.ok()) return status.to_string();
  const DispatchOutput& output = *received_;
  const DispatchOutput shown{.x = mirror_->show(output.x),
                             .scales = mirror_->show(output.scales),
                             .topk_idx = mirror_->show(output.topk_idx),
                             .topk_weights = mirror_->show(output.topk_weights),
                             .expert_counts = mirror_->show(output.expert_counts),
                             .expert_offsets = mirror_->show(output.expert_offsets),
                             .sizes = mirror_->show(output.sizes),
                             .handle = output.handle};
  return check_dispatch(oracle, context_.rank(), shown);
}

std::string GraphRank::wrong_sums(const Oracle& oracle, const RowValues& values) {
  wait();
  if (const Status status = group_->status(); !status.ok()) return status.to_string();
  std::vector<std::byte> out(to_size(num_tokens() * sample_.row_bytes()));
  device_->download(out, out_);
  const CombineProblem problem = combine_problem({.values = values, .hidden = sample_.hidden});
  return check_combine(oracle, problem, context_.rank(),
                       TensorView(out.data(), sample_.dtype, {num_tokens(), sample_.hidden}));
}

}  // namespace ep::test
