// SPDX-License-Identifier: Apache-2.0
// Checks results in memory of the device against rows that the processor made: copying them to the
// host and computing them there takes a hundred times as long.
#pragma once

#include "bench/device.h"
#include "bench/expected_step.h"
#include "bench/step_table.h"

#include <ep/moe.h>
#include <ep/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ep::bench {

class DeviceCheck {
 public:
  struct Config {
    const Options& options;
    RowSource& rows;
    const StepTable& steps;
    std::span<const ExpertFunction> experts;
    std::int64_t capacity = 0;
    int rank = 0;
  };
  /// Null where the device cannot check, or would need more than kMaxBytes for what is expected.
  /// `device` outlives the check. Errors as Device::allocate.
  static Result<std::unique_ptr<DeviceCheck>> create(Device& device, const Config& config);
  static constexpr std::int64_t kMaxBytes = std::int64_t{24} << 30;

  /// Results of a step's routing and the rows of `rows_step`. `round` goes into the description.
  struct Round {
    int step = 0;
    int rows_step = 0;
    std::int64_t round = 0;
  };
  /// Ordered on the stream. Errors: kInternal for tensors that are too small to be looked at.
  Status check_received(const Round& round, const DispatchOutput& received);
  Status check_output(const Round& round, const std::byte* out);

  /// Wait for the stream; what was checked since the call before.
  Result<RowCheck> take_received();
  Result<RowCheck> take_output();

 private:
  using Memory = std::shared_ptr<std::byte>;
  /// In memory of the device.
  struct Step {
    Memory sent;  // rows of all ranks
    Memory sent_scales;
    Memory sources, topk_idx, topk_weights, sizes, counts, offsets, terms, num_terms;
    std::int64_t num_rows = 0;
    std::int64_t num_tokens = 0;
    std::int64_t num_counts = 0;
    std::int64_t num_offsets = 0;
  };
  struct Tally {
    Memory wrong;
    std::int64_t num_checked = 0;
  };

  DeviceCheck(Device& device, const Config& config);

  static std::int64_t bytes_of(const Config& config);
  Status add_step(const Config& config, int step);
  Status upload_rows(const Config& config, int step, Step& out);
  Status upload_expected(const ExpectedStep& expected, Step& out);
  template <class T>
  Result<Memory> upload(const std::vector<T>& values);
  Status reset(Tally& tally);
  Result<WrongRows> take(Tally& tally);
  ReceivedTable received_table(const Round& round, const DispatchOutput& received) const;
  const Step& at(int step) const { return steps_[static_cast<std::size_t>(step)]; }

  Device& device_;
  const Options& options_;
  RowFormat format_;
  int rank_;
  std::vector<Step> steps_;
  Tally received_;
  Tally output_;
};

}  // namespace ep::bench
