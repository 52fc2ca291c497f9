// SPDX-License-Identifier: Apache-2.0
// Expert maps where the roles of an engine can read them.
#include "core/expert_tables.h"

#include "base/check.h"
#include "layout/regions.h"

#include <algorithm>
#include <utility>

namespace ep::core {
namespace {

std::int64_t used_bytes(const ExpertMap& map) {
  return map.num_experts() * static_cast<std::int64_t>(sizeof(std::int32_t));
}

std::int64_t table_bytes(const ExpertMap& map) {
  return layout::round_up(used_bytes(map), layout::kLineBytes);
}

bool is_same(const ExpertMap& a, const ExpertMap& b) {
  if (a.expert_to_rank().data() == b.expert_to_rank().data()) return true;  // a copy
  return a.fingerprint() == b.fingerprint() && a.num_ranks() == b.num_ranks() &&
         std::ranges::equal(a.expert_to_rank(), b.expert_to_rank());
}

}  // namespace

std::shared_ptr<const ExpertTables> ExpertTables::of_host(const ExpertMap& map) {
  std::shared_ptr<ExpertTables> tables(new ExpertTables(map));
  tables->rank_of_ = map.expert_to_rank().data();
  tables->local_of_ = map.expert_to_local().data();
  return tables;
}

std::int64_t ExpertTables::bytes_of(const ExpertMap& map) { return 2 * table_bytes(map); }

Result<std::shared_ptr<const ExpertTables>> ExpertTables::upload(
    const ExpertMap& map, std::shared_ptr<fabric::Block> block, Engine& engine, Stream stream) {
  std::shared_ptr<ExpertTables> tables(new ExpertTables(map));
  auto* rank_of = layout::array_at<std::int32_t>(block->data, 0);
  auto* local_of = layout::array_at<std::int32_t>(block->data, table_bytes(map));
  const std::int64_t bytes = used_bytes(map);
  // From the copy of the map in `tables`, which a graph keeps.
  EP_TRY(engine.upload(rank_of, tables->map_.expert_to_rank().data(), bytes, stream));
  EP_TRY(engine.upload(local_of, tables->map_.expert_to_local().data(), bytes, stream));
  tables->rank_of_ = rank_of;
  tables->local_of_ = local_of;
  tables->block_ = std::move(block);
  return std::shared_ptr<const ExpertTables>(std::move(tables));
}

std::shared_ptr<const ExpertTables> ExpertTableCache::find(const ExpertMap& map) const {
  const auto found = std::ranges::find_if(
      tables_, [&](const auto& tables) { return is_same(tables->map(), map); });
  return found == tables_.end() ? nullptr : *found;
}

void ExpertTableCache::insert(std::shared_ptr<const ExpertTables> tables) {
  if (tables_.size() == kMaxTables) tables_.erase(tables_.begin());
  tables_.push_back(std::move(tables));
}

}  // namespace ep::core
