// SPDX-License-Identifier: Apache-2.0
// Uploads what is expected once; a check is one kernel then.
#include "bench/device_check.h"

#include "base/check.h"
#include "bench/host_buffer.h"

#include <cstring>
#include <sstream>

namespace ep::bench {
namespace {

template <class T>
T* array_of(const std::shared_ptr<std::byte>& memory) {
  return reinterpret_cast<T*>(memory.get());
}

std::size_t unsigned_of(std::int64_t value) { return static_cast<std::size_t>(value); }

/// "scale 3 of row 12", "expert_counts[4]", ...
std::string place_name(const ReceivedTable& table, const WrongRows& wrong) {
  static constexpr const char* kLists[ReceivedTable::kNumLists] = {"sizes", "expert_counts",
                                                                   "expert_offsets"};
  if (wrong.list != WrongRows::kNoList)
    return std::string(kLists[wrong.list]) + "[" + std::to_string(wrong.unit) + "]";
  const std::string of_row = " of row " + std::to_string(wrong.row);
  std::int64_t at = wrong.unit;
  if (at < table.num_pieces())
    return "bytes from " + std::to_string(at * ReceivedTable::kPieceBytes) + " on" + of_row;
  at -= table.num_pieces();
  if (at < table.num_scales) return "scale " + std::to_string(at) + of_row;
  at -= table.num_scales;
  if (at < table.num_idx) return "topk_idx " + std::to_string(at) + of_row;
  return "topk_weights " + std::to_string(at - table.num_idx) + of_row;
}

}  // namespace

DeviceCheck::DeviceCheck(Device& device, const Config& config)
    : device_(device),
      options_(config.options),
      format_(config.rows.format()),
      rank_(config.rank) {}

std::int64_t DeviceCheck::bytes_of(const Config& config) {
  const RowFormat& format = config.rows.format();
  const std::size_t row_bytes = format.row_bytes() + format.num_scales() * sizeof(float);
  return std::int64_t{config.steps.num_steps()} * config.options.ranks * config.options.tokens *
         static_cast<std::int64_t>(row_bytes);
}

Result<std::unique_ptr<DeviceCheck>> DeviceCheck::create(Device& device, const Config& config) {
  if (!device.can_check() || bytes_of(config) > kMaxBytes) return std::unique_ptr<DeviceCheck>();
  auto check = std::unique_ptr<DeviceCheck>(new DeviceCheck(device, config));
  for (int step = 0; step < config.steps.num_steps(); ++step) {
    EP_TRY(check->add_step(config, step));
  }
  for (Tally* tally : {&check->received_, &check->output_}) {
    EP_TRY_ASSIGN(tally->wrong, device.allocate(sizeof(WrongRows)));
    EP_TRY(check->reset(*tally));
  }
  return check;
}

Status DeviceCheck::add_step(const Config& config, int step) {
  Step added;
  EP_TRY(upload_rows(config, step, added));
  ExpectedStep expected;
  config.steps.with_places(step, [&](const RowPlaces& places) {
    expected = expect_step({.places = places,
                            .routing = config.steps.routing(),
                            .rows_step = step,
                            .capacity = config.capacity,
                            .rank = rank_},
                           config.experts, options_.tokens);
  });
  EP_TRY(upload_expected(expected, added));
  steps_.push_back(std::move(added));
  return {};
}

Status DeviceCheck::upload_rows(const Config& config, int step, Step& out) {
  const std::size_t row_bytes = format_.row_bytes();
  const std::size_t num_scales = format_.num_scales();
  const std::size_t max_tokens = unsigned_of(options_.tokens);
  const std::size_t num_ranks = static_cast<std::size_t>(options_.ranks);
  EP_TRY_ASSIGN(out.sent, device_.allocate(num_ranks * max_tokens * row_bytes));
  EP_TRY_ASSIGN(out.sent_scales,
                device_.allocate(num_ranks * max_tokens * num_scales * sizeof(float)));
  const Routing& routing = config.steps.routing();
  HostBuffer rows(max_tokens * row_bytes);
  std::vector<float> scales(max_tokens * num_scales);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    const std::int64_t num_tokens = routing.num_tokens(step, static_cast<int>(rank));
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      const std::size_t index = unsigned_of(token);
      config.rows.fill(routing.row_key(step, static_cast<int>(rank), token),
                       {rows.get() + index * row_bytes, row_bytes},
                       std::span(scales).subspan(index * num_scales, num_scales));
    }
    EP_TRY(device_.copy_in(out.sent.get() + rank * max_tokens * row_bytes,
                           {rows.get(), max_tokens * row_bytes}));
    const auto scale_bytes = std::as_bytes(std::span(scales));
    EP_TRY(device_.copy_in(out.sent_scales.get() + rank * scale_bytes.size(), scale_bytes));
  }
  return {};
}

