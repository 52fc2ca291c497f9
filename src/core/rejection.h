// SPDX-License-Identifier: Apache-2.0
// The reason a rank gives its peers when it refuses a call: which argument was wrong. Its own error
// has the details.
#pragma once

#include "intranode/protocol_steps.h"

#include <cstdint>

namespace ep::core {

enum class Rejection : std::uint32_t {
  kTopkIdx = intranode::kRejectedTopkIdx,
  kHandle = intranode::kRejectedHandle,
  kX,
  kScales,
  kTopkWeights,
  kCapacity,
  kAlignment,
  kExperts,
  kNumSms,
  kStream,
  kOutputs,
  kRows,
  kBias,
  kGradient,
  kMemory,
};

/// Spelling of the argument in messages.
constexpr const char* name_of(Rejection rejection) {
  switch (rejection) {
    case Rejection::kTopkIdx:
      return "topk_idx";
    case Rejection::kX:
      return "x";
    case Rejection::kScales:
      return "scales";
    case Rejection::kTopkWeights:
      return "topk_weights";
    case Rejection::kHandle:
      return "handle";
    case Rejection::kCapacity:
      return "capacity";
    case Rejection::kAlignment:
      return "alignment";
    case Rejection::kExperts:
      return "experts";
    case Rejection::kNumSms:
      return "num_sms";
    case Rejection::kStream:
      return "stream";
    case Rejection::kOutputs:
      return "output buffers";
    case Rejection::kRows:
      return "rows";
    case Rejection::kBias:
      return "bias";
    case Rejection::kGradient:
      return "gradient";
    case Rejection::kMemory:
      return "memory";
  }
  return "an argument";
}

}  // namespace ep::core
