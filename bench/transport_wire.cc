// SPDX-License-Identifier: Apache-2.0
// Messages as writes with or without an immediate.
#include "bench/transport_wire.h"

#include "base/check.h"

#include <array>
#include <vector>

namespace ep::bench {
namespace {

using fabric::NetEvent;
using fabric::Posted;

class TransportWire final : public Wire {
 public:
  TransportWire(std::unique_ptr<fabric::Transport> transport, const WireOptions& options)
      : timeout_(options.timeout),
        half_(static_cast<std::size_t>(options.bytes)),
        memory_(2 * half_),
        transport_(std::move(transport)),
        peer_(1 - transport_->rank()) {}

  Status exchange(Bootstrap& bootstrap) {
    EP_TRY_ASSIGN(window_, transport_->add_window(memory_));
    EP_TRY_ASSIGN(const auto descriptions,
                  bootstrap.all_gather(transport_->describe_window(window_), timeout_));
    return transport_->set_peer_window(peer_, window_,
                                       descriptions[static_cast<std::size_t>(peer_)]);
  }

  std::string name() const override { return "transport"; }
  std::span<std::byte> source() override { return std::span(memory_).first(half_); }
  std::span<std::byte> target() override { return std::span(memory_).last(half_); }

  Status send(const Message& message) override {
    fabric::WriteOp op = {.peer = peer_,
                          .src = {window_, message.offset},
                          .dst = {window_, static_cast<std::int64_t>(half_) + message.offset},
                          .bytes = message.bytes};
    if (message.is_announced) op.immediate = 1;
    Idler idler(base::Deadline::after(timeout_));
    while (true) {
      const Posted posted = transport_->write(op);
      if (posted == Posted::kYes) break;
      if (posted == Posted::kFailed) return transport_->failure(0);
      EP_TRY(look(idler));
    }
    ++num_in_flight_;
    return Status();
  }

  Status receive(const Stream& stream) override {
    Idler idler(base::Deadline::after(timeout_));
    while (num_arrived_ < stream.num_announced()) EP_TRY(look(idler));
    num_arrived_ -= stream.num_announced();
    // The last immediate speaks for all only where order is kept.
    return Status();
  }

  Status flush() override {
    Idler idler(base::Deadline::after(timeout_));
    while (num_in_flight_ > 0) EP_TRY(look(idler));
    return Status();
  }

 private:
  Status look(Idler& idler) {
    std::array<NetEvent, 64> events;
    const int num = transport_->poll(0, events);
    for (int i = 0; i < num; ++i) {
      const NetEvent& event = events[static_cast<std::size_t>(i)];
      if (event.kind == NetEvent::Kind::kFailure) return transport_->failure(0);
      if (event.kind == NetEvent::Kind::kArrival) ++num_arrived_;
      if (event.kind == NetEvent::Kind::kSourceFree) --num_in_flight_;
    }
    if (num == 0) return idler.idle();
    idler.reset();
    return Status();
  }

  const std::chrono::milliseconds timeout_;
  const std::size_t half_;
  std::vector<std::byte> memory_;  // outlives the transport
  const std::unique_ptr<fabric::Transport> transport_;
  const int peer_;
  fabric::WindowId window_ = 0;
  int num_in_flight_ = 0;
  int num_arrived_ = 0;
};

}  // namespace

Result<std::unique_ptr<Wire>> make_transport_wire(Bootstrap& bootstrap,
                                                  std::unique_ptr<fabric::Transport> transport,
                                                  const WireOptions& options) {
  auto wire = std::make_unique<TransportWire>(std::move(transport), options);
  EP_TRY(wire->exchange(bootstrap));
  return std::unique_ptr<Wire>(std::move(wire));
}

}  // namespace ep::bench
