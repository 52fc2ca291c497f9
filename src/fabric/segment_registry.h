// SPDX-License-Identifier: Apache-2.0
// The mappings of this process that ranks of the same process may share.
#pragma once

#include "fabric/mapping.h"

#include <array>
#include <cstddef>
#include <memory>

namespace ep::fabric {

/// Random per arena; known to its peers only.
using ArenaToken = std::array<std::byte, 16>;

/// What a message names is looked up here: no pointer ever travels through a socket. Any thread.
void register_segment(const ArenaToken& arena,
                      int segment,
                      const std::shared_ptr<Mapping>& mapping);
/// nullptr if unknown.
std::shared_ptr<Mapping> find_segment(const ArenaToken& arena, int segment);
/// Forgets all segments of the arena.
void unregister_arena(const ArenaToken& arena);

}  // namespace ep::fabric
