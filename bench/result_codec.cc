// SPDX-License-Identifier: Apache-2.0
// The results of a rank as CBOR, for the way over the bootstrap.
#include "base/check.h"
#include "bench/measure.h"

#include <nlohmann/json.hpp>

#include <cstring>
#include <string>
#include <utility>

namespace ep::bench {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Timings,
                                   dispatch,
                                   combine,
                                   layer,
                                   dispatch_host,
                                   combine_host,
                                   copy_in_rows,
                                   copy_in_whole,
                                   copy_out_rows,
                                   copy_out_whole)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RowCheck, checked, wrong, first_wrong)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PutCounts, bytes, puts, signals)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankResult,
                                   timings,
                                   received,
                                   output,
                                   received_hash,
                                   output_hash,
                                   num_tokens,
                                   num_received,
                                   expert_counts,
                                   rows_per_step,
                                   crossing_per_step,
                                   wire_per_step,
                                   dispatch_sms,
                                   combine_sms,
                                   arena_bytes,
                                   net_provider,
                                   dispatch_puts,
                                   combine_puts)

std::vector<std::byte> encode_result(const RankResult& result) {
  const std::vector<std::uint8_t> cbor = nlohmann::json::to_cbor(nlohmann::json(result));
  std::vector<std::byte> bytes(cbor.size());
  std::memcpy(bytes.data(), cbor.data(), cbor.size());
  return bytes;
}

Result<RankResult> decode_result(std::span<const std::byte> bytes) {
  try {
    std::vector<std::uint8_t> cbor(bytes.size());
    if (!bytes.empty()) std::memcpy(cbor.data(), bytes.data(), bytes.size());
    return nlohmann::json::from_cbor(cbor).get<RankResult>();
  } catch (const nlohmann::json::exception& error) {
    return Status(Errc::kInternal, std::string("result of a rank: ") + error.what());
  }
}

Result<std::vector<RankResult>> gather_results(const RankResult& mine,
                                               Bootstrap& bootstrap,
                                               std::chrono::milliseconds timeout) {
  EP_TRY_ASSIGN(const auto all, bootstrap.all_gather(encode_result(mine), timeout));
  std::vector<RankResult> results;
  for (const Bootstrap::Bytes& bytes : all) {
    EP_TRY_ASSIGN(RankResult result, decode_result(bytes));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace ep::bench
