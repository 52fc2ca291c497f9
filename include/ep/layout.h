// SPDX-License-Identifier: Apache-2.0
// The forms in which a rank receives rows.
#pragma once

#include <cstdint>

namespace ep {

/// T tokens of this rank, K experts per token, E experts, R ranks, H elements per row, L local
/// experts, N received rows. N is a static capacity if the caller gives one, else the exact number.
enum class Layout : std::uint8_t {
  kFlat,         ///< [N, H], one row per (token, rank), ordered by source rank, then token
  kExpertMajor,  ///< [N, H], one row per (token, expert), grouped by local expert, each group
                 ///< padded to `alignment`
};

}  // namespace ep
