// SPDX-License-Identifier: Apache-2.0
// Queues between the ranks of one process.
#include "fabric/net/local_transport.h"

#include "base/byte_io.h"
#include "base/check.h"

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

namespace ep::fabric {
namespace {

constexpr std::uint64_t kDescriptionMagic = 0x776f646e69775045;  // "EPwindow"
/// So that a poll ends though nothing that arrives has an immediate.
constexpr int kMaxDeliveriesPerPoll = 256;

/// A window, by the address that every rank of the process knows.
struct Memory {
  std::byte* base = nullptr;
  std::int64_t bytes = 0;

  bool contains(std::int64_t offset, std::int64_t count) const {
    return offset >= 0 && count >= 0 && offset <= bytes && count <= bytes - offset;
  }
};

struct Delivery {
  int sender = 0;
  bool is_read = false;
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  std::int64_t bytes = 0;
  std::optional<std::uint32_t> immediate{};
  std::uint64_t cookie = 0;
};

/// A context of a rank. `delivering` is held while bytes move, so that nobody's memory goes away
/// meanwhile; `queues` is taken last and never held over anything.
struct Port {
  std::mutex delivering;
  std::mutex queues;
  std::condition_variable has_work;
  bool is_open = true;
  std::deque<Delivery> inbox;
  std::deque<NetEvent> done;
};

class Network {
 public:
  Network(int num_ranks, TransportTraits traits)
      : num_ranks_(num_ranks),
        traits_(std::move(traits)),
        ports_(static_cast<std::size_t>(num_ranks) *
               static_cast<std::size_t>(traits_.num_contexts)) {}

  int num_ranks() const { return num_ranks_; }
  const TransportTraits& traits() const { return traits_; }

  Port& port(int rank, int context) {
    return ports_[static_cast<std::size_t>(rank) * static_cast<std::size_t>(traits_.num_contexts) +
                  static_cast<std::size_t>(context)];
  }

  /// False if the receiver is gone.
  bool send(int receiver, int context, const Delivery& delivery) {
    Port& to = port(receiver, context);
    const std::scoped_lock lock(to.queues);
    if (!to.is_open) return false;
    to.inbox.push_back(delivery);
    to.has_work.notify_one();
    return true;
  }

  void report(int sender, int context, const NetEvent& event) {
    Port& to = port(sender, context);
    const std::scoped_lock lock(to.queues);
    to.done.push_back(event);
    to.has_work.notify_one();
  }

  /// After this nobody touches the rank's memory.
  void close(int rank) {
    for (int context = 0; context < traits_.num_contexts; ++context) {
      for (const Delivery& lost : shut(port(rank, context))) {
        report(lost.sender, context,
               {.kind = NetEvent::Kind::kFailure,
                .peer = rank,
                .cookie = lost.cookie,
                .error = ECONNRESET});
      }
      for (int peer = 0; peer < num_ranks_; ++peer) withdraw(port(peer, context), rank);
    }
  }

 private:
  static std::deque<Delivery> shut(Port& port) {
    const std::scoped_lock lock(port.delivering, port.queues);
    port.is_open = false;
    return std::exchange(port.inbox, {});
  }

  static void withdraw(Port& port, int sender) {
    const std::scoped_lock lock(port.delivering, port.queues);
    std::erase_if(port.inbox, [sender](const Delivery& it) { return it.sender == sender; });
  }

  const int num_ranks_;
  const TransportTraits traits_;
  std::vector<Port> ports_;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<Network> network, int rank)
      : network_(std::move(network)),
        rank_(rank),
        windows_(static_cast<std::size_t>(network_->num_ranks())),
        contexts_(static_cast<std::size_t>(traits().num_contexts)) {}
  ~LocalTransport() override { network_->close(rank_); }

  int rank() const override { return rank_; }
  int num_ranks() const override { return network_->num_ranks(); }
  const TransportTraits& traits() const override { return network_->traits(); }

  Result<WindowId> add_window(std::span<std::byte> memory) override {
    windows_of(rank_).push_back({memory.data(), static_cast<std::int64_t>(memory.size())});
    return static_cast<WindowId>(windows_of(rank_).size() - 1);
  }
  std::vector<std::byte> describe_window(WindowId window) const override;
  Status set_peer_window(int peer,
                         WindowId window,
                         std::span<const std::byte> description) override;

