// SPDX-License-Identifier: Apache-2.0
// The receiver's half of signals under every order in which a few messages of a stream can arrive,
// from numbers that wrap on the way.
#include "fabric/net/signal_receiver.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace ep::fabric {
namespace {

/// Of a stream: more of them are a matter of time alone.
int max_messages() {
  if (test::is_full_scale()) return 8;
  return test::kSanitizerSlowdown > 1 ? 6 : 7;
}
constexpr std::size_t kMaxRing = 8;

/// Where numbers begin: the plain case, and shortly before 8, 14, 32 and 64 bits are full.
constexpr std::uint64_t kFirstNumbers[] = {0, (1u << 8) - 2, (1u << 14) - 2,
                                           (std::uint64_t{1} << 32) - 2,
                                           std::numeric_limits<std::uint64_t>::max() - 1};

/// How many writes each signal covers: all ways in which signals with their records are at most
/// `num_left` messages.
void for_each_plan(std::vector<int>& plan,
                   int num_left,
                   const std::function<void(const std::vector<int>&)>& use) {
  if (!plan.empty()) use(plan);
  for (int writes = 0; writes + 1 <= num_left; ++writes) {
    plan.push_back(writes);
    for_each_plan(plan, num_left - writes - 1, use);
    plan.pop_back();
  }
}

struct Applied {
  std::uint32_t slot;
  std::uint64_t add;
  friend bool operator==(const Applied&, const Applied&) = default;
};

/// A receiver that can be copied, with what it has applied.
struct State {
  std::array<OpenSignal, kMaxRing> cells{};
  std::uint64_t head = 0;
  std::vector<Applied> applied{};
};

struct Setup {
  std::uint64_t first;
  std::uint64_t ring;
  std::uint64_t window;
};

SignalRecord record_of(const Setup& setup, const std::vector<int>& plan, std::size_t index) {
  return {.number = setup.first + index,
          .add = 100 + index,
          .num_writes = static_cast<std::uint64_t>(plan[index]),
          .slot = static_cast<std::uint32_t>(index)};
}

/// Epochs: applied in order, each when all of it and of those before it has arrived.
struct Strong {
  using Receiver = EpochReceiver;
  static constexpr bool kIsInOrder = true;
  /// The epoch after the last open signal has writes, too.
  static constexpr std::uint64_t kMoreWrites = 1;

  static bool take_write(Receiver& receiver, std::uint64_t number, std::vector<Applied>& applied) {
    const bool is_fine = receiver.add_write(epoch_bits(number));
    apply(receiver, applied);
    return is_fine;
  }
  static bool take_record(Receiver& receiver,
                          const SignalRecord& record,
                          std::vector<Applied>& applied) {
    const bool is_fine = receiver.add_record(record);
    apply(receiver, applied);
    return is_fine;
  }
  static void apply(Receiver& receiver, std::vector<Applied>& applied) {
    receiver.apply_complete([&](std::uint32_t slot, std::uint64_t add) {
      applied.push_back({slot, add});
    });
  }
};

/// Weak records: each applied when all of its own has arrived.
struct Weak {
  using Receiver = PartReceiver;
  static constexpr bool kIsInOrder = false;
  static constexpr std::uint64_t kMoreWrites = 0;

  static bool take_write(Receiver& receiver, std::uint64_t number, std::vector<Applied>& applied) {
    return receiver.add_write(payload_bits(number), [&](std::uint32_t slot, std::uint64_t add) {
      applied.push_back({slot, add});
    });
  }
  static bool take_record(Receiver& receiver,
                          const SignalRecord& record,
                          std::vector<Applied>& applied) {
    return receiver.add_record(record, [&](std::uint32_t slot, std::uint64_t add) {
      applied.push_back({slot, add});
    });
  }
};

/// Walks through all orders that the sender's window allows; the sender hears at once how far the
/// receiver is, which allows the most.
template <class Kind>
class Search {
 public:
  Search(const Setup& setup, const std::vector<int>& plan)
      : setup_(setup), plan_(plan), num_writes_(plan.size()), has_record_(plan.size()) {}

  /// The first wrong thing; empty: none.
  std::string run() {
    State start;
    start.head = setup_.first;
    visit(start);
    return wrong_;
  }
  std::int64_t num_orders() const { return num_orders_; }

 private:
  typename Kind::Receiver receiver_of(State& state) {
    return typename Kind::Receiver(state.head, setup_.window,
                                   std::span(state.cells).first(setup_.ring));
  }

  void visit(const State& state) {
    if (!wrong_.empty()) return;
    bool is_over = true;
    for (std::size_t i = 0; i < plan_.size(); ++i) {
      const std::uint64_t ahead = setup_.first + i - state.head;
      const bool is_before_head = ahead > setup_.window + plan_.size();  // wrapped
      if (num_writes_[i] < plan_[i]) {
        is_over = false;
        if (is_before_head || ahead < setup_.window + Kind::kMoreWrites) deliver_write(state, i);
      }
      if (!has_record_[i]) {
        is_over = false;
        if (is_before_head || ahead < setup_.window) deliver_record(state, i);
      }
    }
    if (is_over) ++num_orders_;
  }

