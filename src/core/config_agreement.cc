// SPDX-License-Identifier: Apache-2.0
// Compares configurations over the bootstrap.
#include "core/config_agreement.h"

#include "base/check.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ep::core {
namespace {

using Field = std::pair<const char*, std::int64_t>;

constexpr std::chrono::milliseconds kDefaultTimeout{10'000};

/// Fields that must be equal, in a fixed order. The first one says whether the rank accepts its own
/// configuration.
std::vector<Field> fields_of(const Result<ResolvedConfig>& local) {
  const GroupConfig config = local.ok() ? local->config : GroupConfig{};
  return {
      {"validity", local.ok() ? 1 : 0},
      {"backend", static_cast<std::int64_t>(config.backend)},
      {"max_tokens", config.max_tokens},
      {"max_hidden_bytes", config.max_hidden_bytes},
      {"max_topk", config.max_topk},
      {"max_experts", config.max_experts},
      {"experts (fingerprint)", config.experts.fingerprint()},
      {"ring_slots", config.ring_slots.value_or(0)},
      {"lsa_size", config.lsa_size.value_or(0)},
      {"net.num_slots", config.net.num_slots},
      {"net.is_unordered", config.net.is_unordered ? 1 : 0},
      {"presence of net.chaos_seed", config.net.chaos_seed ? 1 : 0},
      {"timeout (ms)", local.ok() ? local->timeout.count() : 0},
      {"first_epoch", static_cast<std::int64_t>(config.first_epoch)},
  };
}

std::vector<std::int64_t> values_of(std::span<const std::byte> bytes) {
  std::vector<std::int64_t> values(bytes.size() / sizeof(std::int64_t));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(std::int64_t));
  return values;
}

Status compare(const std::vector<Field>& fields, const std::vector<Bootstrap::Bytes>& all) {
  const std::vector<std::int64_t> first = values_of(all[0]);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<std::int64_t> other = values_of(all[rank]);
    if (other.size() != fields.size()) {
      return Status(Errc::kInvalidArgument,
                    "group: rank " + std::to_string(rank) + " runs another version of the library");
    }
    if (other[0] == 0) {
      return Status(Errc::kInvalidArgument,
                    "group: rank " + std::to_string(rank) + " refused its configuration")
          .set_peer(static_cast<int>(rank));
    }
  }
  for (std::size_t field = 0; field < fields.size(); ++field) {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const std::int64_t value = values_of(all[rank])[field];
      if (value == first[field]) continue;
      return Status(Errc::kInvalidArgument,
                    std::string("group: ") + fields[field].first + " differs: rank 0 has " +
                        std::to_string(first[field]) + ", rank " + std::to_string(rank) + " has " +
                        std::to_string(value));
    }
  }
  return Status();
}

}  // namespace

Status agree_on_config(Bootstrap& bootstrap, const Result<ResolvedConfig>& local) {
  const std::vector<Field> fields = fields_of(local);
  std::vector<std::int64_t> values;
  std::transform(fields.begin(), fields.end(), std::back_inserter(values),
                 [](const Field& f) { return f.second; });
  const std::chrono::milliseconds timeout = local.ok() ? local->timeout : kDefaultTimeout;
  EP_TRY_ASSIGN(const std::vector<Bootstrap::Bytes> all,
                bootstrap.all_gather(std::as_bytes(std::span(values)), timeout));
  return local.ok() ? compare(fields, all) : local.status();
}

Status agree_on_outcome(Bootstrap& bootstrap,
                        const Status& local,
                        const char* step,
                        std::chrono::milliseconds timeout) {
  const std::byte is_ok{static_cast<unsigned char>(local.ok() ? 1 : 0)};
  const Result<std::vector<Bootstrap::Bytes>> all = bootstrap.all_gather({&is_ok, 1}, timeout);
  EP_TRY(local);
  EP_TRY(all);
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    if ((*all)[rank] == Bootstrap::Bytes{std::byte{1}}) continue;
    return Status(Errc::kFabric, "group: rank " + std::to_string(rank) + " could not " + step)
        .set_peer(static_cast<int>(rank));
  }
  return Status();
}

}  // namespace ep::core
