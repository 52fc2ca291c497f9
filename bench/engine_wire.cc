// SPDX-License-Identifier: Apache-2.0
// Messages as puts with or without a signal.
#include "bench/engine_wire.h"

#include "base/check.h"
#include "fabric/net/net_engine.h"

#include <vector>

namespace ep::bench {
namespace {

using primitives::SignalStrength;

constexpr int kContext = 0;
constexpr std::uint32_t kSlot = 0;

class EngineWire final : public Wire {
 public:
  EngineWire(int rank, const WireOptions& options)
      : timeout_(options.timeout),
        half_(static_cast<std::size_t>(options.bytes)),
        memory_(2 * half_),
        peer_(1 - rank) {}

  Status open(Bootstrap& bootstrap, std::unique_ptr<fabric::Transport> transport) {
    const base::Deadline deadline = base::Deadline::after(timeout_);
    EP_TRY_ASSIGN(engine_,
                  fabric::NetEngine::create(bootstrap, std::move(transport), {}, deadline));
    EP_TRY_ASSIGN(window_, engine_->add_window(bootstrap, memory_, deadline));
    return Status();
  }

  std::string name() const override {
    return engine_->order() == fabric::ArrivalOrder::kOrdered ? "put_ordered" : "put_unordered";
  }
  std::span<std::byte> source() override { return std::span(memory_).first(half_); }
  std::span<std::byte> target() override { return std::span(memory_).last(half_); }

  Status send(const Message& message) override {
    fabric::NetEngine::Put put = {
        .peer = peer_,
        .dst = {window_, static_cast<std::int64_t>(half_) + message.offset},
        .src = {window_, message.offset},
        .bytes = message.bytes};
    if (message.is_announced) {
      put.signal = {
          .strength = message.speaks_for_all ? SignalStrength::kStrong : SignalStrength::kWeak,
          .slot = kSlot};
    }
    Idler idler(base::Deadline::after(timeout_));
    while (!engine_->try_put(kContext, put)) EP_TRY(look(idler));
    return Status();
  }

  Status receive(const Stream& stream) override {
    expected_ += static_cast<std::uint64_t>(stream.num_announced());
    Idler idler(base::Deadline::after(timeout_));
    while (engine_->signal_value(kSlot) < expected_) EP_TRY(look(idler));
    return Status();
  }

  Status flush() override {
    Idler idler(base::Deadline::after(timeout_));
    while (!engine_->is_flushed(kContext)) EP_TRY(look(idler));
    return Status();
  }

 private:
  Status look(Idler& idler) {
    if (engine_->progress(kContext) == 0) {
      if (engine_->has_failed()) return engine_->failure();
      return idler.idle();
    }
    idler.reset();
    return Status();
  }

  const std::chrono::milliseconds timeout_;
  const std::size_t half_;
  std::vector<std::byte> memory_;  // outlives the engine
  const int peer_;
  std::unique_ptr<fabric::NetEngine> engine_;
  fabric::WindowId window_ = 0;
  std::uint64_t expected_ = 0;
};

}  // namespace

Result<std::unique_ptr<Wire>> make_engine_wire(Bootstrap& bootstrap,
                                               std::unique_ptr<fabric::Transport> transport,
                                               const WireOptions& options) {
  auto wire = std::make_unique<EngineWire>(bootstrap.rank(), options);
  EP_TRY(wire->open(bootstrap, std::move(transport)));
  return std::unique_ptr<Wire>(std::move(wire));
}

}  // namespace ep::bench
