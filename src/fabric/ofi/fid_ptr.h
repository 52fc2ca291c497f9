// SPDX-License-Identifier: Apache-2.0
// Move-only owner of an object of libfabric.
#pragma once

#include "base/log.h"

#include <rdma/fabric.h>

#include <memory>
#include <string>

namespace ep::fabric {

struct CloseFid {
  /// A failure means that something below it was closed too late: it is logged, and the object
  /// stays.
  template <class Object>
  void operator()(Object* object) const {
    const int result = fi_close(&object->fid);
    if (result != 0) {
      base::log(LogLevel::kError, "ofi: closing an object of class " +
                                      std::to_string(object->fid.fclass) + " failed with " +
                                      std::to_string(result));
    }
  }
};

template <class Object>
using FidPtr = std::unique_ptr<Object, CloseFid>;

}  // namespace ep::fabric
