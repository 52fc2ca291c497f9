// SPDX-License-Identifier: Apache-2.0
// Everything is one loop: send what may be sent, poll, look.
#include "tests/fabric/chaos/small_protocols.h"

#include "fabric/chaos/random.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

namespace ep::test {
namespace {

constexpr int kPatience = 20000;

void ignore(std::uint32_t /*immediate*/) {}

std::string number(std::uint64_t value) { return std::to_string(value); }

}  // namespace

Violation run_token(const fabric::ChaosConfig& config, Form form) {
  constexpr std::uint64_t kFirst = (std::uint64_t{1} << 32) - 20;  // wraps on the way
  constexpr std::uint64_t kLast = kFirst + 40;
  Duo duo(config);
  std::uint64_t sent = kFirst;
  std::uint64_t value = kFirst;
  const auto take = [&](std::uint32_t low) {
    const std::uint32_t old_low = static_cast<std::uint32_t>(value);
    if (form == Form::kRight) {
      value += static_cast<std::uint64_t>(std::max(static_cast<std::int32_t>(low - old_low), 0));
    } else {
      value += static_cast<std::uint32_t>(low - old_low);  // smaller: the high half has grown
    }
  };
  for (int i = 0; i < kPatience && value < kLast; ++i) {
    while (sent < kLast && duo.signal(Duo::kSender, static_cast<std::uint32_t>(sent + 1))) ++sent;
    duo.poll(ignore, take);
    if (value > sent) return "value " + number(value) + ", but " + number(sent) + " was sent";
  }
  return value == kLast ? "" : "hangs at " + number(value);
}

namespace {

struct Update {
  std::uint32_t slot;
  std::uint32_t add;
  std::uint32_t num_puts;
  auto key() const { return std::tie(slot, add, num_puts); }
  friend bool operator<(const Update& a, const Update& b) { return a.key() < b.key(); }
};

class ParkedUpdates {
 public:
  explicit ParkedUpdates(Form form) : form_(form) {}

  void take_put(std::uint32_t slot) { ++num_puts_[slot]; }
  void park(const Update& update) {
    const bool is_merged = form_ == Form::kMutant &&
                           std::any_of(parked_.begin(), parked_.end(),
                                       [&](const Update& u) { return u.key() == update.key(); });
    if (!is_merged) parked_.push_back(update);
  }
  void apply() {
    std::erase_if(parked_, [this](const Update& update) {
      if (num_puts_[update.slot] < update.num_puts) return false;
      values_[update.slot] += update.add;
      return true;
    });
  }
  std::uint32_t value(std::uint32_t slot) const { return values_[slot]; }

  static constexpr std::uint32_t kNumSlots = 4;

