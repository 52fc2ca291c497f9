// SPDX-License-Identifier: Apache-2.0
// Messages for faults and refusals.
#include "core/fault_status.h"

#include "base/check.h"
#include "core/rejection.h"
#include "primitives/memory.h"
#include "primitives/relax.h"
#include "primitives/wait.h"

#include <array>
#include <cstdio>
#include <string>

namespace ep::core {
namespace {

using primitives::HostMemory;
using primitives::WaitSite;

const char* site_text(WaitSite site) {
  switch (site) {
    case WaitSite::kCounted:
      return "counting of its own tokens";
    case WaitSite::kTallied:
      return "summing up the rows of its experts";
    case WaitSite::kScanned:
      return "numbering of its own rows";
    case WaitSite::kPrepared:
      return "preparation of its own arrays";
    case WaitSite::kIndexed:
      return "the index of its pairs";
    case WaitSite::kGrouped:
      return "the grouping of its tokens by node";
    case WaitSite::kResolved:
      return "its own resolve stage";
    case WaitSite::kAnnounced:
      return "the call to be announced";
    case WaitSite::kCounts:
      return "the counts of rows";
    case WaitSite::kBlock:
      return "the blocks to be announced";
    case WaitSite::kChunk:
      return "a chunk of rows";
    case WaitSite::kArrived:
      return "the arrival of all rows";
    case WaitSite::kRingReady:
      return "a row in the ring";
    case WaitSite::kRingFreed:
      return "a free row of the ring";
    case WaitSite::kPulled:
      return "its rows to be read";
    case WaitSite::kReturned:
      return "gradients to return";
    case WaitSite::kAlone:
      return "another launch of its own to end";
    case WaitSite::kNetMessage:
      return "the call to be announced over the network";
    case WaitSite::kNetBlock:
      return "the blocks to be announced over the network";
    case WaitSite::kNetRows:
      return "rows over the network";
    case WaitSite::kNetSums:
      return "sums over the network";
    case WaitSite::kNetGradients:
      return "gradients over the network";
    case WaitSite::kNetFreed:
      return "its rows to be read on the other node";
    case WaitSite::kNetRoom:
      return "room in the network";
  }
  return "a word";
}

struct FieldName {
  layout::OpField field;
  const char* name;
};

constexpr std::array<FieldName, layout::kNumAgreedFields> kFieldNames = {{
    {layout::OpField::kKind, "operation"},
    {layout::OpField::kLayout, "layout"},
    {layout::OpField::kDType, "dtype"},
    {layout::OpField::kRowBytes, "bytes per row"},
    {layout::OpField::kScaleBytes, "scale bytes per row"},
    {layout::OpField::kTopk, "top-k"},
    {layout::OpField::kNumExperts, "num_experts"},
    {layout::OpField::kMapFingerprint, "expert map"},
    {layout::OpField::kAlignment, "alignment"},
    {layout::OpField::kHasWeights, "presence of topk_weights"},
    {layout::OpField::kIdxBytes, "bytes per topk_idx"},
    {layout::OpField::kWay, "way of copies or combine"},
}};

std::string value_text(layout::OpField field, std::uint32_t value) {
  if (field == layout::OpField::kKind) return name_of(static_cast<layout::OpKind>(value));
  if (field == layout::OpField::kDType) return ep::name_of(static_cast<DType>(value));
  return std::to_string(value);
}

std::string seconds_text(std::uint64_t ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f s", static_cast<double>(ns) * 1e-9);
  return text.data();
}

const layout::AnnouncedOp* announcements(const GroupState& state, std::uint64_t epoch) {
  const layout::ControlLayout& layout = state.layout();
  return state.control<layout::AnnouncedOp>(layout.ops) +
         std::int64_t{layout::bank_of(epoch)} * state.num_ranks();
}

/// One word of the control region.
template <class Word>
Result<Word> read_word(Engine& engine, const Word* address) {
  Word word{};
  EP_TRY(engine.read(&word, address, sizeof(word)));
  return word;
}

/// ", missing ranks: 2, 3": those whose announcement of the operation is not here.
std::string missing_text(const GroupState& state, std::uint64_t epoch) {
  std::string text;
  for (int rank = 0; rank < state.num_ranks(); ++rank) {
    const auto head = read_word(state.engine(), &announcements(state, epoch)[rank].head);
    if (!head.ok() || layout::tag_in(*head) == layout::tag_of(epoch)) continue;
    text += (text.empty() ? "; ranks that have not called: " : ", ") + std::to_string(rank);
  }
  return text;
}

std::string fault_text(const GroupState& state, const layout::FaultRecord& fault) {
  std::string text = std::string(name_of(static_cast<layout::OpKind>(fault.op))) + ", epoch " +
                     std::to_string(fault.epoch) + ": ";
  if (fault.peer_is_gone != 0) {
    text += "rank " + std::to_string(fault.peer) +
            " is gone (its process ended or it left the group); ";
  }
  text += "rank " + std::to_string(fault.reporter) + " waited " + seconds_text(fault.waited_ns) +
          " for rank " + std::to_string(fault.direct_peer) + " (" +
          site_text(static_cast<WaitSite>(fault.site)) + "): expected " +
          std::to_string(fault.expected) + ", got " + std::to_string(fault.got);
  if (fault.direct_peer != fault.peer)
    text += "; that rank waits for rank " + std::to_string(fault.peer);
  return text + missing_text(state, fault.epoch);
}

std::string overlap_text(const layout::FaultRecord& fault) {
  return std::string(name_of(static_cast<layout::OpKind>(fault.op))) + ", epoch " +
         std::to_string(fault.epoch) + ": rank " + std::to_string(fault.reporter) +
         " started it while " + std::to_string(fault.got) +
         " lanes of another operation of the group were at work there: graph replays, and replays "
         "and calls, of one group must follow one another, for example on one stream";
}

Status record_status(const GroupState& state, const layout::FaultRecord* record) {
  layout::FaultRecord fault;
  EP_TRY(state.engine().read(&fault, record, sizeof(fault)));
  if (static_cast<WaitSite>(fault.site) == WaitSite::kAlone)
    return Status(Errc::kAborted, overlap_text(fault)).set_peer(fault.reporter);
  return Status(Errc::kPeerTimeout, fault_text(state, fault)).set_peer(fault.peer);
}

/// ": [17,3], num_experts = 256": where this rank's topk_idx is wrong; empty if it is not.
std::string place_text(const layout::OpReport& report, int rank) {
  if (report.refuser != rank || report.rejected == 0 || report.topk == 0) return "";
  const std::uint64_t position = ~report.rejected;
  return "[" + std::to_string(position / report.topk) + "," +
         std::to_string(position % report.topk) +
         "], num_experts = " + std::to_string(report.num_experts);
}

}  // namespace

const char* name_of(layout::OpKind kind) {
  switch (kind) {
    case layout::OpKind::kDispatch:
      return "dispatch";
    case layout::OpKind::kDispatchCached:
      return "dispatch_cached";
    case layout::OpKind::kCombine:
      return "combine";
    case layout::OpKind::kDispatchBackward:
      return "dispatch_backward";
    case layout::OpKind::kCombineBackward:
      return "combine_backward";
  }
  return "no operation";
}

Status fault_status(const GroupState& state) {
  Engine& engine = state.engine();
  if (!engine.is_synchronous() && HostMemory::load_relaxed_sys(&engine.report().has_failed) == 0) {
    return Status();
  }
  const auto* fault = state.control<layout::FaultRecord>(state.layout().fault);
  const auto* abort = state.control<layout::Counter>(state.layout().abort);
  // A record is claimed before the abort word is set; whoever writes it needs only a moment, unless
  // it dies in that moment.
  constexpr int kMaxPolls = 4'000;
  constexpr std::uint32_t kComplete = 2;
  for (int polls = 1; polls < kMaxPolls; ++polls) {
    // HostEngine::read acquires the word; a copy by a device comes behind the system-scope release.
    EP_TRY_ASSIGN(const std::uint32_t claimed, read_word(engine, &fault->claimed));
    if (claimed == kComplete) return record_status(state, fault);
    EP_TRY_ASSIGN(const std::uint64_t is_aborted, read_word(engine, &abort->value));
    if (is_aborted == 0) return Status();
    primitives::back_off(polls);
  }
  return Status(Errc::kAborted, "a peer gave up and its report has not arrived");
}

Status rejection_status(const layout::OpReport& report, int rank) {
  const std::string prefix = std::string(name_of(static_cast<layout::OpKind>(report.kind))) +
                             ", epoch " + std::to_string(report.refused_epoch) + ": ";
  if (report.refuser >= 0) {
    const auto reason = static_cast<Rejection>(report.reason);
    return Status(reason == Rejection::kMemory ? Errc::kOutOfMemory : Errc::kInvalidArgument,
                  prefix + "rank " + std::to_string(report.refuser) + " refused its call (" +
                      name_of(reason) + place_text(report, rank) + "); no row was sent")
        .set_peer(report.refuser);
  }
  for (const FieldName& entry : kFieldNames) {
    if (static_cast<int>(entry.field) != report.field) continue;
    return Status(Errc::kInvalidArgument,
                  prefix + entry.name + " differs: rank 0 has " +
                      value_text(entry.field, report.value_of_first) + ", rank " +
                      std::to_string(report.differing_rank) + " has " +
                      value_text(entry.field, report.value_of_differing) + "; no row was sent");
  }
  return Status(Errc::kInternal, prefix + "refused without a reason");
}

}  // namespace ep::core
