// SPDX-License-Identifier: Apache-2.0
// The library's group and operations as tests call them: on the host as they are, with
// EP_TEST_BACKEND=cuda on GPUs, behind the same views of host memory.
#pragma once

#include "tests/support/device_mirror.h"

#include <ep/bootstrap.h>
#include <ep/group.h>
#include <ep/moe.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>

namespace ep::test {

/// ep::Group. Hides it from the tests, and with it the operations of ep.
class Group {
 public:
  /// EP_TEST_BACKEND=cuda replaces the configuration's backend.
  static Result<std::unique_ptr<Group>> create(Bootstrap& bootstrap, const GroupConfig& config);
  static Result<ArenaPlan> plan(const GroupConfig& config, int num_ranks);

  Group(std::unique_ptr<ep::Group> group, std::shared_ptr<DeviceMirror> mirror)
      : group_(std::move(group)), mirror_(std::move(mirror)) {}

  int rank() const { return group_->rank(); }
  int num_ranks() const { return group_->num_ranks(); }
  const GroupConfig& config() const { return group_->config(); }
  Result<Tensor> allocate(DType dtype, std::initializer_list<std::int64_t> shape);
  /// Writes what a test put into a tensor, and gives to no call.
  void write_back(const Tensor& tensor) const;
  Status reserve(std::int64_t bytes) { return group_->reserve(bytes); }
  std::int64_t arena_bytes() const { return group_->arena_bytes(); }
  int num_segments() const { return group_->num_segments(); }
  Status status() const { return group_->status(); }

  ep::Group& library() const { return *group_; }
  /// Null on the host.
  const std::shared_ptr<DeviceMirror>& mirror() const { return mirror_; }

 private:
  std::unique_ptr<ep::Group> group_;
  std::shared_ptr<DeviceMirror> mirror_;
};

// As those of ep. On a GPU they wait for the operation, and return what Group::status() then says.

Result<DispatchOutput> dispatch(Group& group,
                                const DispatchInput& input,
                                const DispatchOptions& options = {});
Result<DispatchOutput> dispatch_cached(Group& group,
                                       const DispatchHandle& handle,
                                       const DispatchInput& input,
                                       const DispatchOptions& options = {});
Result<CombineOutput> combine(Group& group,
                              const DispatchHandle& handle,
                              const CombineInput& input,
                              const CombineOptions& options = {});
Result<DispatchGrad> dispatch_backward(Group& group,
                                       const DispatchHandle& handle,
                                       const DispatchGradInput& input,
                                       const CombineOptions& options = {});
Result<CombineGrad> combine_backward(Group& group,
                                     const DispatchHandle& handle,
                                     const CombineGradInput& input,
                                     const DispatchOptions& options = {});

}  // namespace ep::test