  Posted write(const WriteOp& op) override;
  Posted read(const ReadOp& op) override;
  int poll(int context, std::span<NetEvent> events) override;
  void sleep(int context, std::chrono::milliseconds at_most) override;
  Status failure(int context) const override {
    return contexts_[static_cast<std::size_t>(context)].failure;
  }

 private:
  /// Touched by the thread that has the context.
  struct Context {
    int num_outstanding = 0;
    Status failure{};
  };

  std::vector<Memory>& windows_of(int rank) { return windows_[static_cast<std::size_t>(rank)]; }
  std::byte* locate(int rank, const WindowPlace& place, std::int64_t bytes);
  Posted post(int peer, int context, const Delivery& delivery);
  Posted refuse(int context, std::string message);
  std::size_t take_completions(int context, std::span<NetEvent> events);
  bool deliver_one(int context, std::optional<NetEvent>& arrival);

  const std::shared_ptr<Network> network_;
  const int rank_;
  std::vector<std::vector<Memory>> windows_;
  std::vector<Context> contexts_;
};

std::vector<std::byte> LocalTransport::describe_window(WindowId window) const {
  const std::vector<Memory>& mine = windows_[static_cast<std::size_t>(rank_)];
  EP_CHECK(window >= 0 && static_cast<std::size_t>(window) < mine.size());
  const Memory& memory = mine[static_cast<std::size_t>(window)];
  base::ByteWriter writer;
  writer.put(kDescriptionMagic)
      .put(static_cast<std::uint32_t>(rank_))
      .put(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory.base)))
      .put(memory.bytes);
  return writer.take();
}

Status LocalTransport::set_peer_window(int peer,
                                       WindowId window,
                                       std::span<const std::byte> description) {
  base::ByteReader reader(description);
  const auto magic = reader.get<std::uint64_t>();
  const auto rank = reader.get<std::uint32_t>();
  const auto address = reader.get<std::uint64_t>();
  const auto bytes = reader.get<std::int64_t>();
  if (!reader.is_complete() || magic != kDescriptionMagic ||
      rank != static_cast<std::uint32_t>(peer) || bytes < 0) {
    Status status(Errc::kFabric, "window " + std::to_string(window) + ": " +
                                     std::to_string(description.size()) + " bytes from rank " +
                                     std::to_string(peer) + " do not describe a local window");
    return status.set_peer(peer);
  }
  if (peer == rank_) return {};
  std::vector<Memory>& theirs = windows_of(peer);
  const auto index = static_cast<std::size_t>(window);
  if (theirs.size() <= index) theirs.resize(index + 1);
  auto* base = reinterpret_cast<std::byte*>(  // NOLINT(performance-no-int-to-ptr)
      static_cast<std::uintptr_t>(address));
  theirs[index] = {base, bytes};
  return {};
}

std::byte* LocalTransport::locate(int rank, const WindowPlace& place, std::int64_t bytes) {
  const std::vector<Memory>& windows = windows_of(rank);
  if (place.window < 0 || static_cast<std::size_t>(place.window) >= windows.size()) return nullptr;
  const Memory& memory = windows[static_cast<std::size_t>(place.window)];
  return memory.contains(place.offset, bytes) ? memory.base + place.offset : nullptr;
}

Posted LocalTransport::refuse(int context, std::string message) {
  contexts_[static_cast<std::size_t>(context)].failure =
      Status(Errc::kInvalidArgument, std::move(message));
  return Posted::kFailed;
}

std::string text_of(const WindowPlace& place) {
  return "window " + std::to_string(place.window) + " + " + std::to_string(place.offset);
}

Posted LocalTransport::post(int peer, int context, const Delivery& delivery) {
  Context& state = contexts_[static_cast<std::size_t>(context)];
  if (state.num_outstanding >= traits().max_outstanding) return Posted::kBusy;
  if (!network_->send(peer, context, delivery)) return Posted::kBusy;
  ++state.num_outstanding;
  return Posted::kYes;
}

