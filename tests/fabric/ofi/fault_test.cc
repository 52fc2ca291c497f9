// SPDX-License-Identifier: Apache-2.0
// What goes wrong while ranks meet, and a peer that dies.
#include "fabric/ofi/description.h"
#include "fabric/ofi/ofi.h"
#include "tests/fabric/ofi/tampering_bootstrap.h"
#include "tests/fabric/ofi/test_net.h"
#include "tests/support/process_state.h"
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace ep::test {
namespace {

using fabric::NetEvent;
using fabric::OfiConfig;
using fabric::Posted;
using std::chrono::milliseconds;

/// Of the descriptions of endpoints.
constexpr int kFirstCall = 0;

class OfiFault : public testing::Test {
 protected:
  /// The first transport of a process takes long: libfabric looks for providers.
  static void SetUpTestSuite() {
    check_ranks({.num_ranks = 1}, [](RankContext& rank) {
      const auto made = make_ofi_transport(rank.bootstrap(), loopback_config(), test_deadline());
      rank.expect_ok(made.status(), "make");
    });
  }
};

/// make_ofi_transport on two ranks; `config_of` may differ by rank.
void expect_failure(const std::function<OfiConfig(int)>& config_of,
                    const std::function<void(RankContext&, const Status&)>& check) {
  check_ranks({.num_ranks = 2}, [&](RankContext& rank) {
    const auto made = make_ofi_transport(rank.bootstrap(), config_of(rank.rank()), test_deadline());
    if (rank.expect(!made.ok(), "there must be no transport")) check(rank, made.status());
  });
}

void expect_words(RankContext& rank,
                  const Status& status,
                  std::initializer_list<const char*> words) {
  for (const char* word : words) {
    rank.expect(status.message().find(word) != std::string::npos,
                std::string("no '") + word + "' in: " + status.message());
  }
}

TEST_F(OfiFault, AWrongProviderIsNamedWithThoseThatExist) {
  expect_failure(
      [](int) {
        OfiConfig config;
        config.provider = "carrier-pigeon";
        return config;
      },
      [](RankContext& rank, const Status& status) {
        rank.expect(status.code() == Errc::kInvalidArgument, status.to_string());
        expect_words(rank, status, {"carrier-pigeon", "ofi_rxm"});
      });
}

TEST_F(OfiFault, AWrongInterfaceIsNamedWithThoseThatExist) {
  expect_failure(
      [](int) {
        OfiConfig config;
        config.interface = "10.254.254.254";
        return config;
      },
      [](RankContext& rank, const Status& status) {
        rank.expect(status.code() == Errc::kInvalidArgument, status.to_string());
        expect_words(rank, status, {"10.254.254.254", "127.0.0.1"});
      });
}

TEST_F(OfiFault, OneRankWithoutEndpointsTellsTheOthers) {
  expect_failure(
      [](int rank) {
        OfiConfig config = loopback_config();
        if (rank == 1) config.provider = "carrier-pigeon";
        return config;
      },
      [](RankContext& rank, const Status& status) {
        rank.expect(status.code() == Errc::kInvalidArgument, status.to_string());
        expect_words(rank, status, {"carrier-pigeon"});
        if (rank.rank() == 0) rank.expect(status.peer() == 1, "rank 1 is to blame");
      });
}

TEST_F(OfiFault, RanksThatDifferAreRefused) {
  expect_failure(
      [](int rank) {
        OfiConfig config = loopback_config();
        config.num_contexts = 1 + rank;
        return config;
      },
      [](RankContext& rank, const Status& status) {
        rank.expect(status.code() == Errc::kInvalidArgument, status.to_string());
        rank.expect(status.peer() == 1 - rank.rank(), "the other rank is named");
        expect_words(rank, status, {"1 context(s)", "2 context(s)"});
      });
}

TEST_F(OfiFault, TooManyContextsAreRefused) {
  for (int num_contexts : {-1, 0, fabric::kMaxOfiContexts + 1}) {
    expect_failure(
        [num_contexts](int) {
          OfiConfig config = loopback_config();
          config.num_contexts = num_contexts;
          return config;
        },
        [](RankContext& rank, const Status& status) {
          rank.expect(status.code() == Errc::kInvalidArgument, status.to_string());
        });
  }
}

/// Each rank sees what `tamper` makes of what the other one said first.
void with_tampered_peer(const std::function<void(Bootstrap::Bytes&)>& tamper,
                        milliseconds patience,
                        const std::function<void(RankContext&, const Status&)>& check) {
  check_ranks({.num_ranks = 2}, [&](RankContext& rank) {
    const int peer = 1 - rank.rank();
    TamperingBootstrap bootstrap(rank.bootstrap(), [&](int call, auto& contributions) {
      if (call == kFirstCall) tamper(contributions[static_cast<std::size_t>(peer)]);
    });
    const auto made =
        make_ofi_transport(bootstrap, loopback_config(), base::Deadline::after(patience));
    if (!rank.expect(!made.ok(), "there must be no transport")) return;
    rank.expect(made.status().peer() == peer, "whom to blame: " + made.status().to_string());
    check(rank, made.status());
  });
}

TEST_F(OfiFault, APeerOfAnotherVersionIsRefused) {
  const std::size_t version_at = 4;
  with_tampered_peer([&](Bootstrap::Bytes& bytes) { bytes[version_at] = std::byte{9}; }, kPatience,
                     [](RankContext& rank, const Status& status) {
                       rank.expect(status.code() == Errc::kUnsupported, status.to_string());
                       expect_words(rank, status, {"version 9", "version 1"});
                     });
}

TEST_F(OfiFault, ATruncatedDescriptionIsRefused) {
  for (std::size_t cut : {std::size_t{1}, std::size_t{17}}) {
    with_tampered_peer([&](Bootstrap::Bytes& bytes) { bytes.resize(bytes.size() - cut); },
                       kPatience,
                       [](RankContext& rank, const Status& status) {
                         rank.expect(status.code() == Errc::kFabric, status.to_string());
                       });
  }
}

/// A start that cannot succeed waits that long; all that is needed takes a few milliseconds.
constexpr milliseconds kShortPatience{1500};

/// A port of this host on which nobody listens.
class ClosedPort {
 public:
  ClosedPort() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = address.sin_port;
  }
  ClosedPort(const ClosedPort&) = delete;
  ClosedPort& operator=(const ClosedPort&) = delete;
  ~ClosedPort() { ::close(fd_); }
  std::uint16_t network_order() const { return port_; }

 private:
  int fd_;
  std::uint16_t port_ = 0;
};

/// Replaces the port of the last address of a description, a sockaddr_in at its end.
void set_port(Bootstrap::Bytes& bytes, std::uint16_t network_order) {
  const std::size_t at = bytes.size() - sizeof(sockaddr_in) + offsetof(sockaddr_in, sin_port);
  std::memcpy(bytes.data() + at, &network_order, sizeof(network_order));
}

TEST_F(OfiFault, AnAddressThatDoesNotAnswerIsNamedAtTheDeadline) {
  const ClosedPort port;
  with_tampered_peer(
      [&](Bootstrap::Bytes& bytes) { set_port(bytes, port.network_order()); }, kShortPatience,
      [&](RankContext& rank, const Status& status) {
        rank.expect(status.code() == Errc::kPeerTimeout, status.to_string());
        const std::string address = "127.0.0.1:" + std::to_string(ntohs(port.network_order()));
        const std::string peer = "rank " + std::to_string(1 - rank.rank());
        expect_words(rank, status, {address.c_str(), "EP_NET_INTERFACE", peer.c_str()});
      });
}

TEST_F(OfiFault, APeerThatNeverCallsIsNamedAtTheDeadline) {
  check_ranks({.num_ranks = 2}, [](RankContext& rank) {
    if (rank.rank() == 1) return;
    const auto made = make_ofi_transport(rank.bootstrap(), loopback_config(),
                                         base::Deadline::after(kShortPatience));
    rank.expect(
        !made.ok() && made.status().code() == Errc::kPeerTimeout && made.status().peer() == 1,
        made.status().to_string());
  });
}

/// 1.17's rxm reports wrong sources; later ones may have learnt it.
TEST_F(OfiFault, AProviderWithWrongSourcesIsRefusedByItsName) {
  OfiConfig config = loopback_config();
  config.provider = "tcp;ofi_rxm";
  check_ranks({.num_ranks = 2}, [&](RankContext& rank) {
    const auto made = make_ofi_transport(rank.bootstrap(), config, test_deadline());
    if (made.ok()) return;
    rank.expect(made.status().code() == Errc::kUnsupported, made.status().to_string());
    expect_words(rank, made.status(), {"tcp;ofi_rxm"});
  });
}

/// The port of rank 1's only endpoint.
std::uint16_t port_of(const Bootstrap::Bytes& bytes) {
  const auto description = fabric::decode_description(1, bytes);
  sockaddr_in address{};
  EXPECT_TRUE(description.ok());
  std::memcpy(&address, description->addresses.front().data(), sizeof(address));
  return address.sin_port;
}

void send_garbage(std::uint16_t network_order_port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = network_order_port;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  std::array<unsigned char, 4096> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 37);
  // The other end may hang up in the middle.
  (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::close(fd);
}

TEST_F(OfiFault, AStrangerOnThePortDisturbsNobody) {
  check_ranks({.num_ranks = 2}, [](RankContext& rank) {
    std::uint16_t port = 0;
    TamperingBootstrap bootstrap(rank.bootstrap(), [&](int call, auto& contributions) {
      if (call == kFirstCall) port = port_of(contributions[1]);
    });
    auto net = TestNet::make(bootstrap, loopback_config(), 64);
    if (!rank.expect_ok(net.status(), "make")) return;
    for (int i = 0; i < 8 && rank.rank() == 0; ++i) {
      send_garbage(port);
      rank.expect_ok((*net)->write({.peer = 1, .bytes = 8, .immediate = 7}), "write");
    }
    if (rank.rank() == 1) {
      rank.expect_ok(
          (*net)->poll_until([&] { return (*net)->count(NetEvent::Kind::kArrival) == 8; }),
          "writes among garbage");
    }
    rank.expect_ok((*net)->meet(rank.bootstrap()), "meet");
    for (const NetEvent& event : (*net)->events()) {
      rank.expect(event.kind != NetEvent::Kind::kFailure, "no failure");
    }
  });
}

/// Writes to a peer that dies until that shows, or for a while. The number of writes.
int write_until_refused(TestNet& net, std::int64_t bytes, milliseconds limit) {
  const base::Deadline deadline = base::Deadline::after(limit);
  int num_posted = 0;
  while (!deadline.expired()) {
    const Posted posted = net.transport().write(TestNet::op_of({.peer = 1, .bytes = bytes}));
    if (posted == Posted::kFailed) break;
    num_posted += posted == Posted::kYes ? 1 : 0;
    net.poll_once();
    if (posted == Posted::kBusy) net.transport().sleep(0, milliseconds(1));
  }
  return num_posted;
}

/// Rank 1 hears from rank 0, then dies `delay` later without another poll. Rank 0 runs `survive`.
void with_killed_peer(milliseconds delay,
                      std::int64_t window_bytes,
                      const std::function<void(RankContext&, TestNet&)>& survive) {
  const auto reports =
      run_ranks({.num_ranks = 2, .launch = Launch::kForks}, [&](RankContext& rank) {
        auto net = TestNet::make(rank.bootstrap(), loopback_config(), window_bytes);
        if (!rank.expect_ok(net.status(), "make")) return;
        if (rank.rank() == 1) {
          rank.expect_ok((*net)->poll_until([&] { return !(*net)->events().empty(); }), "poll");
          std::this_thread::sleep_for(delay);
          ::raise(SIGKILL);
        }
        rank.expect_ok((*net)->write({.peer = 1, .bytes = 8, .immediate = 1}), "write");
        survive(rank, **net);
      });
  EXPECT_EQ(reports[1].exit_signal, SIGKILL);
  EXPECT_EQ(reports[0].exit_signal, 0);
  for (const std::string& failure : reports[0].failures) ADD_FAILURE() << failure;
}

TEST_F(OfiFault, WritesInFlightToAKilledPeerFail) {
  constexpr std::int64_t kBytes = 1 << 20;  // many of them: more than sockets hold
  with_killed_peer(milliseconds(200), kBytes, [](RankContext& rank, TestNet& net) {
    const int num_posted = 1 + write_until_refused(net, kBytes, kPatience);
    const Status status = net.transport().failure(0);
    rank.expect(status.code() == Errc::kFabric && status.peer() == 1, status.to_string());
    const auto num_ended = [&net] {
      return net.count(NetEvent::Kind::kFailure) + net.count(NetEvent::Kind::kSourceFree);
    };
    rank.expect_ok(net.poll_until([&] { return num_ended() == num_posted; }),
                   "every write ends, so that nobody waits for it");
    rank.expect(net.count(NetEvent::Kind::kFailure) > 0, "a failure is an event");
    for (const NetEvent& event : net.events()) {
      if (event.kind != NetEvent::Kind::kFailure) continue;
      rank.expect(event.peer == 1 && event.error > 0, "peer and errno of a failure");
    }
  });
}

/// The network says nothing about a peer that dies while nothing is on its way: that is for
/// whoever watches over liveness. It must neither hang nor crash.
TEST_F(OfiFault, AnIdleNetworkOutlivesAKilledPeer) {
  with_killed_peer(milliseconds(0), 64, [](RankContext& /*rank*/, TestNet& net) {
    net.transport().sleep(0, milliseconds(100));
    write_until_refused(net, 8, milliseconds(300));
  });
}

}  // namespace
}  // namespace ep::test
