// SPDX-License-Identifier: Apache-2.0
// Memory of an engine.
#include "fabric/net/net_shared.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace ep::fabric {
namespace {

constexpr std::size_t kScratchAlignment = 4096;

std::byte* allocate_scratch(std::int64_t bytes) {
  const auto count = static_cast<std::size_t>(bytes);
  auto* memory =
      static_cast<std::byte*>(::operator new(count, std::align_val_t(kScratchAlignment)));
  std::memset(memory, 0, count);
  return memory;
}

std::unique_ptr<std::atomic<std::uint64_t>[]> zeros(std::int64_t count) {
  return std::make_unique<std::atomic<std::uint64_t>[]>(static_cast<std::size_t>(count));
}

}  // namespace

void NetShared::Free::operator()(std::byte* memory) const {
  ::operator delete(memory, std::align_val_t(kScratchAlignment));
}

NetShared::NetShared(std::unique_ptr<Transport> net, const NetConfig& settings)
    : config(settings),
      layout(settings, net->num_ranks()),
      scratch(allocate_scratch(layout.bytes())),
      signals(zeros(settings.num_signals)),
      counters(zeros(settings.num_counters)),
      transport(std::move(net)),
      peers(transport->num_ranks(), settings.clock_ns(), settings.on_death),
      incarnations(static_cast<std::size_t>(transport->num_ranks())) {}

std::int64_t NetShared::table_bytes() const {
  constexpr std::int64_t kWordBytes = sizeof(std::uint64_t);
  const auto num_incarnations = static_cast<std::int64_t>(incarnations.capacity());
  return (config.num_signals + config.num_counters + num_incarnations) * kWordBytes +
         peers.memory_bytes();
}

bool NetShared::contains(int peer, const WindowPlace& place, std::int64_t bytes) const {
  const auto ranks = static_cast<std::size_t>(num_ranks());
  if (place.window < 0 || static_cast<std::size_t>(place.window) >= window_bytes.size() / ranks) {
    return false;
  }
  const std::int64_t size =
      window_bytes[static_cast<std::size_t>(place.window) * ranks + static_cast<std::size_t>(peer)];
  return place.offset >= 0 && bytes >= 0 && place.offset <= size && bytes <= size - place.offset;
}

}  // namespace ep::fabric
