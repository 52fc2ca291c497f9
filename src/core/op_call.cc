// SPDX-License-Identifier: Apache-2.0
// Around a launch.
#include "core/op_call.h"

#include "base/check.h"
#include "core/fault_status.h"

#include <string>

namespace ep::core {
namespace {

// A first-level cache's worth: rows of smaller operations are read from the cache by the peer
// (bench/README.md).
constexpr std::int64_t kCachedBytes = 512 << 10;

}  // namespace

bool streams_rows(std::int64_t num_bytes) { return num_bytes > kCachedBytes; }

OpCall::OpCall(GroupState& state, layout::OpKind kind)
    : state_(state), kind_(kind), number_(state.next_call()) {
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
  params.call = number_;
  return params;
}

std::string OpCall::where() const {
  return std::string(name_of(kind_)) + ", epoch " +
         std::to_string(state_.engine().report().refused_epoch) + ", rank " +
         std::to_string(state_.rank()) + ": ";
}

Status OpCall::refuse(const Refusal& refusal) const {
  Engine& engine = state_.engine();
  if (engine.is_capturing()) {
    return Status(refusal.status.code(),
                  std::string(name_of(kind_)) + ": " + refusal.status.message());
  }
  intranode::DispatchParams params;
  params.op = this->params(false);
  params.op.rejection = static_cast<std::uint32_t>(refusal.reason);
  params.has_moves = false;
  EP_TRY(engine.launch(params, 1, engine.own_stream()));
  EP_TRY(engine.wait(engine.own_stream()));
  EP_TRY(state_.first_failure());
  EP_CHECK(state_.is_refused(number_));
  return Status(refusal.status.code(), where() + refusal.status.message())
      .set_peer(refusal.status.peer());
}

Status OpCall::judge() const {
  EP_TRY(state_.first_failure());
  if (!state_.is_refused(number_)) return Status();
  return rejection_status(state_.engine().report(), state_.rank());
}

Status OpCall::conclude() const { return state_.engine().is_synchronous() ? judge() : Status(); }

Status OpCall::settle(Stream stream) const {
  EP_TRY(state_.engine().wait(stream));
  return judge();
}

}  // namespace ep::core
