// SPDX-License-Identifier: Apache-2.0
// What an arena asks of a kind of memory, and in which order.
#include "fabric/segment_memory.h"

#include "fabric/host/memory.h"
#include "tests/fabric/arena_ranks.h"
#include "tests/fabric/fake_peer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

using test::FakePeer;
using test::patient;
using test::segment_message;

constexpr std::int64_t kGranule = 8192;
constexpr int kMapError = 700;
constexpr int kPublishError = 701;

class HeapMapping final : public Mapping {
 public:
  explicit HeapMapping(std::int64_t bytes)
      : Mapping(new std::byte[static_cast<std::size_t>(bytes)], bytes) {}
  ~HeapMapping() override { delete[] base(); }
};

struct Published {
  int peer = 0;
  int segment = 0;
  std::byte* base = nullptr;
};

/// What the test and the service thread share.
struct Script {
  std::atomic<bool> fails_to_map{false};
  std::atomic<bool> fails_to_publish{false};
  /// Segments of this rank have it, else a descriptor. Set before the arena is used.
  std::optional<FabricHandle> fabric{};
  std::mutex mutex;
  std::vector<Published> published;
  /// Those that map() got.
  std::vector<std::optional<FabricHandle>> mapped;

  std::vector<Published> all_published() {
    const std::lock_guard lock(mutex);
    return published;
  }
};

/// Sizes in granules, a table of its own for the roles, and failures on request.
class FakeMemory final : public SegmentMemory {
 public:
  explicit FakeMemory(Script& script) : script_(script) {}

  Result<Created> create(std::int64_t bytes, std::int64_t /*used_bytes*/) override {
    const std::int64_t rounded = (bytes + kGranule - 1) / kGranule * kGranule;
    Created created{.handle = {}, .mapping = std::make_shared<HeapMapping>(rounded)};
    created.handle.fabric = script_.fabric;
    if (script_.fabric) return created;
    Result<base::UniqueFd> fd = create_memory(kGranule);
    if (!fd.ok()) return fd.status();
    created.handle.fd = std::move(*fd);
    return created;
  }
  Result<std::shared_ptr<Mapping>> map(const SegmentHandle& handle, std::int64_t bytes) override {
    const std::lock_guard lock(script_.mutex);
    script_.mapped.push_back(handle.fabric);
    if (script_.fails_to_map) return Status(Errc::kCuda, "map", kMapError);
    return std::shared_ptr<Mapping>(std::make_shared<HeapMapping>(bytes));
  }
  Status map_failure(std::string_view what, int native_code) const override {
    return Status(Errc::kCuda, std::string(what), native_code);
  }
  Status publish(int peer, int segment, std::byte* base) override {
    if (script_.fails_to_publish) return Status(Errc::kCuda, "publish", kPublishError);
    const std::lock_guard lock(script_.mutex);
    script_.published.push_back({.peer = peer, .segment = segment, .base = base});
    return Status();
  }
  std::atomic<std::uint32_t>* gone_flags() const override { return gone_.data(); }

 private:
  Script& script_;
  mutable std::array<std::atomic<std::uint32_t>, 2> gone_{};
};

class SegmentMemoryTest : public testing::Test {
 protected:
  /// add_segment, answered with `answer`; what was announced goes to `announced`.
  Result<Segment> add(std::int64_t bytes, ArenaMessage answer) {
    Result<Segment> added = Status(Errc::kInternal, "not run");
    {
      std::jthread adder([&] { added = peer_.arena().add_segment(bytes, patient()); });
      announced_ = peer_.receive().message;
      answer.rank = 1;
      answer.segment = announced_.segment;
      peer_.send(answer);
    }
    return added;
  }

  Script script_;
  FakePeer peer_{std::make_unique<FakeMemory>(script_)};
  ArenaMessage announced_;
};

TEST_F(SegmentMemoryTest, TheSizeIsWhatTheMemoryGave) {
  const auto segment = add(kGranule + 1, {.kind = ArenaMessageKind::kMapped});
  ASSERT_TRUE(segment.ok()) << segment.status().to_string();
  EXPECT_EQ(segment->bytes, 2 * kGranule);
  EXPECT_EQ(announced_.bytes, 2 * kGranule) << "a peer maps the whole segment";
  EXPECT_EQ(peer_.arena().total_bytes(), 2 * kGranule);
  EXPECT_TRUE(peer_.arena().locate(segment->base, 2 * kGranule).has_value());
}

FabricHandle fabric_handle(int seed) {
  FabricHandle handle{};
  for (std::size_t i = 0; i < handle.size(); ++i) {
    handle[i] = static_cast<std::byte>(static_cast<std::size_t>(seed) + i);
  }
  return handle;
}

