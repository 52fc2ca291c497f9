// SPDX-License-Identifier: Apache-2.0
// What callers ask of the engine: checks, then the context.
#include "fabric/net/net_engine.h"

#include "fabric/net/net_context.h"
#include "fabric/net/net_service.h"
#include "fabric/net/net_shared.h"
#include "primitives/relax.h"

#include <utility>

namespace ep::fabric {
namespace {

/// Calls of progress between two looks at all contexts.
constexpr std::uint32_t kCallsPerRound = 16;
/// Peers that a message about a flush describes.
constexpr int kMaxDescribed = 4;

/// Holds a context while it lives, if nobody else does.
class Hold {
 public:
  explicit Hold(NetContext& context) : context_(context), has_it_(context.try_lock()) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    if (has_it_) context_.unlock();
  }
  explicit operator bool() const { return has_it_; }

 private:
  NetContext& context_;
  const bool has_it_;
};

/// Waits for it.
class SureHold {
 public:
  explicit SureHold(NetContext& context) : context_(context) { context_.lock(); }
  SureHold(const SureHold&) = delete;
  SureHold& operator=(const SureHold&) = delete;
  ~SureHold() { context_.unlock(); }

 private:
  NetContext& context_;
};

WindowPlace on_transport(const WindowPlace& place) {
  return {.window = place.window + kScratchWindow + 1, .offset = place.offset};
}

std::string text_of(const WindowPlace& place, std::int64_t bytes) {
  return std::to_string(bytes) + " bytes at window " + std::to_string(place.window) + " + " +
         std::to_string(place.offset);
}

}  // namespace

NetEngine::NetEngine(std::unique_ptr<Transport> transport, const NetConfig& config)
    : shared_(std::make_unique<NetShared>(std::move(transport), config)) {
  contexts_.reserve(static_cast<std::size_t>(config.num_contexts));
  for (int i = 0; i < config.num_contexts; ++i) {
    contexts_.push_back(std::make_unique<NetContext>(*shared_, i));
  }
}

NetEngine::~NetEngine() = default;

int NetEngine::rank() const { return shared_->rank(); }
int NetEngine::num_ranks() const { return shared_->num_ranks(); }
int NetEngine::num_contexts() const { return shared_->config.num_contexts; }
ArrivalOrder NetEngine::order() const { return shared_->transport->traits().order; }
const NetConfig& NetEngine::config() const { return shared_->config; }
const TransportTraits& NetEngine::traits() const { return shared_->transport->traits(); }

bool NetEngine::refuse(std::string message) const {
  shared_->peers.fail(Status(Errc::kInvalidArgument, std::move(message)));
  return false;
}

bool NetEngine::check_peer(const char* what, int context, int peer) const {
  if (context < 0 || context >= num_contexts()) {
    return refuse(std::string(what) + " in context " + std::to_string(context) + " of " +
                  std::to_string(num_contexts()));
  }
  if (peer < 0 || peer >= num_ranks() || peer == rank()) {
    return refuse(std::string(what) + " of rank " + std::to_string(rank()) + " to rank " +
                  std::to_string(peer) + " of " + std::to_string(num_ranks()));
  }
  return true;
}

bool NetEngine::check_signal(const primitives::NetSignal& signal) const {
  if (signal.strength == primitives::SignalStrength::kNone || shared_->is_slot(signal.slot)) {
    return true;
  }
  return refuse("signal " + std::to_string(signal.slot) + " of " +
                std::to_string(config().num_signals));
}

bool NetEngine::try_put(int context, const Put& put) {
  if (put.bytes == 0) return try_signal(context, put.peer, put.signal);
  if (!check_peer("put", context, put.peer) || !check_signal(put.signal)) return false;
  if (!shared_->contains(rank(), put.src, put.bytes) ||
      !shared_->contains(put.peer, put.dst, put.bytes)) {
    return refuse("put of " + text_of(put.src, put.bytes) + " to " + text_of(put.dst, put.bytes) +
                  " of rank " + std::to_string(put.peer) + " is outside of them");
  }
  NetContext& target = context_at(context);
  const Hold hold(target);
  return hold && target.enqueue(put.peer, {.form = target.form_of(put.signal, put.bytes),
                                           .slot = put.signal.slot,
                                           .dst = on_transport(put.dst),
                                           .src = on_transport(put.src),
                                           .bytes = put.bytes,
                                           .add = put.signal.add});
}

