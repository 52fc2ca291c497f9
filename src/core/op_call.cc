// SPDX-License-Identifier: Apache-2.0
// Around a launch.
#include "core/op_call.h"

#include "base/check.h"
#include "core/fault_status.h"
#include "intranode/host.h"

#include <string>

namespace ep::core {
namespace {

// A first-level cache's worth: rows of smaller operations are read from the cache by the peer
// (bench/README.md).
constexpr std::int64_t kCachedBytes = 512 << 10;

}  // namespace

bool streams_rows(std::int64_t num_bytes) { return num_bytes > kCachedBytes; }

OpCall::OpCall(GroupState& state, layout::OpKind kind)
    : state_(state), kind_(kind), epoch_(state.epoch() + 1) {
  announcement_[layout::OpField::kKind] = static_cast<std::uint32_t>(kind);
}

void OpCall::announce_routing(const Routing& routing) {
  const Routing::Spec& spec = routing.spec();
  announcement_[layout::OpField::kLayout] = static_cast<std::uint32_t>(spec.layout);
  announcement_[layout::OpField::kTopk] = static_cast<std::uint32_t>(spec.topk);
  announcement_[layout::OpField::kNumExperts] =
      static_cast<std::uint32_t>(spec.experts.num_experts());
  announcement_[layout::OpField::kMapFingerprint] = spec.experts.fingerprint();
  announcement_[layout::OpField::kAlignment] = static_cast<std::uint32_t>(spec.alignment);
  announcement_[layout::OpField::kIdxBytes] = static_cast<std::uint32_t>(size_of(spec.idx_dtype));
  announcement_[layout::OpField::kNumTokens] = static_cast<std::uint32_t>(spec.num_tokens);
}

primitives::OpParams OpCall::params(bool streams_rows) const {
  primitives::OpParams params = state_.op_params();
  params.announcement = announcement_;
  params.streams_rows = streams_rows;
  return params;
}

Status OpCall::refuse(const Refusal& refusal) const {
  intranode::DispatchParams params;
  params.op = this->params(false);
  params.op.rejection = static_cast<std::uint32_t>(refusal.reason);
  params.has_moves = false;
  intranode::launch_dispatch(state_.launcher(), params, 1);
  EP_TRY(state_.first_failure());
  const std::string where = std::string(name_of(kind_)) + ", epoch " + std::to_string(epoch_) +
                            ", rank " + std::to_string(state_.rank()) + ": ";
  return Status(refusal.status.code(), where + refusal.status.message())
      .set_peer(refusal.status.peer());
}

Status OpCall::conclude() const {
  EP_TRY(state_.first_failure());
  const auto verdict = static_cast<intranode::Verdict>(state_.local().verdict.value);
  if (verdict == intranode::Verdict::kAccepted) return Status();
  return rejection_status(state_, kind_, epoch_);
}

}  // namespace ep::core
