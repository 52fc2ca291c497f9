// SPDX-License-Identifier: Apache-2.0
// The CPU targets that the row kernels are compiled for; comes before any other header of Highway.
#pragma once

// What CPUs newer than the first AVX-512 ones add is of no use here: one build less each. The two
// last bits are HWY_AVX3_ZEN4 and HWY_AVX3_SPR, which Highway 1.0.3 has no names for. SVE vectors
// cannot be members of a Pair; such CPUs run NEON.
#define HWY_DISABLED_TARGETS                                                                \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | (1LL << 6) | \
   (1LL << 4))
