// SPDX-License-Identifier: Apache-2.0
// Tensor views (borrowed) and tensors (owned blocks of a rank's arena).
#pragma once

#include <ep/api.h>
#include <ep/dtype.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace ep {

inline constexpr int kMaxDims = 3;

/// Shape or strides, in elements.
using Dims = std::array<std::int64_t, kMaxDims>;

/// A borrowed, strided view. `BasicTensorView<const void>` cannot be written through.
template <class Void>
struct BasicTensorView {
  Void* data = nullptr;
  DType dtype = DType::kBf16;
  int num_dims = 0;
  Dims shape{};
  Dims strides{};  ///< in elements; 0 is allowed in inputs (an expanded dimension)

  BasicTensorView() = default;
  /// Contiguous, row-major.
  BasicTensorView(Void* pointer, DType type, std::initializer_list<std::int64_t> dims)
      : data(pointer), dtype(type) {
    for (std::int64_t dim : dims) {
      if (num_dims < kMaxDims) shape[static_cast<std::size_t>(num_dims++)] = dim;
    }
    std::int64_t stride = 1;
    for (int dim = num_dims - 1; dim >= 0; --dim) {
      strides[static_cast<std::size_t>(dim)] = stride;
      stride *= shape[static_cast<std::size_t>(dim)];
    }
  }
  /// From a mutable view.
  template <class Other>
  requires(!std::is_same_v<Other, Void> && std::is_convertible_v<Other*, Void*>)
      BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data),
        dtype(other.dtype),
        num_dims(other.num_dims),
        shape(other.shape),
        strides(other.strides) {}

  /// A default-constructed view: "not given".
  bool is_null() const { return data == nullptr && num_dims == 0; }
  std::int64_t size(int dim) const { return shape[static_cast<std::size_t>(dim)]; }
  std::int64_t stride(int dim) const { return strides[static_cast<std::size_t>(dim)]; }
  std::int64_t num_elems() const {
    std::int64_t product = 1;
    for (int dim = 0; dim < num_dims; ++dim) product *= size(dim);
    return product;
  }
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

/// "bf16[4096, 7168]".
EP_API std::string to_string(const ConstTensorView& view);

/// Keeps a block of an arena alive; opaque.
class Storage;

/// An owned, contiguous tensor in this rank's arena, readable and writable by peers. Copies share
/// the block; the last one to go gives it back. It may outlive the Group that made it.
class EP_API Tensor {
 public:
  Tensor() = default;
  Tensor(TensorView view, std::shared_ptr<Storage> storage)
      : view_(view), storage_(std::move(storage)) {}

  const TensorView& view() const { return view_; }
  explicit operator bool() const { return storage_ != nullptr; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  /// The elements; T must have the size of the dtype.
  template <class T>
  T* data() const {
    return static_cast<T*>(view_.data);
  }

 private:
  TensorView view_;
  std::shared_ptr<Storage> storage_;
};

}  // namespace ep
