// SPDX-License-Identifier: Apache-2.0
// Five small protocols of other libraries, each in its right form and with the mistake that was
// made in the field.
#pragma once

#include "tests/fabric/chaos/duo.h"

#include <cstdint>

namespace ep::test {

enum class Form : std::uint8_t { kRight, kMutant };

/// A growing 64-bit number whose low half travels as immediate. Mutant: a smaller half is taken for
/// a wrap.
Violation run_token(const fabric::ChaosConfig& config, Form form);

/// Additions that wait until a number of puts is here. Mutant: those that wait are kept in a set,
/// where two equal ones are one.
Violation run_parked_updates(const fabric::ChaosConfig& config, Form form);

/// A source that is used again after a local flush. Mutant: the flush is over after 3 polls that
/// brought nothing.
Violation run_quiet(const fabric::ChaosConfig& config, Form form);

/// Messages of several puts. Mutant: the signal is applied when the last one is here.
Violation run_segments(const fabric::ChaosConfig& config, Form form);

/// Rounds with two flags that alternate; some rounds are not waited for. Mutant: the flag has no
/// generation.
Violation run_parity(const fabric::ChaosConfig& config, Form form);

}  // namespace ep::test
