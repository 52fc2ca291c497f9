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

/// What one rank calls.
struct OpAnnouncement {
  std::uint32_t fields[kNumOpFields] = {};

  EP_HOST_DEVICE constexpr std::uint32_t& operator[](OpField field) {
    return fields[static_cast<int>(field)];
  }
  EP_HOST_DEVICE constexpr std::uint32_t operator[](OpField field) const {
    return fields[static_cast<int>(field)];
  }
};

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

/// Fields of a block ahead of its sections, which take two each.
enum class BlockField : int {
  kCapacityRows,    ///< dispatch: rows that fit; a row whose final index is not below it is dropped
  kRowStrideUnits,  ///< combine: distance of two rows in units of 16 bytes
  kIsStaged,        ///< combine: rows are not in the arena and travel through the ring
  kSections,
};
inline constexpr int kNumBlockFields = static_cast<int>(BlockField::kSections) + 2 * kNumSections;

/// The first of a section's two fields, Location::segment; the other is its offset.
EP_HOST_DEVICE constexpr int first_field_of(Section section) {
  return static_cast<int>(BlockField::kSections) + 2 * static_cast<int>(section);
}

/// Where one rank's blocks lie.
struct BlockAnnouncement {
  std::uint32_t fields[kNumBlockFields] = {};

  EP_HOST_DEVICE constexpr std::uint32_t& operator[](BlockField field) {
    return fields[static_cast<int>(field)];
  }
  EP_HOST_DEVICE constexpr std::uint32_t operator[](BlockField field) const {
    return fields[static_cast<int>(field)];
  }
  EP_HOST_DEVICE constexpr Location operator[](Section section) const {
    return {fields[first_field_of(section)], fields[first_field_of(section) + 1]};
  }
  EP_HOST_DEVICE constexpr void place(Section section, Location location) {
    fields[first_field_of(section)] = location.segment;
    fields[first_field_of(section) + 1] = location.offset_units;
  }
};

/// An announcement as it lies in the window: each word says by its tag that it is there. `head`
/// (tag | status) is a release of what the sender did before the operation; the fields (tag |
/// value) are relaxed, in no order.
template <class Announcement>
struct alignas(kLineBytes) Announced {
  static constexpr int kNumFields = static_cast<int>(sizeof(Announcement) / sizeof(std::uint32_t));

  std::uint64_t head = 0;
  std::uint64_t fields[kNumFields] = {};
};
using AnnouncedOp = Announced<OpAnnouncement>;
using AnnouncedBlock = Announced<BlockAnnouncement>;
static_assert(sizeof(AnnouncedOp) == kLineBytes && sizeof(AnnouncedBlock) == 2 * kLineBytes);

}  // namespace ep::layout
