// SPDX-License-Identifier: Apache-2.0
// The libfabric transport between two hosts: network namespaces with addresses of their own,
// joined by a cable that can be cut.
#include "base/unique_fd.h"
#include "fabric/ofi/ofi.h"
#include "tests/fabric/ofi/test_net.h"
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <sched.h>
#include <string>
#include <unistd.h>

namespace ep::test {
namespace {

using fabric::NetEvent;
using fabric::OfiConfig;
using fabric::Posted;
using Kind = NetEvent::Kind;
using std::chrono::milliseconds;

bool run_ip(const std::string& arguments) {
  return std::system(("ip " + arguments + " >/dev/null 2>&1").c_str()) == 0;
}

/// Two namespaces, 10.213.7.1 and 10.213.7.2. Needs root and iproute2.
class TwoHosts {
 public:
  TwoHosts() {
    has_all_ =
        ::geteuid() == 0 && run_ip("netns add " + name(0)) && run_ip("netns add " + name(1)) &&
        run_ip("link add veth0 netns " + name(0) + " type veth peer name veth0 netns " + name(1));
    for (int host = 0; host < 2 && has_all_; ++host) {
      has_all_ = run_ip("-n " + name(host) + " addr add " + address(host) + "/24 dev veth0") &&
                 run_ip("-n " + name(host) + " link set veth0 up") &&
                 run_ip("-n " + name(host) + " link set lo up");
    }
    // Until the kernel has seen both ends up, libfabric does not list them.
    const base::Deadline deadline = test_deadline();
    for (int host = 0; host < 2 && has_all_; ++host) {
      while (has_all_ && !is_up(host)) has_all_ = !deadline.expired();
    }
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;
  ~TwoHosts() {
    for (int host = 0; host < 2; ++host) run_ip("netns del " + name(host));
  }

  bool is_there() const { return has_all_; }
  static std::string name(int host) {
    static const std::string prefix = "ep" + std::to_string(::getpid()) + "h";
    return prefix + std::to_string(host);
  }
  static std::string address(int host) { return "10.213.7." + std::to_string(1 + host); }
  /// The calling process moves to this host.
  static bool enter(const std::string& name) {
    const base::UniqueFd space(::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
    return space.is_open() && ::setns(space.get(), CLONE_NEWNET) == 0;
  }

 private:
  static bool is_up(int host) {
    return std::system(("ip -n " + name(host) + " link show veth0 | grep -q 'state UP'").c_str()) ==
           0;
  }

  bool has_all_ = false;
};

class OfiNamespaces : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.is_there()) GTEST_SKIP() << "needs root, `ip netns` and veth";
  }

  /// Rank r on host r; a process each. `config_of` by rank.
  void run(const std::function<OfiConfig(int)>& config_of,
           const std::function<void(RankContext&, TestNet&)>& body) {
    const std::array names = {TwoHosts::name(0), TwoHosts::name(1)};
    check_ranks({.num_ranks = 2, .launch = Launch::kForks}, [&](RankContext& rank) {
      const std::string& host = names[static_cast<std::size_t>(rank.rank())];
      if (!rank.expect(TwoHosts::enter(host), "enter " + host)) return;
      auto net = TestNet::make(rank.bootstrap(), config_of(rank.rank()), kBytes);
      if (rank.expect_ok(net.status(), "make")) body(rank, **net);
    });
  }

  static constexpr std::int64_t kBytes = 1 << 20;
  const TwoHosts hosts_;
};

/// Both write `num` times, and wait for as many.
void exchange(RankContext& rank, TestNet& net, int num) {
  const int before = net.count(Kind::kArrival);
  for (int i = 0; i < num; ++i) {
    rank.expect_ok(net.write({.peer = 1 - rank.rank(), .bytes = 60'000, .immediate = 1}), "write");
  }
  rank.expect_ok(net.poll_until([&] { return net.count(Kind::kArrival) == before + num; }),
                 "arrivals");
}

TEST_F(OfiNamespaces, TalkOverTheInterfaceThatIsNamed) {
  const std::array<std::function<OfiConfig(int)>, 4> choices = {
      [](int) { return OfiConfig{}; },  // the only one that is no loopback
      [](int) { return OfiConfig{.interface = "veth0"}; },
      [](int) { return OfiConfig{.interface = "10.213.7.0/24"}; },
      [](int rank) { return OfiConfig{.interface = TwoHosts::address(rank)}; }};
  for (const auto& config_of : choices) {
    run(config_of, [](RankContext& rank, TestNet& net) {
      exchange(rank, net, 20);
      rank.expect_ok(net.meet(rank.bootstrap()), "meet");
    });
  }
}

TEST_F(OfiNamespaces, LoopbackReachesNobodyAndThatIsSaid) {
  const std::array names = {TwoHosts::name(0), TwoHosts::name(1)};
  check_ranks({.num_ranks = 2, .launch = Launch::kForks}, [&](RankContext& rank) {
    rank.expect(TwoHosts::enter(names[static_cast<std::size_t>(rank.rank())]), "enter");
    const auto made = make_ofi_transport(rank.bootstrap(), loopback_config(),
                                         base::Deadline::after(milliseconds(4000)));
    rank.expect(!made.ok() && made.status().code() == Errc::kPeerTimeout, "must time out");
    rank.expect(made.status().message().find("EP_NET_INTERFACE") != std::string::npos,
                made.status().message());
  });
}

/// A cut cable is silence: calls return, nothing crashes, and all goes on when it is mended.
TEST_F(OfiNamespaces, ACutCableIsSilenceUntilItIsMended) {
  const std::string host = TwoHosts::name(0);
  run([](int) { return OfiConfig{}; },
      [&](RankContext& rank, TestNet& net) {
        exchange(rank, net, 20);
        rank.expect_ok(net.meet(rank.bootstrap()), "meet");
        if (rank.rank() == 0) rank.expect(run_ip("-n " + host + " link set veth0 down"), "cut");
        rank.expect_ok(rank.bootstrap().barrier(kPatience), "barrier");
        int num_posted = 0;
        const base::Deadline deadline = base::Deadline::after(milliseconds(500));
        while (!deadline.expired()) {
          const Posted posted = net.transport().write(
              TestNet::op_of({.peer = 1 - rank.rank(), .bytes = 60'000, .immediate = 2}));
          num_posted += posted == Posted::kYes ? 1 : 0;
          net.poll_once();
          net.transport().sleep(0, milliseconds(1));
        }
        rank.expect(num_posted > 0, "the network takes writes");
        rank.expect_ok(rank.bootstrap().barrier(kPatience), "barrier");
        if (rank.rank() == 0) rank.expect(run_ip("-n " + host + " link set veth0 up"), "mend");
        const auto all = [&] { return net.count(Kind::kSourceFree) == 20 + num_posted; };
        rank.expect_ok(net.poll_until(all), "everything went out");
        exchange(rank, net, 0);
        rank.expect_ok(net.meet(rank.bootstrap()), "meet");
        rank.expect(net.count(Kind::kFailure) == 0, "no failure");
      });
}

}  // namespace
}  // namespace ep::test
