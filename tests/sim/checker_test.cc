// SPDX-License-Identifier: Apache-2.0
// The rules of the memory model, one by one.
#include "fabric/sim/checker.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace ep::fabric::sim {
namespace {

/// Two agents of rank 0 and one of rank 1; a word of data and a flag.
class CheckerTest : public ::testing::Test {
 protected:
  CheckerTest() : space_(2, 1 << 16), random_(1), checker_(space_, sites_, random_, {}) {}

  Checker::Atomic flag(AgentId agent, Scope scope, bool acquires, bool releases) {
    return {agent, space_.part(0) + 64, 8, scope, acquires, releases, 0};
  }
  void write_data(AgentId agent) { checker_.write(checker_.actor(agent), space_.part(0), 8, 0); }
  void read_data(AgentId agent) { checker_.read(checker_.actor(agent), space_.part(0), 8, 0); }
  bool is_clean() const { return checker_.violations().empty(); }

  Space space_;
  Sites sites_;
  Random random_;
  Checker checker_;
  const AgentId writer_ = checker_.add_agent(0, "writer");
  const AgentId neighbour_ = checker_.add_agent(0, "neighbour");
  const AgentId peer_ = checker_.add_agent(1, "peer");
};

TEST_F(CheckerTest, ReleaseAndAcquireOrder) {
  write_data(writer_);
  checker_.store(flag(writer_, Scope::kSys, false, true), 1);
  checker_.load(flag(peer_, Scope::kSys, true, false));
  read_data(peer_);
  EXPECT_TRUE(is_clean());
}

TEST_F(CheckerTest, ARelaxedStoreOrdersNothing) {
  write_data(writer_);
  checker_.store(flag(writer_, Scope::kSys, false, false), 1);
  checker_.load(flag(peer_, Scope::kSys, true, false));
  read_data(peer_);
  EXPECT_FALSE(is_clean());
}

TEST_F(CheckerTest, ARelaxedLoadOrdersNothing) {
  write_data(writer_);
  checker_.store(flag(writer_, Scope::kSys, false, true), 1);
  checker_.load(flag(peer_, Scope::kSys, false, false));
  read_data(peer_);
  EXPECT_FALSE(is_clean());
}

TEST_F(CheckerTest, AReleaseOfScopeGpuReachesItsRank) {
  write_data(writer_);
  checker_.store(flag(writer_, Scope::kGpu, false, true), 1);
  checker_.load(flag(neighbour_, Scope::kGpu, true, false));
  read_data(neighbour_);
  EXPECT_TRUE(is_clean());
}

TEST_F(CheckerTest, AReleaseOfScopeGpuReachesNoOtherRank) {
  write_data(writer_);
  checker_.store(flag(writer_, Scope::kGpu, false, true), 1);
  checker_.load(flag(peer_, Scope::kSys, true, false));
  EXPECT_FALSE(is_clean()) << "the word itself is of too small a scope";
}

TEST_F(CheckerTest, ARelaxedAddContinuesTheReleaseSequence) {
  const auto add = [](std::uint64_t before, std::uint64_t operand, std::uint64_t /*expected*/,
                      std::uint64_t& after) {
    after = before + operand;
    return true;
  };
  write_data(writer_);
  checker_.modify(flag(writer_, Scope::kSys, false, true), add, 1);
  checker_.modify(flag(neighbour_, Scope::kSys, false, false), add, 1);
  checker_.load(flag(peer_, Scope::kSys, true, false));
  read_data(peer_);
  EXPECT_TRUE(is_clean());
}

TEST_F(CheckerTest, ARelaxedStoreEndsTheReleaseSequence) {
  write_data(writer_);
  checker_.store(flag(writer_, Scope::kSys, false, true), 1);
  checker_.store(flag(neighbour_, Scope::kSys, false, false), 2);
  checker_.load(flag(peer_, Scope::kSys, true, false));
  read_data(peer_);
  EXPECT_FALSE(is_clean());
}

TEST_F(CheckerTest, WhatComesAfterAReleaseIsNotCovered) {
  checker_.store(flag(writer_, Scope::kSys, false, true), 1);
  write_data(writer_);
  checker_.load(flag(peer_, Scope::kSys, true, false));
  read_data(peer_);
  EXPECT_FALSE(is_clean());
}

TEST_F(CheckerTest, AWriteMustComeAfterAllReads) {
  read_data(neighbour_);
  read_data(peer_);
  checker_.store(flag(peer_, Scope::kSys, false, true), 1);
  checker_.load(flag(writer_, Scope::kSys, true, false));
  write_data(writer_);
  EXPECT_FALSE(is_clean()) << "the neighbour's read is not ordered";
}

TEST_F(CheckerTest, OneAccessOfAnAsyncAgentDoesNotCoverItsNext) {
  const VectorClock nothing;
  checker_.write({writer_, 1, &nothing, true}, space_.part(0), 16, 0);
  checker_.write({writer_, 2, &nothing, true}, space_.part(0), 16, 0);
  EXPECT_FALSE(is_clean());
}

}  // namespace
}  // namespace ep::fabric::sim