template <class T>
Result<DeviceCheck::Memory> DeviceCheck::upload(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  EP_TRY_ASSIGN(Memory memory, device_.allocate(bytes.size()));
  if (!bytes.empty()) EP_TRY(device_.copy_in(memory.get(), bytes));
  return memory;
}

Status DeviceCheck::upload_expected(const ExpectedStep& expected, Step& out) {
  EP_TRY_ASSIGN(out.sources, upload(expected.sources));
  EP_TRY_ASSIGN(out.topk_idx, upload(expected.topk_idx));
  EP_TRY_ASSIGN(out.topk_weights, upload(expected.topk_weights));
  EP_TRY_ASSIGN(out.sizes, upload(expected.sizes));
  EP_TRY_ASSIGN(out.counts, upload(expected.expert_counts));
  EP_TRY_ASSIGN(out.offsets, upload(expected.expert_offsets));
  EP_TRY_ASSIGN(out.terms, upload(expected.terms));
  EP_TRY_ASSIGN(out.num_terms, upload(expected.num_terms));
  out.num_rows = static_cast<std::int64_t>(expected.sources.size());
  out.num_tokens = static_cast<std::int64_t>(expected.num_terms.size());
  out.num_counts = static_cast<std::int64_t>(expected.expert_counts.size());
  out.num_offsets = static_cast<std::int64_t>(expected.expert_offsets.size());
  return {};
}

ReceivedTable DeviceCheck::received_table(const Round& round,
                                          const DispatchOutput& received) const {
  const Step& step = at(round.step);
  const Step& rows = at(round.rows_step);
  ReceivedTable table;
  table.x = received.x.data<std::byte>();
  table.scales = received.scales.data<float>();
  table.topk_idx = received.topk_idx.data<std::int64_t>();
  table.topk_weights = received.topk_weights.data<float>();
  table.sent = rows.sent.get();
  table.sent_scales = array_of<float>(rows.sent_scales);
  table.sources = array_of<std::int32_t>(step.sources);
  table.expected_idx = array_of<std::int64_t>(step.topk_idx);
  table.expected_weights = array_of<float>(step.topk_weights);
  table.lists[0] = {received.sizes.data<std::int64_t>(), array_of<std::int64_t>(step.sizes), 3};
  table.lists[1] = {received.expert_counts.data<std::int64_t>(),
                    array_of<std::int64_t>(step.counts), step.num_counts};
  table.lists[2] = {received.expert_offsets.data<std::int64_t>(),
                    array_of<std::int64_t>(step.offsets), step.num_offsets};
  const bool is_flat = options_.layout == Layout::kFlat;
  table.num_rows = step.num_rows;
  table.row_bytes = static_cast<std::int64_t>(format_.row_bytes());
  table.num_scales = static_cast<std::int64_t>(format_.num_scales());
  table.num_idx = is_flat ? options_.topk : 0;
  table.num_weights = is_flat ? options_.topk : 1;
  table.round = round.round;
  return table;
}