 private:
  Form form_;
  std::vector<Update> parked_;
  std::array<std::uint32_t, kNumSlots> num_puts_{};
  std::array<std::uint32_t, kNumSlots> values_{};
};

}  // namespace

Violation run_parked_updates(const fabric::ChaosConfig& config, Form form) {
  constexpr std::uint32_t kPutsPerSlot = 6;
  constexpr std::uint32_t kUpdates = 2;  // of each slot, equal ones: +1 once all puts are here
  constexpr std::uint32_t kPerSlot = kPutsPerSlot + kUpdates;
  constexpr std::uint32_t kNumMessages = ParkedUpdates::kNumSlots * kPerSlot;
  Duo duo(config);
  ParkedUpdates updates(form);
  std::uint32_t sent = 0;
  std::uint32_t arrived = 0;
  const auto take = [&](std::uint32_t message) {
    const std::uint32_t slot = message / kPerSlot;
    if (message % kPerSlot < kPutsPerSlot) {
      updates.take_put(slot);
    } else {
      updates.park({.slot = slot, .add = 1, .num_puts = kPutsPerSlot});
    }
    updates.apply();
    ++arrived;
  };
  for (int i = 0; i < kPatience && arrived < kNumMessages; ++i) {
    while (sent < kNumMessages && duo.signal(Duo::kSender, sent)) ++sent;
    duo.poll(ignore, take);
  }
  for (std::uint32_t slot = 0; slot < ParkedUpdates::kNumSlots; ++slot) {
    if (updates.value(slot) == kUpdates) continue;
    return "slot " + number(slot) + " is " + number(updates.value(slot)) + ", not 2";
  }
  return "";
}

Violation run_quiet(const fabric::ChaosConfig& config, Form form) {
  constexpr std::uint64_t kNumPuts = 20;
  constexpr int kEmptyPolls = 3;
  Duo duo(config);
  for (std::uint64_t put = 1; put <= kNumPuts; ++put) {
    duo.store(Duo::kSender, 0, put);
    while (
        !duo.put(Duo::kSender, {.src_word = 0, .dst_word = put, .num_words = 1, .cookie = put})) {
    }
    int num_empty = 0;
    while (duo.last_free() != put && (form == Form::kRight || num_empty < kEmptyPolls)) {
      const std::uint64_t before = duo.num_completions();
      duo.poll(ignore, ignore);
      num_empty = duo.num_completions() == before ? num_empty + 1 : 0;
    }
  }
  duo.store(Duo::kSender, 0, 0);
  for (int i = 0; i < kPatience && duo.num_completions() < kNumPuts; ++i) duo.poll(ignore, ignore);
  for (std::uint64_t put = 1; put <= kNumPuts; ++put) {
    const std::uint64_t landed = duo.load(Duo::kReceiver, put);
    if (landed != put) return "put " + number(put) + " brought " + number(landed);
  }
  return "";
}

Violation run_segments(const fabric::ChaosConfig& config, Form form) {
  constexpr std::uint32_t kNumMessages = 20;
  constexpr std::uint32_t kSegments = 3;
  constexpr std::uint32_t kNumPuts = kNumMessages * kSegments;
  Duo duo(config);
  for (std::uint64_t put = 0; put < kNumPuts; ++put) duo.store(Duo::kSender, put, put + 1);
  std::uint32_t sent = 0;
  std::uint32_t num_applied = 0;
  std::array<std::uint32_t, kNumMessages> num_arrived{};
  Violation violation;
  const auto take = [&](std::uint32_t put) {
    const std::uint32_t message = put / kSegments;
    const bool is_complete = ++num_arrived[message] == kSegments;
    const bool is_last = put % kSegments == kSegments - 1;
    if (!(form == Form::kRight ? is_complete : is_last)) return;
    ++num_applied;
    for (std::uint64_t word = message * kSegments; word < (message + 1) * kSegments; ++word) {
      if (duo.load(Duo::kReceiver, word) != word + 1) {
        violation = "message " + number(message) + " lacks word " + number(word);
      }
    }
  };
  for (int i = 0; i < kPatience && violation.empty() && num_applied < kNumMessages; ++i) {
    while (sent < kNumPuts && duo.put(Duo::kSender, {sent, sent, 1, sent})) ++sent;
    duo.poll(ignore, take);
  }
  if (violation.empty() && num_applied < kNumMessages) return "hangs";
  return violation;
}

namespace {

/// The receiver acknowledges a round when it is over, the sender begins the next one then.
class ParityRun {
 public:
  ParityRun(const fabric::ChaosConfig& config, Form form)
      : form_(form), duo_(config), random_(fabric::ChaosRandom(config.seed).split(2)) {
    for (std::uint64_t round = 1; round <= kNumRounds; ++round) {
      duo_.store(Duo::kSender, round, round);
      is_waited_for_.push_back(random_.chance(500));
    }
  }

  Violation run() {
    for (int i = 0; i < kPatience && violation_.empty() && round_ <= kNumRounds; ++i) {
      if (sent_ < allowed_ && duo_.put(Duo::kSender, {sent_ + 1, sent_ + 1, 1, sent_ + 1})) ++sent_;
      look();
      if (has_ended_) has_ended_ = !duo_.signal(Duo::kReceiver, round_);
      duo_.poll([this](std::uint32_t round) { allowed_ = std::max(allowed_, round); },
                [this](std::uint32_t round) { take(round); });
    }
    if (violation_.empty() && round_ <= kNumRounds) return "hangs in round " + number(round_);
    return violation_;
  }

 private:
  static constexpr std::uint32_t kNumRounds = 40;

  void take(std::uint32_t round) {
    std::uint32_t& flag = flags_[round % 2];
    flag = form_ == Form::kRight ? std::max(flag, round) : 1;
  }

  void look() {
    if (has_ended_) return;
    std::uint32_t& flag = flags_[round_ % 2];
    const bool is_set = form_ == Form::kRight ? flag == round_ : flag != 0;
    if (is_waited_for_[round_ - 1] && !is_set) return;
    if (is_waited_for_[round_ - 1] && duo_.load(Duo::kReceiver, round_) != round_) {
      violation_ = "round " + number(round_) + " ended without its row";
    }
    if (form_ == Form::kMutant) flag = 0;
    ++round_;
    has_ended_ = true;
  }

  const Form form_;
  Duo duo_;
  fabric::ChaosRandom random_;
  std::vector<bool> is_waited_for_;
  std::uint32_t sent_ = 0;
  std::uint32_t allowed_ = 1;
  std::uint32_t round_ = 1;
  bool has_ended_ = false;
  std::array<std::uint32_t, 2> flags_{};
  Violation violation_;
};

}  // namespace

Violation run_parity(const fabric::ChaosConfig& config, Form form) {
  return ParityRun(config, form).run();
}

}  // namespace ep::test