bool NetEngine::try_put_value(int context,
                              int peer,
                              const WindowPlace& dst,
                              std::uint64_t value,
                              const primitives::NetSignal& signal) {
  constexpr std::int64_t kBytes = sizeof(value);
  if (!check_peer("put of a value", context, peer) || !check_signal(signal)) return false;
  if (!shared_->contains(peer, dst, kBytes)) {
    return refuse("put of a value to " + text_of(dst, kBytes) + " of rank " + std::to_string(peer) +
                  " is outside of it");
  }
  NetContext& target = context_at(context);
  const Hold hold(target);
  return hold && target.enqueue(peer,
                                {.form = target.form_of(signal, kBytes),
                                 .slot = signal.slot,
                                 .dst = on_transport(dst),
                                 .bytes = kBytes,
                                 .add = signal.add},
                                value);
}

bool NetEngine::try_signal(int context, int peer, const primitives::NetSignal& signal) {
  if (!check_peer("signal", context, peer) || !check_signal(signal)) return false;
  NetContext& target = context_at(context);
  const SignalForm form = target.form_of(signal, 0);
  if (form == SignalForm::kNone) return true;
  const Hold hold(target);
  return hold && target.enqueue(peer, {.form = form,
                                       .slot = signal.slot,
                                       .dst = {.window = kScratchWindow},
                                       .src = {.window = kScratchWindow},
                                       .add = signal.add});
}

bool NetEngine::try_get(int context, const Get& get) {
  if (!check_peer("get", context, get.peer)) return false;
  if (static_cast<std::int64_t>(get.counter) >= config().num_counters) {
    return refuse("counter " + std::to_string(get.counter) + " of " +
                  std::to_string(config().num_counters));
  }
  if (!shared_->contains(rank(), get.dst, get.bytes) ||
      !shared_->contains(get.peer, get.src, get.bytes)) {
    return refuse("get of " + text_of(get.src, get.bytes) + " of rank " + std::to_string(get.peer) +
                  " to " + text_of(get.dst, get.bytes) + " is outside of them");
  }
  if (get.bytes == 0) {
    shared_->add_counter(get.counter);
    return true;
  }
  NetContext& target = context_at(context);
  const Hold hold(target);
  return hold && target.enqueue(get.peer, {.kind = OpKind::kGet,
                                           .counter = get.counter,
                                           .dst = on_transport(get.dst),
                                           .src = on_transport(get.src),
                                           .bytes = get.bytes});
}

std::uint64_t NetEngine::signal_value(std::uint32_t slot) const {
  // [sync:net-signal] acquire: what the signals so far speak of.
  return shared_->signals[slot].load(std::memory_order_acquire);
}

std::uint64_t NetEngine::peek_signal(std::uint32_t slot) const {
  return shared_->signals[slot].load(std::memory_order_relaxed);
}

std::uint64_t NetEngine::counter_value(std::uint32_t counter) const {
  // [sync:net-counter] acquire: the bytes of the gets so far.
  return shared_->counters[counter].load(std::memory_order_acquire);
}

bool NetEngine::is_flushed(int context) const { return context_at(context).is_flushed(); }

bool NetEngine::try_start_flush(int context) {
  NetContext& target = context_at(context);
  const Hold hold(target);
  return hold && target.enqueue_flushes();
}

bool NetEngine::is_remote_flushed(int context) {
  NetContext& target = context_at(context);
  const Hold hold(target);
  return hold && target.is_remote_flushed();
}

Status NetEngine::flush(int context, FlushScope scope, base::Deadline deadline) {
  bool has_started = scope == FlushScope::kLocal;
  for (int polls = 1;; ++polls) {
    if (has_failed()) return failure();
    if (!has_started) has_started = try_start_flush(context);
    if (has_started &&
        (scope == FlushScope::kLocal ? is_flushed(context) : is_remote_flushed(context))) {
      return {};
    }
    if (deadline.expired()) break;
    progress(context);
    primitives::relax(polls);
  }
  std::string text = "flush of context " + std::to_string(context) + " is not over";
  const SureHold hold(context_at(context));
  for (int peer = 0, described = 0; peer < num_ranks() && described < kMaxDescribed; ++peer) {
    const std::string line = context_at(context).describe(peer);
    if (line.empty()) continue;
    text += "; rank " + std::to_string(peer) + ": " + line;
    ++described;
  }
  return Status(Errc::kPeerTimeout, std::move(text));
}

