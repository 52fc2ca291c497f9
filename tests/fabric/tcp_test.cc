// SPDX-License-Identifier: Apache-2.0
// Bootstrap over sockets: what it carries, and what every rank hears when one is wrong.
#include "tests/fabric/listener.h"
#include "tests/fabric/tcp_ranks.h"
#include "tests/support/test_scale.h"

#include <ep/bootstrap.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <random>
#include <string>
#include <vector>

namespace ep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{20'000};

Bootstrap::Bytes bytes_of(int rank, int round) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + round));
  const std::size_t sizes[] = {0, 1, 17, 4096, 300'000};
  Bootstrap::Bytes bytes(sizes[random() % 5]);
  for (std::size_t i = 0; i < bytes.size(); i += 61) bytes[i] = static_cast<std::byte>(random());
  return bytes;
}

Status gather_rounds(Bootstrap& bootstrap) {
  const int rounds = test::scaled_rounds(60, 600);
  for (int round = 0; round < rounds; ++round) {
    const auto all = bootstrap.all_gather(bytes_of(bootstrap.rank(), round), kPatience);
    if (!all.ok()) return all.status();
    for (int rank = 0; rank < bootstrap.num_ranks(); ++rank) {
      if ((*all)[static_cast<std::size_t>(rank)] != bytes_of(rank, round)) {
        return Status(Errc::kInternal, "wrong bytes of rank " + std::to_string(rank));
      }
    }
  }
  return bootstrap.barrier(kPatience);
}

