// SPDX-License-Identifier: Apache-2.0
// Element types of the tensors that `ep` moves and reduces.
#pragma once

#include <cstdint>

namespace ep {

/// Rows of kBf16, kFp16 and kFp32 can be reduced (combine); the 8-bit types are moved as bytes,
/// with block scales.
enum class DType : std::uint8_t {
  kBf16,
  kFp16,
  kFp32,
  kFp8E4M3,
  kFp8E5M2,
  kInt8,
  kUInt8,  ///< bytes without arithmetic: E8M0 scales, packed fp4
  kInt32,
  kInt64,
};

/// Bytes of one element.
constexpr int size_of(DType dtype) {
  switch (dtype) {
    case DType::kInt64:
      return 8;
    case DType::kFp32:
    case DType::kInt32:
      return 4;
    case DType::kBf16:
    case DType::kFp16:
      return 2;
    case DType::kFp8E4M3:
    case DType::kFp8E5M2:
    case DType::kInt8:
    case DType::kUInt8:
      return 1;
  }
  return 0;
}

/// True for the types that combine can reduce.
constexpr bool is_reducible(DType dtype) {
  return dtype == DType::kBf16 || dtype == DType::kFp16 || dtype == DType::kFp32;
}

/// "bf16", "fp8_e4m3", ...: the spelling of messages and of JSON.
constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return "bf16";
    case DType::kFp16:
      return "fp16";
    case DType::kFp32:
      return "fp32";
    case DType::kFp8E4M3:
      return "fp8_e4m3";
    case DType::kFp8E5M2:
      return "fp8_e5m2";
    case DType::kInt8:
      return "int8";
    case DType::kUInt8:
      return "uint8";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
  }
  return "?";
}

}  // namespace ep