Status DeviceCheck::check_received(const Round& round, const DispatchOutput& received) {
  const ReceivedTable table = received_table(round, received);
  const auto holds = [](const Tensor& tensor, std::int64_t elems) {
    return elems == 0 || (tensor && tensor.view().num_elems() >= elems);
  };
  if (!holds(received.x, table.num_rows * format_.hidden) ||
      !holds(received.scales, table.num_rows * table.num_scales) ||
      !holds(received.topk_idx, table.num_rows * table.num_idx) ||
      !holds(received.topk_weights, table.num_rows * table.num_weights)) {
    return Status(Errc::kInternal, "rank " + std::to_string(rank_) + " must receive " +
                                       std::to_string(table.num_rows) + " rows, but x is " +
                                       to_string(received.x.view()));
  }
  received_.num_checked += table.num_rows;
  return device_.check(table, array_of<WrongRows>(received_.wrong));
}

Status DeviceCheck::check_output(const Round& round, const std::byte* out) {
  const Step& step = at(round.step);
  const Step& rows = at(round.rows_step);
  const std::int64_t first_row = rank_ * options_.tokens;
  OutputTable table;
  table.row_bytes = static_cast<std::int64_t>(format_.row_bytes());
  table.num_scales = static_cast<std::int64_t>(format_.num_scales());
  table.out = out;
  table.sent = rows.sent.get() + first_row * table.row_bytes;
  table.sent_scales = array_of<float>(rows.sent_scales) + first_row * table.num_scales;
  table.terms = array_of<TermEntry>(step.terms);
  table.num_terms = array_of<std::int32_t>(step.num_terms);
  table.num_rows = step.num_tokens;
  table.hidden = format_.hidden;
  table.scale_block = kScaleBlock;
  table.max_terms = options_.topk;
  table.dtype = format_.dtype;
  table.out_dtype = expert_dtype_of(format_.dtype);
  table.out_row_bytes = format_.hidden * size_of(table.out_dtype);
  table.rounds_terms = options_.layout == Layout::kExpertMajor && table.out_dtype != DType::kFp32;
  table.is_exact = format_.exact;
  table.round = round.round;
  output_.num_checked += table.num_rows;
  return device_.check(table, array_of<WrongRows>(output_.wrong));
}

Status DeviceCheck::reset(Tally& tally) {
  tally.num_checked = 0;
  const WrongRows none;
  return device_.copy_in(tally.wrong.get(), std::as_bytes(std::span(&none, 1)));
}

Result<WrongRows> DeviceCheck::take(Tally& tally) {
  WrongRows wrong;
  EP_TRY(device_.copy_out(std::as_writable_bytes(std::span(&wrong, 1)), tally.wrong.get()));
  EP_TRY(reset(tally));
  return wrong;
}

Result<RowCheck> DeviceCheck::take_received() {
  RowCheck check{.checked = received_.num_checked, .wrong = 0, .first_wrong = {}};
  EP_TRY_ASSIGN(const WrongRows wrong, take(received_));
  check.wrong = static_cast<std::int64_t>(wrong.num_wrong);
  if (wrong.num_wrong == 0) return check;
  check.first_wrong = "rank " + std::to_string(rank_) + ", round " + std::to_string(wrong.round) +
                      ": wrong " + place_name(received_table({}, {}), wrong);
  return check;
}

Result<RowCheck> DeviceCheck::take_output() {
  RowCheck check{.checked = output_.num_checked, .wrong = 0, .first_wrong = {}};
  EP_TRY_ASSIGN(const WrongRows wrong, take(output_));
  check.wrong = static_cast<std::int64_t>(wrong.num_wrong);
  if (wrong.num_wrong == 0) return check;
  std::ostringstream text;
  text.precision(10);
  text << "rank " << rank_ << ", round " << wrong.round << ": out[" << wrong.row << ", "
       << wrong.unit << "] = " << wrong.actual << ", expected " << wrong.expected << " +- "
       << wrong.tolerance;
  check.first_wrong = text.str();
  return check;
}

}  // namespace ep::bench
