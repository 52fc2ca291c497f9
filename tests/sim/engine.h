// SPDX-License-Identifier: Apache-2.0
// Runs the operations of a group in the simulator: a rank's calls come from its host fiber.
#pragma once

#include "core/engine.h"
#include "fabric/sim/lane.h"
#include "fabric/sim/machine.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace ep::test {

/// What a run chooses for all its launches.
struct SimLaunch {
  int group_threads = 2;
  bool has_copy_unit = true;
  std::int64_t stage_bytes = 0;  ///< Lane::stage_bytes; 0: whole rows
};

/// Beside running the roles it does what their callers do with the tensors: experts write their
/// rows before a combine and may change them right after, a dispatch's outputs are read at once.
class SimEngine final : public core::Engine {
 public:
  SimEngine(fabric::sim::Machine& machine, int rank, const SimLaunch& launch)
      : machine_(machine), rank_(rank), launch_(launch) {}

  bool is_synchronous() const override { return true; }
  Status begin(Stream /*stream*/) override { return {}; }
  void end() override {}
  bool is_capturing() const override { return false; }
  void retain(std::shared_ptr<const void> /*object*/) override {}

  Status launch(const intranode::DispatchParams& params, int num_sms, Stream stream) override;
  Status launch(const intranode::CombineParams& params, int num_sms, Stream stream) override;
  Status fill_zero(void* dst, std::int64_t bytes, Stream stream) override;
  Status upload(void* dst, const void* src, std::int64_t bytes, Stream stream) override;
  Status wait(Stream /*stream*/) override { return {}; }
  Status read(void* dst, const void* src, std::int64_t bytes) override;
  Status write(void* dst, const void* src, std::int64_t bytes) override;

  Status check_memory(const void* /*address*/) const override { return {}; }
  bool needs_aligned_sums() const override { return true; }
  Stream own_stream() const override { return {}; }
  layout::OpReport& report() override { return report_; }
  int max_sms() const override { return SmBudget::kMaxSms; }
  int suggest_sms(const OpShape& /*shape*/) const override { return 1; }

 private:
  template <class Params>
  void run(Params params, int num_channels);
  fabric::sim::Lane& lane(const std::string& role, int channel, std::int64_t scratch_bytes);
  void read_received(const intranode::DispatchParams& params);
  void write_rows(const intranode::RowInput& rows, const intranode::RoutingParams& routing);
  void note(const void* address, std::int64_t bytes, bool is_write);

  fabric::sim::Machine& machine_;
  int rank_;
  SimLaunch launch_;
  layout::OpReport report_;
  std::map<std::pair<std::string, int>, std::unique_ptr<fabric::sim::Lane>> lanes_;
};

}  // namespace ep::test
