// SPDX-License-Identifier: Apache-2.0
// The transport around the contexts: windows and their sizes, checks, counts.
#include "fabric/chaos/chaos.h"

#include "base/byte_io.h"
#include "base/check.h"
#include "fabric/chaos/chaos_context.h"
#include "fabric/chaos/peer_faults.h"

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

namespace ep::fabric {
namespace {

/// What is made anew when the calm ends.
struct Life {
  Life(Transport& inner, const ChaosConfig& with)
      : config(with),
        faults(config.faults, inner.num_ranks()),
        shared{.inner = inner,
               .config = config,
               .order = inner.traits().order == ArrivalOrder::kOrdered ? config.order
                                                                       : ArrivalOrder::kUnordered,
               .may_tear = inner.traits().order == ArrivalOrder::kOrdered,
               .faults = faults} {
    for (int context = 0; context < inner.traits().num_contexts; ++context) {
      contexts.push_back(std::make_unique<ChaosContext>(shared, context));
    }
  }

  const ChaosConfig config;
  PeerFaults faults;
  ChaosShared shared;
  std::vector<std::unique_ptr<ChaosContext>> contexts;
};

class ChaosTransportOver final : public ChaosTransport {
 public:
  ChaosTransportOver(std::unique_ptr<Transport> inner, const ChaosConfig& config)
      : inner_(std::move(inner)),
        config_(config),
        traits_(inner_->traits()),
        failures_(static_cast<std::size_t>(traits_.num_contexts)),
        peer_window_bytes_(static_cast<std::size_t>(inner_->num_ranks())) {
    traits_.name = "chaos(" + traits_.name + ")";
    if (traits_.order == ArrivalOrder::kOrdered) traits_.order = config_.order;
    const ChaosConfig calm{.order = ArrivalOrder::kOrdered};
    life_ = std::make_unique<Life>(*inner_, config_.is_calm_at_first ? calm : config_);
  }

  void begin() override;

  int rank() const override { return inner_->rank(); }
  int num_ranks() const override { return inner_->num_ranks(); }
  const TransportTraits& traits() const override { return traits_; }

  Result<WindowId> add_window(std::span<std::byte> memory) override;
  std::vector<std::byte> describe_window(WindowId window) const override;
  Status set_peer_window(int peer,
                         WindowId window,
                         std::span<const std::byte> description) override;

  Posted write(const WriteOp& op) override { return post(op.context, ChaosOp::of(op)); }
  Posted read(const ReadOp& op) override { return post(op.context, ChaosOp::of(op)); }
  int poll(int context, std::span<NetEvent> events) override {
    return context_of(context).poll(events);
  }
  void sleep(int context, std::chrono::milliseconds at_most) override;
  Status failure(int context) const override;

  std::uint64_t num_polls(int context) const override {
    return life_->contexts[static_cast<std::size_t>(context)]->num_polls();
  }
  ChaosCounts counts() const override;
  std::string describe() const override;

 private:
  Posted post(int context, const ChaosOp& op);
  Status check_place(const ChaosOp& op) const;
  ChaosContext& context_of(int context) {
    return *life_->contexts[static_cast<std::size_t>(context)];
  }