Posted LocalTransport::write(const WriteOp& op) {
  const std::byte* src = locate(rank_, op.src, op.bytes);
  std::byte* dst = locate(op.peer, op.dst, op.bytes);
  const bool is_empty = op.bytes == 0 && !op.immediate.has_value();
  if (src == nullptr || dst == nullptr || is_empty || op.bytes > traits().max_write_bytes) {
    return refuse(op.context, "write of " + std::to_string(op.bytes) + " bytes from " +
                                  text_of(op.src) + " to " + text_of(op.dst) + " of rank " +
                                  std::to_string(op.peer) +
                                  " is outside of them, empty or too long");
  }
  return post(op.peer, op.context,
              {.sender = rank_,
               .dst = dst,
               .src = src,
               .bytes = op.bytes,
               .immediate = op.immediate,
               .cookie = op.cookie});
}

Posted LocalTransport::read(const ReadOp& op) {
  std::byte* dst = locate(rank_, op.dst, op.bytes);
  const std::byte* src = locate(op.peer, op.src, op.bytes);
  if (src == nullptr || dst == nullptr || op.bytes > traits().max_write_bytes) {
    return refuse(op.context, "read of " + std::to_string(op.bytes) + " bytes from " +
                                  text_of(op.src) + " of rank " + std::to_string(op.peer) + " to " +
                                  text_of(op.dst) + " is outside of them or too long");
  }
  return post(op.peer, op.context,
              {.sender = rank_,
               .is_read = true,
               .dst = dst,
               .src = src,
               .bytes = op.bytes,
               .cookie = op.cookie});
}

std::size_t LocalTransport::take_completions(int context, std::span<NetEvent> events) {
  Port& port = network_->port(rank_, context);
  const std::scoped_lock lock(port.queues);
  std::size_t count = 0;
  for (; count < events.size() && !port.done.empty(); ++count) {
    events[count] = port.done.front();
    port.done.pop_front();
  }
  return count;
}

/// False if nothing waits.
bool LocalTransport::deliver_one(int context, std::optional<NetEvent>& arrival) {
  Port& port = network_->port(rank_, context);
  const std::scoped_lock delivering(port.delivering);
  Delivery delivery;
  {
    const std::scoped_lock lock(port.queues);
    if (port.inbox.empty()) return false;
    delivery = port.inbox.front();
    port.inbox.pop_front();
  }
  if (delivery.bytes > 0) {
    std::memcpy(delivery.dst, delivery.src, static_cast<std::size_t>(delivery.bytes));
  }
  network_->report(
      delivery.sender, context,
      {.kind = delivery.is_read ? NetEvent::Kind::kReadDone : NetEvent::Kind::kSourceFree,
       .peer = rank_,
       .cookie = delivery.cookie});
  if (delivery.immediate.has_value()) {
    arrival = NetEvent{.kind = NetEvent::Kind::kArrival,
                       .peer = delivery.sender,
                       .immediate = *delivery.immediate};
  }
  return true;
}

int LocalTransport::poll(int context, std::span<NetEvent> events) {
  std::size_t count = take_completions(context, events);
  contexts_[static_cast<std::size_t>(context)].num_outstanding -= static_cast<int>(count);
  for (int i = 0; i < kMaxDeliveriesPerPoll && count < events.size(); ++i) {
    std::optional<NetEvent> arrival;
    if (!deliver_one(context, arrival)) break;
    if (arrival.has_value()) events[count++] = *arrival;
  }
  return static_cast<int>(count);
}

void LocalTransport::sleep(int context, std::chrono::milliseconds at_most) {
  Port& port = network_->port(rank_, context);
  std::unique_lock lock(port.queues);
  port.has_work.wait_for(lock, at_most,
                         [&port] { return !port.inbox.empty() || !port.done.empty(); });
}

}  // namespace

Result<std::vector<std::unique_ptr<Transport>>> make_local_transports(
    int num_ranks, const TransportTraits& traits) {
  if (num_ranks < 1 || traits.num_contexts < 1 || traits.max_write_bytes < 1 ||
      traits.max_outstanding < 1) {
    return Status(Errc::kInvalidArgument,
                  "local transports of " + std::to_string(num_ranks) + " ranks with " +
                      std::to_string(traits.num_contexts) + " contexts, " +
                      std::to_string(traits.max_write_bytes) + " bytes per write, " +
                      std::to_string(traits.max_outstanding) + " operations under way");
  }
  TransportTraits named = traits;
  named.name = "local";
  const auto network = std::make_shared<Network>(num_ranks, std::move(named));
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < num_ranks; ++rank) {
    transports.push_back(std::make_unique<LocalTransport>(network, rank));
  }
  return transports;
}

}  // namespace ep::fabric
