// SPDX-License-Identifier: Apache-2.0
// How engines meet: the same settings everywhere, windows, a greeting on every context.
#include "base/byte_io.h"
#include "base/check.h"
#include "fabric/bootstrap/keyed_hash.h"
#include "fabric/net/net_context.h"
#include "fabric/net/net_engine.h"
#include "fabric/net/net_service.h"
#include "fabric/net/net_shared.h"
#include "primitives/relax.h"

#include <array>
#include <bit>
#include <optional>
#include <utility>

namespace ep::fabric {
namespace {

constexpr std::uint64_t kProtocolVersion = 1;
/// Reads differently on a machine with another byte order.
constexpr std::uint64_t kOrderMark = 0x0102030405060708;
constexpr std::size_t kMaxTextBytes = 4096;
/// Cells are not cut.
constexpr std::int64_t kMinWriteBytes = sizeof(MessageCell);

struct Setting {
  const char* name;
  std::uint64_t value;
};

/// What must be equal on all ranks; the version first, since it says what follows.
auto settings_of(const NetConfig& config, ArrivalOrder order) {
  std::uint64_t mark = 0;
  const auto bytes = std::bit_cast<std::array<std::uint8_t, sizeof(mark)>>(kOrderMark);
  for (const std::uint8_t byte : bytes) mark = mark << 8 | byte;
  const auto number = [](auto value) { return static_cast<std::uint64_t>(value); };
  return std::to_array<Setting>({
      {"protocol version", kProtocolVersion},
      {"byte order", mark},
      {"order of the network (0: ordered, 1: unordered)", number(order)},
      {"num_contexts", number(config.num_contexts)},
      {"num_signals", number(config.num_signals)},
      {"window_ops", number(config.window_ops)},
      {"arrival_window", number(config.arrival_window)},
      {"epoch_ring", number(config.epoch_ring)},
      {"part_ring", number(config.part_ring)},
      {"first_number", config.first_number},
  });
}

std::chrono::milliseconds remaining(base::Deadline deadline) {
  return std::chrono::milliseconds(deadline.remaining_ms());
}

Status garbage(const char* what, int rank, std::size_t bytes) {
  Status status(Errc::kFabric, std::string(what) + ": " + std::to_string(bytes) +
                                   " bytes of rank " + std::to_string(rank) + " say nothing");
  return status.set_peer(rank);
}

/// Begins what every rank contributes: whether it goes on, else why not.
base::ByteWriter begin(const Status& mine) {
  base::ByteWriter writer;
  writer.put(static_cast<std::uint8_t>(mine.code()));
  writer.put_text(std::string_view(mine.message()).substr(0, kMaxTextBytes));
  return writer;
}

/// The failure of a rank that does not go on.
Status judge(const char* what,
             int rank,
             std::span<const std::byte> bytes,
             base::ByteReader& reader) {
  const auto code = reader.get<std::uint8_t>();
  const std::string text = reader.get_text(kMaxTextBytes);
  if (reader.has_failed() || code > static_cast<std::uint8_t>(Errc::kInternal)) {
    return garbage(what, rank, bytes.size());
  }
  if (code == 0) return {};
  Status status(static_cast<Errc>(code), "rank " + std::to_string(rank) + ": " + text);
  return status.set_peer(rank);
}

/// All ranks return the same: the failure of the lowest rank that has one.
Status agree(Bootstrap& bootstrap, const char* what, const Status& mine, base::Deadline deadline) {
  EP_TRY_ASSIGN(const auto all, bootstrap.all_gather(begin(mine).bytes(), remaining(deadline)));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    base::ByteReader reader(all[rank]);
    EP_TRY(judge(what, static_cast<int>(rank), all[rank], reader));
  }
  return {};
}

Status check(const Transport& transport, const Bootstrap& bootstrap, const NetConfig& config) {
  EP_TRY(validate(config));
  if (transport.rank() != bootstrap.rank() || transport.num_ranks() != bootstrap.num_ranks()) {
    return Status(Errc::kInvalidArgument,
                  "the transport is rank " + std::to_string(transport.rank()) + " of " +
                      std::to_string(transport.num_ranks()) + ", the bootstrap rank " +
                      std::to_string(bootstrap.rank()) + " of " +
                      std::to_string(bootstrap.num_ranks()));
  }
  if (config.num_contexts > transport.traits().num_contexts) {
    return Status(Errc::kInvalidArgument,
                  "NetConfig::num_contexts = " + std::to_string(config.num_contexts) + ", but " +
                      transport.traits().name + " has " +
                      std::to_string(transport.traits().num_contexts));
  }
  if (transport.traits().max_write_bytes < kMinWriteBytes) {
    return Status(Errc::kUnsupported, transport.traits().name + " writes at most " +
                                          std::to_string(transport.traits().max_write_bytes) +
                                          " bytes at once, but cells have " +
                                          std::to_string(kMinWriteBytes));
  }
  return {};
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

Bootstrap::Bytes greeting(const Status& mine, const NetEngine* engine, NetShared* shared) {
  base::ByteWriter writer = begin(mine);
  if (engine == nullptr) return writer.take();
  for (const Setting& setting : settings_of(engine->config(), engine->order())) {
    writer.put(setting.value);
  }
  const std::vector<std::byte> window = shared->transport->describe_window(kScratchWindow);
  writer.put(shared->incarnation()).put(static_cast<std::uint32_t>(window.size()));
  writer.put_bytes(window);
  return writer.take();
}

/// `expected` are the settings of rank 0.
Status compare(base::ByteReader& reader, std::span<const Setting> expected, int rank) {
  for (const Setting& setting : expected) {
    const auto value = reader.get<std::uint64_t>();
    if (value == setting.value) continue;
    Status status(Errc::kInvalidArgument, std::string(setting.name) + " is " +
                                              std::to_string(setting.value) + " on rank 0, but " +
                                              std::to_string(value) + " on rank " +
                                              std::to_string(rank));
    return status.set_peer(rank);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<NetEngine>> NetEngine::create(Bootstrap& bootstrap,
                                                     std::unique_ptr<Transport> transport,
                                                     const NetConfig& config,
                                                     base::Deadline deadline) {
  Status mine = transport == nullptr ? Status(Errc::kInvalidArgument, "no transport")
                                     : check(*transport, bootstrap, config);
  std::unique_ptr<NetEngine> engine;
  if (mine.ok()) {
    engine.reset(new NetEngine(std::move(transport), config));
    mine = engine->add_scratch();
  }
  EP_TRY(agree(bootstrap, "engine", mine, deadline));
  EP_TRY(engine->meet(bootstrap, deadline));
  if (config.has_service_thread) {
    engine->service_ = std::make_unique<NetService>(*engine, config.heartbeat);
  }
  return engine;
}

Status NetEngine::add_scratch() {
  shared_->incarnations[static_cast<std::size_t>(rank())] = random_number();
  const std::span scratch(shared_->scratch.get(),
                          static_cast<std::size_t>(shared_->layout.bytes()));
  EP_TRY_ASSIGN(const WindowId window, shared_->transport->add_window(scratch));
  if (window == kScratchWindow) return {};
  return Status(Errc::kInvalidArgument, "the transport already has " + std::to_string(window) +
                                            " windows before the engine's");
}

Status NetEngine::meet(Bootstrap& bootstrap, base::Deadline deadline) {
  EP_TRY_ASSIGN(const auto all,
                bootstrap.all_gather(greeting({}, this, shared_.get()), remaining(deadline)));
  Status mine = take_greetings(all);
  EP_TRY(agree(bootstrap, "settings", mine, deadline));
  for (const auto& context : contexts_) {
    context->lock();
    context->send_hellos();
    context->unlock();
  }
  mine = await_hellos(deadline);
  // A rank that has heard all others still sends its own.
  const NetService service(*this, std::chrono::milliseconds(1));
  return agree(bootstrap, "greeting", mine, deadline);
}

Status NetEngine::take_greetings(std::span<const Bootstrap::Bytes> all) {
  auto expected = settings_of(config(), order());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int peer = static_cast<int>(i);
    base::ByteReader reader(all[i]);
    EP_TRY(judge("settings", peer, all[i], reader));
    if (peer == 0) {
      base::ByteReader first = reader;
      for (Setting& setting : expected) setting.value = first.get<std::uint64_t>();
    }
    EP_TRY(compare(reader, expected, peer));
    const auto incarnation = reader.get<std::uint64_t>();
    const auto window_bytes = reader.get<std::uint32_t>();
    const std::span<const std::byte> window = reader.get_bytes(window_bytes);
    if (!reader.is_complete()) return garbage("settings", peer, all[i].size());
    if (peer == rank()) continue;
    shared_->incarnations[i] = incarnation;
    EP_TRY(shared_->transport->set_peer_window(peer, kScratchWindow, window));
  }
  return {};
}

Status NetEngine::await_hellos(base::Deadline deadline) {
  for (int polls = 1;; ++polls) {
    std::optional<int> missing;
    int where = 0;
    for (int i = 0; i < num_contexts() && !missing.has_value(); ++i) {
      NetContext& context = context_at(i);
      context.lock();
      context.drive(Driver::kService);
      missing = context.missing_hello();
      where = i;
      context.unlock();
    }
    if (has_failed()) return failure();
    if (!missing.has_value()) return {};
    if (deadline.expired()) {
      Status status(Errc::kPeerTimeout, "no greeting from rank " + std::to_string(*missing) +
                                            " in context " + std::to_string(where) + " of " +
                                            traits().name);
      return status.set_peer(*missing);
    }
    primitives::relax(polls);
  }
}

Result<WindowId> NetEngine::add_window(Bootstrap& bootstrap,
                                       std::span<std::byte> memory,
                                       base::Deadline deadline) {
  for (const auto& context : contexts_) context->lock();
  Result<WindowId> window = register_window(bootstrap, memory, deadline);
  for (const auto& context : contexts_) context->unlock();
  return window;
}

Result<WindowId> NetEngine::register_window(Bootstrap& bootstrap,
                                            std::span<std::byte> memory,
                                            base::Deadline deadline) {
  const Result<WindowId> window = shared_->transport->add_window(memory);
  base::ByteWriter writer = begin(window.status());
  if (window.ok()) {
    writer.put(static_cast<std::int32_t>(*window)).put(static_cast<std::int64_t>(memory.size()));
    const std::vector<std::byte> description = shared_->transport->describe_window(*window);
    writer.put(static_cast<std::uint32_t>(description.size())).put_bytes(description);
  }
  EP_TRY_ASSIGN(const auto all, bootstrap.all_gather(writer.bytes(), remaining(deadline)));
  std::vector<std::int64_t> sizes;
  const Status mine = take_windows(window, all, sizes);
  EP_TRY(agree(bootstrap, "window", mine, deadline));
  shared_->window_bytes.insert(shared_->window_bytes.end(), sizes.begin(), sizes.end());
  return *window - kScratchWindow - 1;
}

Status NetEngine::take_windows(const Result<WindowId>& mine,
                               std::span<const Bootstrap::Bytes> all,
                               std::vector<std::int64_t>& sizes) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int peer = static_cast<int>(i);
    base::ByteReader reader(all[i]);
    EP_TRY(judge("window", peer, all[i], reader));
    EP_TRY(mine.status());
    const auto window = reader.get<std::int32_t>();
    const auto bytes = reader.get<std::int64_t>();
    const auto description_bytes = reader.get<std::uint32_t>();
    const std::span<const std::byte> description = reader.get_bytes(description_bytes);
    if (!reader.is_complete() || bytes < 0) return garbage("window", peer, all[i].size());
    if (window != *mine) {
      Status status(Errc::kInvalidArgument, "window " + std::to_string(*mine) + " of rank " +
                                                std::to_string(rank()) + " is window " +
                                                std::to_string(window) + " of rank " +
                                                std::to_string(peer));
      return status.set_peer(peer);
    }
    sizes.push_back(bytes);
    if (peer != rank()) EP_TRY(shared_->transport->set_peer_window(peer, window, description));
  }
  return {};
}

}  // namespace ep::fabric