  std::unique_ptr<Transport> inner_;
  const ChaosConfig config_;
  TransportTraits traits_;
  std::vector<std::span<std::byte>> windows_;
  std::vector<Status> failures_;                              // by context
  std::vector<std::vector<std::int64_t>> peer_window_bytes_;  // by peer and window; -1: not set
  std::unique_ptr<Life> life_;
};

void ChaosTransportOver::begin() {
  for (const auto& context : life_->contexts) {
    EP_CHECK(context->is_idle(), "chaos begins while operations are under way");
  }
  life_ = std::make_unique<Life>(*inner_, config_);
  life_->shared.windows = windows_;
}

Result<WindowId> ChaosTransportOver::add_window(std::span<std::byte> memory) {
  EP_TRY_ASSIGN(const WindowId window, inner_->add_window(memory));
  EP_CHECK(window == static_cast<WindowId>(windows_.size()));
  windows_.push_back(memory);
  life_->shared.windows = windows_;
  return window;
}

std::vector<std::byte> ChaosTransportOver::describe_window(WindowId window) const {
  base::ByteWriter writer;
  writer.put(static_cast<std::int64_t>(windows_[static_cast<std::size_t>(window)].size()));
  writer.put_bytes(inner_->describe_window(window));
  return writer.take();
}

Status ChaosTransportOver::set_peer_window(int peer,
                                           WindowId window,
                                           std::span<const std::byte> description) {
  base::ByteReader reader(description);
  const std::int64_t bytes = reader.get<std::int64_t>();
  if (reader.has_failed() || bytes < 0) {
    return Status(Errc::kFabric, "chaos: window description of " +
                                     std::to_string(description.size()) + " bytes from rank " +
                                     std::to_string(peer) + ", which has no size")
        .set_peer(peer);
  }
  EP_TRY(inner_->set_peer_window(peer, window, reader.get_bytes(reader.num_left())));
  auto& sizes = peer_window_bytes_[static_cast<std::size_t>(peer)];
  if (sizes.size() <= static_cast<std::size_t>(window)) {
    sizes.resize(static_cast<std::size_t>(window) + 1, -1);
  }
  sizes[static_cast<std::size_t>(window)] = bytes;
  return Status();
}

Status outside(std::string_view whose, const WindowPlace& place, std::int64_t bytes) {
  return Status(Errc::kInvalidArgument, "chaos: " + std::to_string(bytes) + " bytes at " +
                                            std::to_string(place.offset) + " are not in window " +
                                            std::to_string(place.window) + " of " +
                                            std::string(whose));
}

bool is_inside(std::int64_t window_bytes, const WindowPlace& place, std::int64_t bytes) {
  return bytes >= 0 && place.offset >= 0 && place.offset <= window_bytes &&
         bytes <= window_bytes - place.offset;
}

/// The inner transport would find it, too, but only when the operation is released.
Status ChaosTransportOver::check_place(const ChaosOp& op) const {
  if (op.peer < 0 || op.peer >= num_ranks()) {
    return Status(Errc::kInvalidArgument,
                  "chaos: rank " + std::to_string(op.peer) + " of " + std::to_string(num_ranks()));
  }
  const auto local = static_cast<std::size_t>(op.local.window);
  if (local >= windows_.size() ||
      !is_inside(static_cast<std::int64_t>(windows_[local].size()), op.local, op.bytes)) {
    return outside("this rank", op.local, op.bytes);
  }
  const auto& sizes = peer_window_bytes_[static_cast<std::size_t>(op.peer)];
  const auto remote = static_cast<std::size_t>(op.remote.window);
  if (remote >= sizes.size() || !is_inside(sizes[remote], op.remote, op.bytes)) {
    return outside("rank " + std::to_string(op.peer), op.remote, op.bytes);
  }
  return Status();
}

Posted ChaosTransportOver::post(int context, const ChaosOp& op) {
  if (Status status = check_place(op); !status.ok()) {
    failures_[static_cast<std::size_t>(context)] = std::move(status);
    return Posted::kFailed;
  }
  return context_of(context).post(op);
}

void ChaosTransportOver::sleep(int context, std::chrono::milliseconds at_most) {
  if (context_of(context).is_holding()) {
    std::this_thread::yield();  // only further polls bring what is held
  } else {
    inner_->sleep(context, at_most);
  }
}

Status ChaosTransportOver::failure(int context) const {
  return failures_[static_cast<std::size_t>(context)];
}

ChaosCounts ChaosTransportOver::counts() const {
  ChaosCounts sum;
  for (const auto& context : life_->contexts) sum += context->counts();
  return sum;
}

std::string ChaosTransportOver::describe() const {
  const bool is_ordered = traits_.order == ArrivalOrder::kOrdered;
  return "chaos seed " + std::to_string(config_.seed) + ", rank " + std::to_string(rank()) + ", " +
         (is_ordered ? "ordered" : "unordered") + (life_->shared.may_tear ? "" : ", cannot tear") +
         ": " + counts().to_string();
}

Status check_permille(std::string_view what, int permille) {
  if (permille >= 0 && permille <= 1000) return Status();
  return Status(Errc::kInvalidArgument, "chaos: " + std::string(what) + " " +
                                            std::to_string(permille) +
                                            " permille, expected 0 to 1000");
}

Status check_pause(std::string_view what, const ChaosPause& pause) {
  EP_TRY(check_permille(what, pause.permille));
  if (pause.max_polls >= 0) return Status();
  return Status(Errc::kInvalidArgument, "chaos: " + std::string(what) + " of " +
                                            std::to_string(pause.max_polls) + " polls");
}

Status check_config(const ChaosConfig& config, int num_ranks) {
  EP_TRY(check_pause("delay", config.delay));
  EP_TRY(check_pause("big", config.big));
  EP_TRY(check_pause("stall", config.stall));
  EP_TRY(check_pause("context_stall", config.context_stall));
  EP_TRY(check_pause("late_arrival", config.late_arrival));
  EP_TRY(check_pause("late_completion", config.late_completion));
  EP_TRY(check_permille("tear", config.tear.permille));
  EP_TRY(check_permille("busy", config.busy.permille));
  EP_TRY(check_permille("duplicate_source_free", config.duplicate_source_free_permille));
  EP_TRY(check_permille("duplicate_arrival", config.duplicate_arrival_permille));
  if (config.window_ops < 1) {
    return Status(Errc::kInvalidArgument, "chaos: window of " + std::to_string(config.window_ops) +
                                              " operations, expected at least 1");
  }
  for (const ChaosFault& fault : config.faults) {
    if (fault.peer >= 0 && fault.peer < num_ranks) continue;
    return Status(Errc::kInvalidArgument, "chaos: fault of rank " + std::to_string(fault.peer) +
                                              " of " + std::to_string(num_ranks));
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<ChaosTransport>> make_chaos_transport(std::unique_ptr<Transport> inner,
                                                             const ChaosConfig& config) {
  EP_TRY(check_config(config, inner->num_ranks()));
  return std::unique_ptr<ChaosTransport>(
      std::make_unique<ChaosTransportOver>(std::move(inner), config));
}

}  // namespace ep::fabric
