// SPDX-License-Identifier: Apache-2.0
// The mappings of this process that ranks of the same process may share.
#include "fabric/segment_registry.h"

#include <map>
#include <mutex>
#include <utility>

namespace ep::fabric {
namespace {

using Key = std::pair<ArenaToken, int>;

struct Registry {
  std::mutex mutex;
  /// Weak: the owner decides how long its memory lives.
  std::map<Key, std::weak_ptr<Mapping>> segments;
};

/// Never destroyed: an arena that outlives main() still finds it.
Registry& registry() {
  static Registry* const kInstance = new Registry;
  return *kInstance;
}

}  // namespace

void register_segment(const ArenaToken& arena,
                      int segment,
                      const std::shared_ptr<Mapping>& mapping) {
  const std::lock_guard lock(registry().mutex);
  registry().segments[Key(arena, segment)] = mapping;
}

std::shared_ptr<Mapping> find_segment(const ArenaToken& arena, int segment) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().segments.find(Key(arena, segment));
  return found == registry().segments.end() ? nullptr : found->second.lock();
}

void unregister_arena(const ArenaToken& arena) {
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().segments,
                [&arena](const auto& entry) { return entry.first.first == arena; });
}

}  // namespace ep::fabric