  void deliver_write(State state, std::size_t index) {
    auto receiver = receiver_of(state);
    ++num_writes_[index];
    const bool is_fine = Kind::take_write(receiver, setup_.first + index, state.applied);
    trace_ += " w" + std::to_string(index);
    go_on(state, receiver.head(), is_fine);
    --num_writes_[index];
  }

  void deliver_record(State state, std::size_t index) {
    auto receiver = receiver_of(state);
    has_record_[index] = true;
    const SignalRecord record = record_of(setup_, plan_, index);
    const bool is_fine = Kind::take_record(receiver, record, state.applied);
    trace_ += " r" + std::to_string(index);
    check_forgery(state, receiver, record);
    go_on(state, receiver.head(), is_fine);
    has_record_[index] = false;
  }

  void go_on(State& state, std::uint64_t head, bool is_fine) {
    state.head = head;
    if (wrong_.empty()) check(state, is_fine);
    visit(state);
    trace_.resize(trace_.size() - 3);
  }

  bool has_all_of(std::size_t index) const {
    return has_record_[index] && num_writes_[index] == plan_[index];
  }

  void check(const State& state, bool is_fine) {
    std::size_t num_in_order = 0;
    while (num_in_order < plan_.size() && has_all_of(num_in_order)) ++num_in_order;
    std::size_t num_due = num_in_order;
    if (!Kind::kIsInOrder) {
      num_due = 0;
      for (std::size_t i = 0; i < plan_.size(); ++i) num_due += has_all_of(i) ? 1 : 0;
    }
    if (!is_fine) return fail("refused");
    if (state.head != setup_.first + num_in_order) return fail("head is elsewhere");
    if (state.applied.size() != num_due) return fail("too many or too few signals");
    std::vector<bool> is_seen(plan_.size());
    for (std::size_t i = 0; i < num_due; ++i) {
      const Applied& applied = state.applied[i];
      if (Kind::kIsInOrder && applied.slot != i) return fail("out of order");
      if (!has_all_of(applied.slot) || is_seen[applied.slot]) return fail("not yet, or again");
      if (applied.add != 100 + applied.slot) return fail("another value");
      is_seen[applied.slot] = true;
    }
  }

  /// A record that is there, or was, is refused, and so is one from beyond the window.
  void check_forgery(const State& state,
                     const typename Kind::Receiver& receiver,
                     const SignalRecord& record) {
    State copy = state;
    copy.head = receiver.head();
    auto forged = receiver_of(copy);
    if (Kind::take_record(forged, record, copy.applied)) fail("a record twice");
    SignalRecord beyond = record;
    beyond.number = copy.head + setup_.window;
    if (Kind::take_record(forged, beyond, copy.applied)) fail("a record beyond the window");
    if (copy.applied != state.applied) fail("forged records were applied");
  }

  void fail(const std::string& what) {
    if (!wrong_.empty()) return;
    wrong_ = what + " after" + trace_ + "; writes of each:";
    for (const int writes : plan_) wrong_ += " " + std::to_string(writes);
    wrong_ += "; first " + std::to_string(setup_.first) + ", ring " + std::to_string(setup_.ring);
  }

  const Setup setup_;
  const std::vector<int> plan_;
  std::vector<int> num_writes_;
  std::vector<bool> has_record_;
  std::string trace_;  // three characters a step
  std::string wrong_;
  std::int64_t num_orders_ = 0;
};

struct Outcome {
  std::string wrong;
  std::int64_t num_orders = 0;
};

/// All plans, until something is wrong.
template <class Kind>
Outcome search_all(const Setup& setup) {
  Outcome outcome;
  std::vector<int> plan;
  for_each_plan(plan, max_messages(), [&](const std::vector<int>& now) {
    if (!outcome.wrong.empty()) return;
    Search<Kind> search(setup, now);
    outcome.wrong = search.run();
    outcome.num_orders += search.num_orders();
  });
  return outcome;
}

template <class Kind>
void expect_right_in_all_orders() {
  std::int64_t num_orders = 0;
  for (const std::uint64_t first : kFirstNumbers) {
    for (const std::uint64_t ring : {2, 4, 8}) {
      const Outcome outcome = search_all<Kind>({.first = first, .ring = ring, .window = ring / 2});
      ASSERT_EQ(outcome.wrong, "");
      num_orders += outcome.num_orders;
    }
  }
  std::printf("%lld orders\n", static_cast<long long>(num_orders));
  EXPECT_GT(num_orders, 10'000);
}

TEST(EveryOrder, StrongSignalsAreAppliedInOrderWhenAllHasLanded) {
  expect_right_in_all_orders<Strong>();
}

TEST(EveryOrder, WeakSignalsAreAppliedWhenTheirOwnHasLanded) { expect_right_in_all_orders<Weak>(); }

/// What the search is for: the epoch after the last open one shares a cell with the head.
TEST(EveryOrder, AWindowAsLargeAsTheRingIsCaught) {
  EXPECT_NE(search_all<Strong>({.first = 0, .ring = 2, .window = 2}).wrong, "");
}

}  // namespace
}  // namespace ep::fabric
