// SPDX-License-Identifier: Apache-2.0
// What every rank tells every peer at the start of an operation.
#pragma once

#include "base/macros.h"
#include "layout/regions.h"

#include <cstdint>

namespace ep::layout {

enum class OpKind : std::uint32_t {
  kDispatch = 1,
  kDispatchCached,
  kCombine,
  kDispatchBackward,
  kCombineBackward,
};

/// Fields of an operation. All but kNumTokens must be equal on all ranks; the resolve step compares
/// them, so that ranks that call different operations, or in another order, end with an error that
/// names the field.
enum class OpField : int {
  kKind,
  kLayout,
  kDType,
  kRowBytes,
  kScaleBytes,
  kTopk,
  kNumExperts,
  kMapFingerprint,
  kAlignment,
  kHasWeights,
  kIdxBytes,
  kWay,
  kNumAgreed,
  kNumTokens = kNumAgreed,
  kCount,
};

inline constexpr int kNumAgreedFields = static_cast<int>(OpField::kNumAgreed);
inline constexpr int kNumOpFields = static_cast<int>(OpField::kCount);

/// Value part of a head word. Any other value is a `Rejection`.
inline constexpr std::uint32_t kAccepted = 0;

/// Written last, with a release, is `head` (tag | status); the rest is plain.
struct alignas(kLineBytes) OpAnnouncement {
  std::uint64_t head = 0;
  std::uint32_t fields[kNumOpFields] = {};

  EP_HOST_DEVICE constexpr std::uint32_t& operator[](OpField field) {
    return fields[static_cast<int>(field)];
  }
  EP_HOST_DEVICE constexpr std::uint32_t operator[](OpField field) const {
    return fields[static_cast<int>(field)];
  }
};
static_assert(sizeof(OpAnnouncement) == kLineBytes);

/// A place in a rank's arena. Offsets count units of 16 bytes in 32 bits.
inline constexpr std::int64_t kLocationUnit = 16;
/// Segments that one rank may have; ids are never reused.
inline constexpr std::int64_t kMaxSegments = 256;
inline constexpr std::int64_t kMaxSegmentBytes = kLocationUnit << 32;
struct Location {
  std::uint32_t segment = 0;
  std::uint32_t offset_units = 0;
};

/// The blocks that peers write (dispatch) or read (combine). A rank announces only those of its
/// operation.
enum class Section : int {
  kRows,         ///< received rows, or the experts' rows of a combine
  kScales,       ///< received scales
  kTopkIdx,      ///< kFlat: received local expert ids
  kTopkWeights,  ///< received weights; of a weighted push combine: the source's weights [T, K]
  kSrcTokens,    ///< token index of each received (token, rank) pair
  kRecordRows,   ///< kExpertMajor: final row of each k of each pair, -1 where not here or dropped
  kSideValues,   ///< fp32: gradient of received weights (read), or the router's gradient (written)
  kCount,
};
inline constexpr int kNumSections = static_cast<int>(Section::kCount);

/// As OpAnnouncement: `head` is written last, with a release.
struct alignas(kLineBytes) BlockAnnouncement {
  std::uint64_t head = 0;
  std::uint32_t capacity_rows =
      0;  ///< dispatch: rows that fit; a row whose final index is not below it is dropped
  std::uint32_t row_stride_units = 0;  ///< combine: distance of two rows in units of 16 bytes
  std::uint32_t is_staged = 0;  ///< combine: rows are not in the arena and travel through the ring
  std::uint32_t reserved = 0;
  Location sections[kNumSections] = {};

  EP_HOST_DEVICE constexpr Location& operator[](Section section) {
    return sections[static_cast<int>(section)];
  }
  EP_HOST_DEVICE constexpr Location operator[](Section section) const {
    return sections[static_cast<int>(section)];
  }
};
static_assert(sizeof(BlockAnnouncement) == kLineBytes);

}  // namespace ep::layout
