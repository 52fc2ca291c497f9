// SPDX-License-Identifier: Apache-2.0
// Expert maps where the roles of an engine can read them.
#pragma once

#include "core/engine.h"
#include "fabric/pool.h"

#include <ep/expert_map.h>
#include <ep/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ep::core {

/// Immutable. Keeps its memory, and the map that an upload reads.
class ExpertTables {
 public:
  /// In place.
  static std::shared_ptr<const ExpertTables> of_host(const ExpertMap& map);
  static std::int64_t bytes_of(const ExpertMap& map);
  /// Into a block of at least bytes_of(map), ordered on the stream.
  static Result<std::shared_ptr<const ExpertTables>> upload(const ExpertMap& map,
                                                            std::shared_ptr<fabric::Block> block,
                                                            Engine& engine,
                                                            Stream stream);

  const ExpertMap& map() const { return map_; }
  const std::int32_t* rank_of() const { return rank_of_; }    ///< [E]
  const std::int32_t* local_of() const { return local_of_; }  ///< [E]

 private:
  explicit ExpertTables(const ExpertMap& map) : map_(map) {}

  ExpertMap map_;
  const std::int32_t* rank_of_ = nullptr;
  const std::int32_t* local_of_ = nullptr;
  std::shared_ptr<fabric::Block> block_;
};

/// The tables used last, so that a map is uploaded once. Handles keep theirs beyond it.
class ExpertTableCache {
 public:
  /// Null if the map is not here.
  std::shared_ptr<const ExpertTables> find(const ExpertMap& map) const;
  void insert(std::shared_ptr<const ExpertTables> tables);

 private:
  static constexpr std::size_t kMaxTables = 8;

  /// Oldest first.
  std::vector<std::shared_ptr<const ExpertTables>> tables_;
};

}  // namespace ep::core
