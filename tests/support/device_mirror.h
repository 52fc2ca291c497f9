// SPDX-License-Identifier: Apache-2.0
// Lets a test write and read the tensors of a GPU as if they were in memory of the host.
#pragma once

#include "tests/support/device.h"

#include <ep/status.h>
#include <ep/tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace ep::test {

/// Of one rank. A tensor of the arena has a *shadow* in host memory, which the test sees; what the
/// test gives to a call is uploaded before, what the call wrote is downloaded behind it.
class DeviceMirror {
 public:
  /// That of the calling thread, which is one rank of a test; opens GPU rank % count.
  static std::shared_ptr<DeviceMirror> of_rank(int rank);

  explicit DeviceMirror(int device) : device_(Device::open(device)) {}

  /// A tensor of the arena with the bytes that it has now, in a shadow that lives at least as long
  /// as the block.
  Tensor show(const Tensor& tensor);
  /// The other direction; the tensor is one that show() returned.
  void upload(const Tensor& tensor);

  /// What one call of the library reads and writes.
  class Call {
   public:
    explicit Call(std::shared_ptr<DeviceMirror> mirror) : mirror_(std::move(mirror)) {}
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    /// Views and tensors as the library shall see them.
    ConstTensorView input(const ConstTensorView& view);
    TensorView output(const TensorView& view);
    Tensor output(const Tensor& tensor);
    /// The caller's stream, or the rank's.
    Stream stream(Stream of_test) const;

    /// Waits, and downloads the outputs.
    void finish();

   private:
    using Bytes = std::span<std::byte>;
    struct Copy {
      Bytes host;
      std::byte* block;
      std::byte* device;
    };

    /// Where the bytes lie on the GPU, now equal to the host's; null if it cannot be.
    std::byte* place(Bytes host);

    std::shared_ptr<DeviceMirror> mirror_;
    std::vector<Copy> copies_;
    std::vector<std::pair<Bytes, std::byte*>> outputs_;
  };

 private:
  struct Shadow {
    std::vector<std::byte> bytes;
    std::byte* device = nullptr;
    std::weak_ptr<Storage> block;
  };

  /// The shadow around `host`, null for none.
  Shadow* find(std::span<const std::byte> host);
  void drop_unused();

  std::unique_ptr<Device> device_;
  /// By the address of the shadow's first byte.
  std::map<const std::byte*, Shadow> shadows_;
};

}  // namespace ep::test