TEST_F(SegmentMemoryTest, ASegmentWithAFabricHandleIsAnnouncedByIt) {
  script_.fabric = fabric_handle(3);
  const auto segment = add(kGranule, {.kind = ArenaMessageKind::kMapped});
  ASSERT_TRUE(segment.ok()) << segment.status().to_string();
  EXPECT_EQ(announced_.kind, ArenaMessageKind::kFabricSegment);
  EXPECT_EQ(announced_.fabric, fabric_handle(3));
  EXPECT_EQ(announced_.bytes, kGranule);
}

TEST_F(SegmentMemoryTest, APeersFabricHandleIsWhatIsMapped) {
  ArenaMessage message = segment_message(2, kGranule);
  message.kind = ArenaMessageKind::kFabricSegment;
  message.fabric = fabric_handle(9);
  peer_.send(message);
  EXPECT_EQ(peer_.receive().message.kind, ArenaMessageKind::kMapped);
  EXPECT_NE(peer_.arena().base(1, 2), nullptr);
  const std::lock_guard lock(script_.mutex);
  ASSERT_EQ(script_.mapped.size(), 1U);
  EXPECT_EQ(script_.mapped[0], fabric_handle(9));
}

TEST(HostSegments, AFabricHandleIsRefused) {
  FakePeer peer;
  ArenaMessage message = segment_message(0, kGranule);
  message.kind = ArenaMessageKind::kFabricSegment;
  peer.send(message);
  const ArenaMessage answer = peer.receive().message;
  EXPECT_EQ(answer.kind, ArenaMessageKind::kNotMapped);
  EXPECT_EQ(answer.error, 0) << "not what was announced, rather than a failure of the system";
}

TEST_F(SegmentMemoryTest, RolesSeeASegmentBeforeItsOwnerHearsThatItIsMapped) {
  const auto fd = create_memory(kGranule);
  ASSERT_TRUE(fd.ok());
  peer_.send(segment_message(5, kGranule), fd->get());
  ASSERT_EQ(peer_.receive().message.kind, ArenaMessageKind::kMapped);
  const auto published = script_.all_published();
  ASSERT_EQ(published.size(), 1U);
  EXPECT_EQ(published[0].peer, 1);
  EXPECT_EQ(published[0].segment, 5);
  EXPECT_EQ(published[0].base, peer_.arena().base(1, 5));
}

TEST_F(SegmentMemoryTest, WhatCannotBeMappedOrPublishedIsRefusedWithItsCode) {
  const auto fd = create_memory(kGranule);
  ASSERT_TRUE(fd.ok());
  script_.fails_to_map = true;
  peer_.send(segment_message(0, kGranule), fd->get());
  EXPECT_EQ(peer_.receive().message.error, kMapError);
  script_.fails_to_map = false;
  script_.fails_to_publish = true;
  peer_.send(segment_message(1, kGranule), fd->get());
  const ArenaMessage answer = peer_.receive().message;
  EXPECT_EQ(answer.kind, ArenaMessageKind::kNotMapped);
  EXPECT_EQ(answer.error, kPublishError);
  EXPECT_EQ(peer_.arena().base(1, 0), nullptr);
  EXPECT_EQ(peer_.arena().base(1, 1), nullptr);
}

TEST_F(SegmentMemoryTest, TheMemoryExplainsAPeersRefusal) {
  const auto refused = add(1, {.kind = ArenaMessageKind::kNotMapped, .error = kMapError});
  EXPECT_EQ(refused.status().code(), Errc::kCuda);
  EXPECT_EQ(refused.status().native_code(), kMapError);
  EXPECT_NE(refused.status().message().find("rank 1"), std::string::npos);
  const auto unknown = add(1, {.kind = ArenaMessageKind::kNotMapped, .error = 0});
  EXPECT_EQ(unknown.status().code(), Errc::kFabric) << "not a failure of the memory";
}

TEST_F(SegmentMemoryTest, AWithdrawnSegmentIsTakenFromTheRoles) {
  EXPECT_FALSE(add(1, {.kind = ArenaMessageKind::kNotMapped, .error = kMapError}).ok());
  const auto published = script_.all_published();
  ASSERT_EQ(published.size(), 2U);
  EXPECT_NE(published[0].base, nullptr);
  EXPECT_EQ(published[1].segment, published[0].segment);
  EXPECT_EQ(published[1].base, nullptr);
}

TEST_F(SegmentMemoryTest, ASegmentThatRolesCannotSeeIsNotAnnounced) {
  script_.fails_to_publish = true;
  const auto segment = peer_.arena().add_segment(1, patient());
  EXPECT_EQ(segment.status().native_code(), kPublishError);
  EXPECT_EQ(peer_.arena().total_bytes(), 0);
  EXPECT_EQ(peer_.arena().base(0, 0), nullptr);
  script_.fails_to_publish = false;
  EXPECT_TRUE(add(1, {.kind = ArenaMessageKind::kMapped}).ok());
  EXPECT_EQ(announced_.segment, 1) << "the failed one was announced, or its id used again";
}

}  // namespace
}  // namespace ep::fabric