int NetEngine::progress(int context) {
  int count = 0;
  if (const Hold hold(context_at(context)); hold)
    count = context_at(context).drive(Driver::kWaiter);
  if (num_contexts() == 1) return count;
  // Relaxed: divides work, orders nothing.
  const std::uint32_t calls = num_calls_.fetch_add(1, std::memory_order_relaxed);
  return calls % kCallsPerRound == 0 ? count + drive_all(Driver::kWaiter) : count;
}

int NetEngine::drive_all(Driver driver) {
  int count = 0;
  for (const auto& context : contexts_) {
    if (const Hold hold(*context); hold) count += context->drive(driver);
  }
  return count;
}

int NetEngine::serve() { return drive_all(Driver::kService); }

void NetEngine::sleep(int context, std::chrono::milliseconds at_most) {
  if (const Hold hold(context_at(context)); hold) shared_->transport->sleep(context, at_most);
}

Status NetEngine::broadcast(std::span<const std::byte> message) {
  if (message.size() > kMaxMessageBytes) {
    return Status(Errc::kInvalidArgument, "a message of " + std::to_string(message.size()) +
                                              " bytes, at most " +
                                              std::to_string(kMaxMessageBytes));
  }
  NetContext& target = context_at(0);
  const SureHold hold(target);
  if (target.broadcast(message)) return {};
  return Status(Errc::kFabric,
                std::to_string(kNumMessageCells) + " earlier messages are under way");
}

bool NetEngine::has_open_messages() {
  const SureHold hold(context_at(0));
  return context_at(0).has_open_messages();
}

void NetEngine::watch(int peer) {
  if (peer != rank()) shared_->peers.watch(peer);
}

void NetEngine::declare_dead(int peer, const Status& reason) { shared_->peers.kill(peer, reason); }
PeerState NetEngine::peer_state(int peer) const { return shared_->peers.state(peer); }
bool NetEngine::has_failed() const { return shared_->peers.has_failed(); }
Status NetEngine::failure() const { return shared_->peers.failure(); }

std::string NetEngine::describe_peer(int peer) {
  constexpr std::int64_t kNsPerMs = 1'000'000;
  const std::int64_t silent_ns = config().clock_ns() - shared_->peers.last_heard_ns(peer);
  std::string text = "rank " + std::to_string(peer) + " is " + name_of(peer_state(peer)) +
                     ", heard " + std::to_string(silent_ns / kNsPerMs) + " ms ago";
  for (const auto& context : contexts_) {
    const SureHold hold(*context);
    const std::string line = context->describe(peer);
    if (!line.empty()) text += "\n  " + line;
  }
  const Status reason = shared_->peers.reason(peer);
  if (!reason.ok()) text += "\n  " + reason.to_string();
  return text;
}

std::string NetEngine::describe_wait(int peer, std::uint32_t slot, std::uint64_t least) {
  return "signal " + std::to_string(slot) + " is " + std::to_string(peek_signal(slot)) +
         ", awaited " + std::to_string(least) + "; " + describe_peer(peer);
}

NetCounters NetEngine::counters(int context, int peer) {
  const SureHold hold(context_at(context));
  return context_at(context).stream(peer).counters;
}

NetCounters NetEngine::total_counters() {
  NetCounters total;
  for (int context = 0; context < num_contexts(); ++context) {
    for (int peer = 0; peer < num_ranks(); ++peer) total += counters(context, peer);
  }
  return total;
}

NetPlan NetEngine::plan(const NetConfig& config, int num_ranks) {
  constexpr std::int64_t kWordBytes = sizeof(std::uint64_t);
  return {.scratch_bytes = ScratchLayout(config, num_ranks).bytes(),
          .stream_bytes = config.num_contexts * NetContext::planned_bytes(config, num_ranks),
          .table_bytes = (config.num_signals + config.num_counters + num_ranks) * kWordBytes +
                         PeerTable::planned_bytes(num_ranks)};
}

NetPlan NetEngine::allocated() const {
  NetPlan sum{.scratch_bytes = shared_->layout.bytes(), .table_bytes = shared_->table_bytes()};
  for (const auto& context : contexts_) sum.stream_bytes += context->memory_bytes();
  return sum;
}

}  // namespace ep::fabric
