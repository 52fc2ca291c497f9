// SPDX-License-Identifier: Apache-2.0
// Text form of tensor views.
#include <ep/tensor.h>

namespace ep {

std::string to_string(const ConstTensorView& view) {
  std::string text = std::string(name_of(view.dtype)) + "[";
  for (int dim = 0; dim < view.num_dims; ++dim)
    text += (dim > 0 ? ", " : "") + std::to_string(view.size(dim));
  return text + "]";
}

}  // namespace ep