void expect_gathers(const std::vector<TcpBootstrapConfig>& configs) {
  auto bootstraps = test::connect_ranks(configs);
  for (const Status& status : test::on_each(bootstraps, gather_rounds)) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

TEST(TcpBootstrap, GathersInRankOrderOverAnAbstractSocket) {
  for (int num_ranks : {1, 2, 5}) expect_gathers(test::local_configs(num_ranks, kPatience));
}

TEST(TcpBootstrap, GathersInRankOrderOverTcp) {
  auto configs = test::local_configs(3, kPatience);
  const int port = test::free_port();
  for (auto& config : configs) {
    config.address = "127.0.0.1";
    config.port = port;
    config.cookie = "shared";
  }
  expect_gathers(configs);
}

TEST(TcpBootstrap, FindsAFreePortOfItsOwn) {
  auto configs = test::local_configs(3, kPatience);
  for (auto& config : configs) config.address = "127.0.0.1";
  expect_gathers(configs);
}

TEST(TcpBootstrap, ConnectsAgainUnderTheSameName) {
  const auto configs = test::local_configs(3, kPatience);
  for (int round = 0; round < 20; ++round) {
    auto bootstraps = test::connect_ranks(configs);
    for (const auto& bootstrap : bootstraps) {
      ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
    }
    for (const Status& status : test::on_each(
             bootstraps, [](Bootstrap& bootstrap) { return bootstrap.barrier(kPatience); })) {
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }
}

TEST(TcpBootstrap, EveryRankNamesThoseThatDoNotCome) {
  auto configs = test::local_configs(5, milliseconds(400));
  configs.erase(configs.begin() + 3);
  configs.erase(configs.begin() + 1);
  for (const auto& bootstrap : test::connect_ranks(configs)) {
    ASSERT_FALSE(bootstrap.ok());
    EXPECT_EQ(bootstrap.status().code(), Errc::kPeerTimeout);
    EXPECT_EQ(bootstrap.status().peer(), 1);
    EXPECT_NE(bootstrap.status().message().find("2 of 5 ranks did not come"), std::string::npos);
    EXPECT_NE(bootstrap.status().message().find("rank 1, 3"), std::string::npos)
        << bootstrap.status().message();
  }
}

TEST(TcpBootstrap, WithoutRankZeroTheOthersNameIt) {
  auto configs = test::local_configs(3, milliseconds(200));
  configs.erase(configs.begin());
  for (const auto& bootstrap : test::connect_ranks(configs)) {
    EXPECT_EQ(bootstrap.status().code(), Errc::kPeerTimeout);
    EXPECT_EQ(bootstrap.status().peer(), 0);
  }
}

TEST(TcpBootstrap, EveryRankHearsOfTwoWithOneNumber) {
  auto configs = test::local_configs(4, kPatience);
  configs[3].rank = 1;
  for (const auto& bootstrap : test::connect_ranks(configs)) {
    ASSERT_FALSE(bootstrap.ok());
    EXPECT_EQ(bootstrap.status().code(), Errc::kInvalidArgument);
    EXPECT_EQ(bootstrap.status().peer(), 1);
    EXPECT_NE(bootstrap.status().message().find("two processes are rank 1 of 4"),
              std::string::npos);
  }
}

TEST(TcpBootstrap, EveryRankHearsOfAnotherWorldSize) {
  auto configs = test::local_configs(4, kPatience);
  configs[2].num_ranks = 5;
  // With size 5 a fifth rank is expected; it is not there, and the verdict must not wait for it
  // long.
  const auto start = std::chrono::steady_clock::now();
  for (const auto& bootstrap : test::connect_ranks(configs)) {
    ASSERT_FALSE(bootstrap.ok());
    EXPECT_EQ(bootstrap.status().code(), Errc::kInvalidArgument);
    EXPECT_NE(
        bootstrap.status().message().find("rank 2 has num_ranks = 5, rank 0 has num_ranks = 4"),
        std::string::npos)
        << bootstrap.status().message();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kPatience / 2);
}

TEST(TcpBootstrap, APortInUseIsAnErrorOfRankZero) {
  const test::TcpListener other = test::listen_on_loopback();
  auto configs = test::local_configs(2, milliseconds(300));
  for (auto& config : configs) {
    config.address = "127.0.0.1";
    config.port = other.port;
  }
  const auto bootstraps = test::connect_ranks(configs);
  EXPECT_EQ(bootstraps[0].status().code(), Errc::kFabric);
  EXPECT_EQ(bootstraps[0].status().native_code(), EADDRINUSE);
  EXPECT_NE(bootstraps[0].status().message().find(std::to_string(other.port)), std::string::npos);
  EXPECT_EQ(bootstraps[1].status().code(), Errc::kPeerTimeout);
  EXPECT_EQ(bootstraps[1].status().peer(), 0);
}

TEST(TcpBootstrap, AnUnknownHostIsAnError) {
  auto configs = test::local_configs(2, milliseconds(300));
  configs[1].address = "no such host.invalid";
  configs[1].port = 1;
  configs[1].cookie = "shared";
  const auto bootstrap = make_tcp_bootstrap(configs[1]);
  EXPECT_EQ(bootstrap.status().code(), Errc::kInvalidArgument);
  EXPECT_NE(bootstrap.status().message().find("no such host.invalid"), std::string::npos);
}

TEST(TcpBootstrap, EveryRankNamesTheOneThatIsLate) {
  auto bootstraps = test::connect_ranks(test::local_configs(3, kPatience));
  const auto statuses = test::on_each(bootstraps, [](Bootstrap& bootstrap) {
    return bootstrap.rank() == 2 ? Status() : bootstrap.barrier(milliseconds(200));
  });
  for (int rank : {0, 1}) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    EXPECT_EQ(status.code(), Errc::kPeerTimeout);
    EXPECT_EQ(status.peer(), 2) << status.to_string();
  }
  EXPECT_EQ((*bootstraps[2])->barrier(kPatience).peer(), 2) << "the late one hears it too";
  EXPECT_EQ((*bootstraps[0])->barrier(kPatience).peer(), 2) << "and it stays";
}

TEST(TcpBootstrap, TheShortestPatienceIsServed) {
  auto bootstraps = test::connect_ranks(test::local_configs(3, kPatience));
  const auto start = std::chrono::steady_clock::now();
  const auto statuses = test::on_each(bootstraps, [](Bootstrap& bootstrap) {
    if (bootstrap.rank() == 2) return Status();
    return bootstrap.barrier(bootstrap.rank() == 1 ? milliseconds(200) : kPatience);
  });
  EXPECT_EQ(statuses[1].peer(), 2) << "rank 0 must answer in time to say who is late";
  EXPECT_EQ(statuses[0].peer(), 2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kPatience / 2);
}

TEST(TcpBootstrap, EveryRankNamesTheOneThatLeft) {
  for (std::size_t leaver : {std::size_t{0}, std::size_t{2}}) {
    auto bootstraps = test::connect_ranks(test::local_configs(3, kPatience));
    ASSERT_TRUE(bootstraps[leaver].ok());
    bootstraps[leaver] = Status(Errc::kAborted, "left");
    const auto statuses = test::on_each(
        bootstraps, [](Bootstrap& bootstrap) { return bootstrap.barrier(kPatience); });
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (rank == leaver) continue;
      EXPECT_EQ(statuses[rank].code(), Errc::kPeerTimeout);
      EXPECT_EQ(statuses[rank].peer(), static_cast<int>(leaver)) << statuses[rank].to_string();
    }
  }
}

TEST(TcpBootstrap, EveryRankHearsOfAContributionThatIsTooLarge) {
  constexpr std::size_t kTooLarge = (std::size_t{64} << 20) + 1;
  for (int offender : {0, 1}) {
    auto bootstraps = test::connect_ranks(test::local_configs(3, kPatience));
    const auto statuses = test::on_each(bootstraps, [offender](Bootstrap& bootstrap) {
      const std::vector<std::byte> bytes(bootstrap.rank() == offender ? kTooLarge : 1);
      return bootstrap.all_gather(bytes, kPatience).status();
    });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), Errc::kInvalidArgument) << status.to_string();
      EXPECT_NE(status.message().find(std::to_string(kTooLarge)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace ep
