// SPDX-License-Identifier: Apache-2.0
// The start-up test finds networks that do not do what they should.
#include "fabric/ofi/probe.h"

#include "tests/fabric/ofi/test_net.h"
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace ep::test {
namespace {

using fabric::NetEvent;
using Kind = NetEvent::Kind;

/// A transport whose events, and the memory that they speak of, are changed before they are seen.
class LyingTransport final : public fabric::Transport {
 public:
  using Lie = std::function<void(NetEvent&, std::span<std::byte> memory)>;

  LyingTransport(fabric::Transport& real, Lie lie) : real_(real), lie_(std::move(lie)) {}

  int rank() const override { return real_.rank(); }
  int num_ranks() const override { return real_.num_ranks(); }
  const fabric::TransportTraits& traits() const override { return real_.traits(); }
  Result<fabric::WindowId> add_window(std::span<std::byte> memory) override {
    memory_ = memory;
    return real_.add_window(memory);
  }
  std::vector<std::byte> describe_window(fabric::WindowId window) const override {
    return real_.describe_window(window);
  }
  Status set_peer_window(int peer,
                         fabric::WindowId window,
                         std::span<const std::byte> description) override {
    return real_.set_peer_window(peer, window, description);
  }
  fabric::Posted write(const fabric::WriteOp& op) override { return real_.write(op); }
  fabric::Posted read(const fabric::ReadOp& op) override { return real_.read(op); }
  int poll(int context, std::span<NetEvent> events) override {
    const int num = real_.poll(context, events);
    for (int i = 0; i < num; ++i) lie_(events[static_cast<std::size_t>(i)], memory_);
    return num;
  }
  void sleep(int context, std::chrono::milliseconds at_most) override {
    real_.sleep(context, at_most);
  }
  Status failure(int context) const override { return real_.failure(context); }

 private:
  fabric::Transport& real_;
  const Lie lie_;
  std::span<std::byte> memory_;
};

/// Rank 0 hears lies. What it finds.
void probe_with(
    const LyingTransport::Lie& lie,
    const std::function<void(RankContext&, const Result<fabric::ProbeFindings>&)>& check) {
  check_ranks({.num_ranks = 2}, [&](RankContext& rank) {
    std::vector<std::byte> scratch(static_cast<std::size_t>(fabric::kProbeBytes));
    auto real = make_ofi_transport(rank.bootstrap(), loopback_config(), test_deadline());
    if (!rank.expect_ok(real.status(), "make")) return;
    LyingTransport lying(**real, [&](NetEvent& event, std::span<std::byte> memory) {
      if (rank.rank() == 0) lie(event, memory);
    });
    const auto findings = probe_transport(lying, rank.bootstrap(), scratch, test_deadline());
    if (rank.rank() == 0) check(rank, findings);
    // Peers may still write into the scratch.
    real->reset();
  });
}

void expect_unsupported(const LyingTransport::Lie& lie, const char* words) {
  probe_with(lie, [words](RankContext& rank, const Result<fabric::ProbeFindings>& findings) {
    rank.expect(findings.status().code() == Errc::kUnsupported, findings.status().to_string());
    rank.expect(findings.status().message().find(words) != std::string::npos,
                findings.status().message());
  });
}

constexpr std::ptrdiff_t kCell = 4096;
constexpr std::ptrdiff_t kTarget = 256 * kCell;
constexpr std::ptrdiff_t kRead = 2 * kTarget;

/// Number of the write of an arrival; nothing for other arrivals.
std::optional<int> write_of(const NetEvent& event) {
  const std::uint32_t kind = event.immediate >> 28;
  if (event.kind != Kind::kArrival || kind != 2) return std::nullopt;
  return static_cast<int>(event.immediate >> 16 & 0xfff);
}

TEST(OfiProbe, AnHonestNetworkIsOrdered) {
  probe_with([](NetEvent&, std::span<std::byte>) {},
             [](RankContext& rank, const Result<fabric::ProbeFindings>& findings) {
               rank.expect(findings.ok() && findings->is_ordered, findings.status().to_string());
             });
}

TEST(OfiProbe, AWrongSourceIsSeen) {
  expect_unsupported(
      [](NetEvent& event, std::span<std::byte>) {
        if (event.kind == Kind::kArrival) event.peer = 0;
      },
      "an immediate of rank 1 came as one of rank 0");
}

TEST(OfiProbe, AnImmediateBeforeItsOwnBytesIsSeen) {
  expect_unsupported(
      [](NetEvent& event, std::span<std::byte> memory) {
        if (write_of(event) == 101) memory[kTarget + 101 * kCell] = std::byte{0};
      },
      "the immediate of write 101 came before its 8 bytes");
}

TEST(OfiProbe, AnImmediateBeforeAnEarlierWriteMeansUnordered) {
  probe_with(
      [](NetEvent& event, std::span<std::byte> memory) {
        if (write_of(event) == 101) memory[kTarget + 100 * kCell + 4095] = std::byte{0};
      },
      [](RankContext& rank, const Result<fabric::ProbeFindings>& findings) {
        rank.expect(findings.ok() && !findings->is_ordered, "must be unordered");
      });
}

TEST(OfiProbe, ImmediatesThatPassEachOtherMeanUnordered) {
  probe_with(
      [](NetEvent& event, std::span<std::byte>) {
        if (write_of(event) == 99)
          event.immediate += 2 << 16;
        else if (write_of(event) == 101)
          event.immediate -= 2 << 16;
      },
      [](RankContext& rank, const Result<fabric::ProbeFindings>& findings) {
        // Write 101 is announced early: either its bytes are not there yet, or the order is wrong.
        const bool is_seen =
            findings.ok() ? !findings->is_ordered : findings.status().code() == Errc::kUnsupported;
        rank.expect(is_seen, "must be unordered or refused");
      });
}

TEST(OfiProbe, AnAlteredImmediateIsSeen) {
  expect_unsupported(
      [](NetEvent& event, std::span<std::byte>) {
        if (write_of(event) == 7) event.immediate |= 0xf0000000u;
      },
      "an immediate arrived as");
}

TEST(OfiProbe, AReadWithoutItsBytesIsSeen) {
  expect_unsupported(
      [](NetEvent& event, std::span<std::byte> memory) {
        if (event.kind == Kind::kReadDone) memory[kRead + 4095] = std::byte{0};
      },
      "a read was complete before its bytes were here");
}

}  // namespace
}  // namespace ep::test
