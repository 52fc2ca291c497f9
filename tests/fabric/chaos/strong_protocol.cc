// SPDX-License-Identifier: Apache-2.0
// Puts have words of their own, so that whether each has landed can be seen at any time.
#include "tests/fabric/chaos/strong_protocol.h"

#include "fabric/chaos/random.h"

#include <algorithm>
#include <array>
#include <vector>

namespace ep::test {
namespace {

constexpr std::uint64_t kRing = 4;
constexpr std::uint64_t kNumEpochs = 40;
constexpr std::uint64_t kMaxPuts = 3;
constexpr int kPatience = 20000;

// Words of a window: puts, then records of two words; the sender's records have one source each.
constexpr std::uint64_t kRecords = kNumEpochs * kMaxPuts;
constexpr std::uint64_t kRecordWords = 2;

enum class Message : std::uint32_t { kPut, kRecord, kAck };
constexpr int kValueBits = 30;

std::uint32_t encode(Message kind, std::uint64_t value) {
  return static_cast<std::uint32_t>(kind) << kValueBits | static_cast<std::uint32_t>(value);
}

std::uint64_t content(std::uint64_t put) { return (put + 1) * 0x0101010101010101u; }

class StrongRun {
 public:
  StrongRun(const fabric::ChaosConfig& config, const StrongRules& rules)
      : rules_(rules), window_(rules.keeps_half_free ? kRing / 2 : kRing), duo_(config) {
    fabric::ChaosRandom random = fabric::ChaosRandom(config.seed).split(1);
    for (std::uint64_t epoch = 0; epoch < kNumEpochs; ++epoch) {
      first_put_.push_back(first_put_.back() +
                           static_cast<std::uint64_t>(random.below(kMaxPuts + 1)));
    }
    for (std::uint64_t put = 0; put < first_put_.back(); ++put) {
      duo_.store(Duo::kSender, put, content(put));
    }
  }

  Violation run() {
    for (int i = 0; i < kPatience && violation_.empty() && head_ < kNumEpochs; ++i) {
      send();
      if (is_ack_due_) is_ack_due_ = !duo_.signal(Duo::kReceiver, encode(Message::kAck, cursor()));
      duo_.poll([this](std::uint32_t bits) { take_ack(bits); },
                [this](std::uint32_t bits) { take(bits); });
    }
    if (!violation_.empty() || head_ == kNumEpochs) return violation_;
    return "hangs at epoch " + std::to_string(head_);
  }
  fabric::ChaosCounts counts() const { return duo_.counts(); }

 private:
  // Sender.
  void send() {
    while (epoch_ < kNumEpochs && epoch_ - acked_ <= window_) {
      if (put_ < first_put_[epoch_ + 1]) {
        const std::uint32_t bits = encode(Message::kPut, epoch_ % kRing);
        if (!duo_.put(Duo::kSender, {put_, put_, 1, bits})) return;
        ++put_;
      } else if (epoch_ - acked_ == window_ || !send_record()) {
        return;
      }
    }
  }

  bool send_record() {
    const std::uint64_t src = kRecords + epoch_ * kRecordWords;
    duo_.store(Duo::kSender, src, epoch_);
    duo_.store(Duo::kSender, src + 1, first_put_[epoch_ + 1] - first_put_[epoch_]);
    const std::uint64_t cell = epoch_ % kRing;
    if (!duo_.put(Duo::kSender, {src, kRecords + cell * kRecordWords, kRecordWords,
                                 encode(Message::kRecord, cell)})) {
      return false;
    }
    ++epoch_;
    return true;
  }

  void take_ack(std::uint32_t bits) {
    const std::uint64_t said = bits & ((1u << kValueBits) - 1);
    if (rules_.has_whole_ack) {
      acked_ = std::max(acked_, said);
    } else if (const std::uint64_t ahead = (said - acked_) % (2 * window_); ahead <= window_) {
      acked_ += ahead;
    }
  }

  // Receiver.
  std::uint64_t cursor() const { return rules_.has_whole_ack ? head_ : head_ % (2 * window_); }

  void take(std::uint32_t bits) {
    const std::uint64_t cell = bits & ((1u << kValueBits) - 1);
    if (bits >> kValueBits == static_cast<std::uint32_t>(Message::kPut)) {
      ++num_arrived_[cell];
      ++total_arrived_;
    } else {
      has_record_[cell] = true;
    }
    while (violation_.empty() && head_ < kNumEpochs && is_complete(head_ % kRing)) apply();
  }

  bool is_complete(std::uint64_t cell) {
    if (!has_record_[cell]) return false;
    if (!rules_.waits_for_puts) return true;
    const std::uint64_t num_puts = duo_.load(Duo::kReceiver, kRecords + cell * kRecordWords + 1);
    return rules_.counts_by_epoch ? num_arrived_[cell] >= num_puts
                                  : total_arrived_ >= total_applied_ + num_puts;
  }

  void apply() {
    const std::uint64_t cell = head_ % kRing;
    const std::uint64_t record = kRecords + cell * kRecordWords;
    const std::string at = " at the signal of epoch " + std::to_string(head_);
    if (duo_.load(Duo::kReceiver, record) != head_) violation_ = "a foreign record" + at;
    for (std::uint64_t put = 0; put < first_put_[head_ + 1]; ++put) {
      if (duo_.load(Duo::kReceiver, put) == content(put)) continue;
      violation_ = "put " + std::to_string(put) + " is missing" + at;
    }
    total_applied_ += duo_.load(Duo::kReceiver, record + 1);
    num_arrived_[cell] = 0;
    has_record_[cell] = false;
    is_ack_due_ = true;
    ++head_;
  }

  const StrongRules rules_;
  const std::uint64_t window_;
  Duo duo_;
  std::vector<std::uint64_t> first_put_{0};  // by epoch

  std::uint64_t epoch_ = 0;
  std::uint64_t put_ = 0;
  std::uint64_t acked_ = 0;

  std::array<std::uint64_t, kRing> num_arrived_{};
  std::array<bool, kRing> has_record_{};
  std::uint64_t total_arrived_ = 0;
  std::uint64_t total_applied_ = 0;
  std::uint64_t head_ = 0;
  bool is_ack_due_ = false;
  Violation violation_;
};

}  // namespace

Violation run_strong(const fabric::ChaosConfig& config,
                     const StrongRules& rules,
                     fabric::ChaosCounts& counts) {
  StrongRun run(config, rules);
  Violation violation = run.run();
  counts += run.counts();
  return violation;
}

}  // namespace ep::test
