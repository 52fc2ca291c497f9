// SPDX-License-Identifier: Apache-2.0
// Runs operations on threads of this process: complete when launched.
#pragma once

#include "core/engine.h"
#include "fabric/host/launcher.h"

#include <cstdint>
#include <memory>

namespace ep::core {

class Rails;

class HostEngine final : public Engine {
 public:
  /// `rails`: of a group of several nodes, else null; they outlive the engine.
  explicit HostEngine(Rails* rails = nullptr) : rails_(rails) {}

  bool is_synchronous() const override { return true; }
  Status begin(Stream stream) override;
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
  bool needs_aligned_sums() const override { return false; }

  Stream own_stream() const override { return {}; }
  layout::OpReport& report() override { return report_; }
  int max_sms() const override { return SmBudget::kMaxSms; }
  int suggest_sms(const OpShape& shape) const override { return suggest_num_sms(shape); }

 private:
  Rails* rails_;
  fabric::HostLauncher launcher_;
  layout::OpReport report_;
};

}  // namespace ep::core
