// SPDX-License-Identifier: Apache-2.0
// Visibility of the public symbols: everything else in the library is hidden.
#pragma once

#define EP_API __attribute__((visibility("default")))
