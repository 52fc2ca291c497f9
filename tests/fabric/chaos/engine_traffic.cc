// SPDX-License-Identifier: Apache-2.0
// The model: an operation's bytes are its number; whoever may look at them finds it.
#include "tests/fabric/chaos/engine_traffic.h"

#include <algorithm>
#include <cstring>

namespace ep::test {
namespace {

using fabric::ArrivalOrder;
using fabric::NetEngine;
using fabric::WindowPlace;
using primitives::SignalStrength;

constexpr int kNumRanks = 3;
constexpr int kNumContexts = EngineNet::kNumContexts;
constexpr std::int64_t kMaxBytes = 640;
constexpr int kPatience = 60000;
constexpr std::int64_t kStepNs = 1000;
constexpr std::byte kPoison{0xdd};

std::size_t index_of(int rank, int context) {
  return static_cast<std::size_t>(rank * kNumContexts + context);
}

/// Small enough that every window, ring and queue is full now and then.
fabric::NetConfig small_config(const TrafficOptions& options) {
  return {.num_signals = kNumRanks * kNumContexts + options.num_ops,
          .num_counters = options.num_ops,
          .window_ops = 8,
          .window_bytes = 4000,
          .arrival_window = 16,
          .epoch_ring = 4,
          .part_ring = 4,
          .first_number = options.first_number};
}

EngineNetOptions net_options(const TrafficOptions& options) {
  return {.num_ranks = kNumRanks,
          .window_bytes = options.num_ops * kMaxBytes,
          .config = small_config(options),
          .chaos_of = [options](int) {
            auto chaos = fabric::ChaosConfig::hostile(options.seed, options.order);
            chaos.big_bytes = 200;
            chaos.checks_sources = true;
            // Longer than the answers of peers take.
            if (options.seed % 3 == 0) chaos.late_completion = {.permille = 300, .max_polls = 300};
            chaos.duplicate_source_free_permille = options.duplicate_source_free_permille;
            return chaos;
          }};
}

}  // namespace

EngineTraffic::EngineTraffic(const TrafficOptions& options)
    : options_(options),
      net_(net_options(options)),
      random_(fabric::ChaosRandom(options.seed).split(5)),
      streams_(kNumRanks * kNumRanks * kNumContexts),
      flushes_(kNumRanks * kNumContexts) {
  for (int rank = 0; rank < kNumRanks; ++rank)
    std::ranges::fill(net_.group().memory(rank), kPoison);
  for (std::size_t number = 0; number < static_cast<std::size_t>(options.num_ops); ++number) {
    Op op = random_op();
    if (op.signal.strength == SignalStrength::kWeak) op.signal.slot = own_number(number);
    ops_.push_back(op);
    fill(op.kind == Kind::kGet ? op.peer : op.rank, number, op.bytes, content(number));
  }
}

EngineTraffic::Op EngineTraffic::random_op() {
  Op op{.rank = random_.below(kNumRanks), .context = random_.below(kNumContexts)};
  op.peer = (op.rank + 1 + random_.below(kNumRanks - 1)) % kNumRanks;
  const int dice = random_.below(100);
  op.kind = dice < 65   ? Kind::kPut
            : dice < 75 ? Kind::kValue
            : dice < 85 ? Kind::kSignal
                        : Kind::kGet;
  if (op.kind == Kind::kPut || op.kind == Kind::kGet) op.bytes = 1 + random_.below(kMaxBytes);
  if (op.kind == Kind::kValue) op.bytes = sizeof(std::uint64_t);
  if (op.kind == Kind::kGet) return op;
  const int strength = random_.below(op.kind == Kind::kSignal ? 2 : 3);
  op.signal.strength = strength == 0   ? SignalStrength::kStrong
                       : strength == 1 ? SignalStrength::kWeak
                                       : SignalStrength::kNone;
  op.signal.add = random_.chance(500) ? 1 : 5;
  op.signal.slot = strong_slot(op.rank, op.context);
  return op;
}

std::uint32_t EngineTraffic::strong_slot(int rank, int context) const {
  return static_cast<std::uint32_t>(index_of(rank, context));
}
std::uint32_t EngineTraffic::own_number(std::size_t op) const {
  return static_cast<std::uint32_t>(kNumRanks * kNumContexts + op);
}
EngineTraffic::Stream& EngineTraffic::stream(const Op& op) {
  return streams_[index_of(op.rank, op.context) * kNumRanks + static_cast<std::size_t>(op.peer)];
}
EngineTraffic::Flush& EngineTraffic::flush(int rank, int context) {
  return flushes_[index_of(rank, context)];
}

std::string EngineTraffic::run() {
  for (int i = 0; i < kPatience && wrong_.empty(); ++i) {
    if (const Status status = net_.status(); !status.ok()) return status.to_string();
    post_some();
    net_.drive(kStepNs);
    look();
    if (next_ == ops_.size() && open_.empty()) break;
  }
  if (wrong_.empty() && next_ < ops_.size()) fail(next_, "was never accepted");
  if (wrong_.empty() && !open_.empty()) fail(open_.front(), "was never seen");
  if (wrong_.empty()) flush_all();
  if (wrong_.empty()) check_end();
  return wrong_;
}

void EngineTraffic::post_some() {
  for (int left = random_.below(6); left > 0 && next_ < ops_.size(); --left) {
    if (!post(next_)) {
      ++num_refused_;
      return;
    }
    ++next_;
  }
  if (random_.chance(50)) start_flush(random_.below(kNumRanks), random_.below(kNumContexts));
}

bool EngineTraffic::post(std::size_t number) {
  Op& op = ops_[number];
  NetEngine& engine = net_[op.rank];
  const WindowPlace place{.offset = static_cast<std::int64_t>(number) * kMaxBytes};
  switch (op.kind) {
    case Kind::kPut:
      op.is_posted = engine.try_put(op.context, {op.peer, place, place, op.bytes, op.signal});
      break;
    case Kind::kValue: {
      std::uint64_t value = 0;
      std::memcpy(&value, at(op.rank, number), sizeof(value));
      op.is_posted = engine.try_put_value(op.context, op.peer, place, value, op.signal);
      break;
    }
    case Kind::kSignal:
      op.is_posted = engine.try_signal(op.context, op.peer, op.signal);
      break;
    case Kind::kGet:
      op.is_posted = engine.try_get(
          op.context, {op.peer, place, place, op.bytes, static_cast<std::uint32_t>(number)});
      break;
  }
  if (!op.is_posted) return false;
  if (op.kind != Kind::kGet) stream(op).ops.push_back(number);
  const bool is_weak = op.signal.strength == SignalStrength::kWeak;
  if (op.kind == Kind::kGet || is_weak) open_.push_back(number);
  return true;
}

void EngineTraffic::start_flush(int rank, int context) {
  Flush& now = flush(rank, context);
  if (now.is_open) return;
  now.is_open = net_[rank].try_start_flush(context);
  if (!now.is_open) return;
  now.covers.clear();
  for (std::size_t number = 0; number < next_; ++number) {
    const Op& op = ops_[number];
    if (op.rank == rank && op.context == context) now.covers.push_back(number);
  }
}

void EngineTraffic::look() {
  for (const Stream& one : streams_) {
    if (!one.ops.empty()) look_at_strong(ops_[one.ops.front()]);
  }
  for (const std::size_t number : open_) look_at_own(number);
  std::erase_if(open_, [this](std::size_t number) { return ops_[number].is_over; });
  for (int rank = 0; rank < kNumRanks; ++rank) {
    for (int context = 0; context < kNumContexts; ++context) look_at_flushes(rank, context);
  }
}

/// A sum of the strong signals up to one of them: all before it has landed and was signalled.
void EngineTraffic::look_at_strong(const Op& op) {
  Stream& now = stream(op);
  const NetEngine& receiver = net_[op.peer];
  const std::uint64_t value = receiver.signal_value(strong_slot(op.rank, op.context));
  while (now.sum != value) {
    if (now.sum > value || now.num_seen == now.ops.size()) {
      return fail(now.ops.back(), "'s stream has the sum " + std::to_string(value));
    }
    const std::size_t number = now.ops[now.num_seen++];
    const Op& earlier = ops_[number];
    if (!has_landed(number)) return fail(number, "is missing behind a strong signal");
    if (earlier.signal.strength == SignalStrength::kStrong) now.sum += earlier.signal.add;
    if (earlier.signal.strength == SignalStrength::kWeak &&
        receiver.signal_value(earlier.signal.slot) != earlier.signal.add) {
      return fail(number, "was not signalled before a strong signal");
    }
  }
}

void EngineTraffic::look_at_own(std::size_t number) {
  Op& op = ops_[number];
  const bool is_get = op.kind == Kind::kGet;
  const std::uint64_t value = is_get
                                  ? net_[op.rank].counter_value(static_cast<std::uint32_t>(number))
                                  : net_[op.peer].signal_value(op.signal.slot);
  if (value == 0) return;
  if (value != (is_get ? 1 : op.signal.add)) fail(number, "has " + std::to_string(value));
  if (!has_landed(number)) fail(number, "was announced and is missing");
  op.is_over = true;
}

void EngineTraffic::look_at_flushes(int rank, int context) {
  Flush& now = flush(rank, context);
  if (now.is_open && net_[rank].is_remote_flushed(context)) {
    now.is_open = false;
    for (const std::size_t number : now.covers) {
      if (ops_[number].kind != Kind::kGet && !has_landed(number)) fail(number, "was not flushed");
    }
  }
  if (net_[rank].is_flushed(context)) poison_sources(rank, context);
}

void EngineTraffic::poison_sources(int rank, int context) {
  for (std::size_t number = 0; number < next_; ++number) {
    Op& op = ops_[number];
    const bool is_put = op.kind == Kind::kPut && op.rank == rank && op.context == context;
    if (!is_put || op.is_source_poisoned) continue;
    op.is_source_poisoned = true;
    fill(rank, number, op.bytes, kPoison);
  }
}

void EngineTraffic::flush_all() {
  for (int rank = 0; rank < kNumRanks; ++rank) {
    for (int context = 0; context < kNumContexts; ++context) {
      flush(rank, context).is_open = false;
      for (int i = 0; i < kPatience && !flush(rank, context).is_open; ++i) {
        start_flush(rank, context);
        net_.drive(kStepNs);
      }
      for (int i = 0; i < kPatience && flush(rank, context).is_open; ++i) {
        net_.drive(kStepNs);
        look();
      }
      if (flush(rank, context).is_open) fail(0, "...: a flush does not end");
    }
  }
}

void EngineTraffic::check_end() {
  for (std::size_t number = 0; number < ops_.size(); ++number) {
    if (!has_landed(number)) fail(number, "never landed");
  }
  for (const Stream& one : streams_) {
    std::uint64_t sum = 0;
    for (const std::size_t number : one.ops) {
      const primitives::NetSignal& signal = ops_[number].signal;
      if (signal.strength == SignalStrength::kStrong) sum += signal.add;
    }
    if (sum != one.sum) fail(one.ops.front(), "'s stream lacks strong signals");
  }
  if (const Status status = net_.status(); !status.ok()) wrong_ = status.to_string();
  if (net_.counts()[fabric::ChaosDeed::kTouchedSources] > 0) {
    wrong_ = "sources were reused too early: " + net_.counts().to_string();
  }
}

std::byte* EngineTraffic::at(int rank, std::size_t number) {
  return net_.group().memory(rank).data() + number * static_cast<std::size_t>(kMaxBytes);
}

std::byte EngineTraffic::content(std::size_t number) {
  return static_cast<std::byte>(1 + number % 200);
}

void EngineTraffic::fill(int rank, std::size_t number, std::int64_t bytes, std::byte value) {
  std::fill_n(at(rank, number), bytes, value);
}

bool EngineTraffic::has_landed(std::size_t number) {
  const Op& op = ops_[number];
  const std::byte* first = at(op.kind == Kind::kGet ? op.rank : op.peer, number);
  return std::all_of(first, first + op.bytes, [&](std::byte b) { return b == content(number); });
}

void EngineTraffic::fail(std::size_t number, const std::string& what) {
  if (!wrong_.empty()) return;
  const Op& op = ops_[number];
  wrong_ = "op " + std::to_string(number) + " (rank " + std::to_string(op.rank) + " to " +
           std::to_string(op.peer) + ", context " + std::to_string(op.context) + ", " +
           std::to_string(op.bytes) + " bytes) " + what;
}

}  // namespace ep::test
