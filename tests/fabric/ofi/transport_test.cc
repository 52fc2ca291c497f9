// SPDX-License-Identifier: Apache-2.0
// The libfabric transport between threads and between processes of this host.
#include "fabric/ofi/ofi.h"
#include "tests/fabric/ofi/test_net.h"
#include "tests/support/process_state.h"
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <set>
#include <thread>

namespace ep::test {
namespace {

using fabric::ArrivalOrder;
using fabric::NetEvent;
using fabric::OfiConfig;
using fabric::Posted;
using Kind = NetEvent::Kind;

struct Group {
  int num_ranks;
  Launch launch;
  bool may_be_ordered;
};

class OfiGroup : public testing::TestWithParam<Group> {
 protected:
  RanksOptions options() const {
    return {.num_ranks = GetParam().num_ranks, .launch = GetParam().launch};
  }
  OfiConfig config(int num_contexts) const {
    OfiConfig config = loopback_config();
    config.num_contexts = num_contexts;
    config.may_be_ordered = GetParam().may_be_ordered;
    return config;
  }
};

constexpr std::array<std::int64_t, 5> kSizes = {1, 8, 4096, 65'536, 0};
constexpr std::int64_t kCellBytes = 65'536;

/// Where rank `src` writes at `dst` and where at the source: cell of the sender, in its half.
std::int64_t target_of(int src_rank) { return src_rank * kCellBytes; }
std::int64_t source_of(int num_ranks, int dst_rank) { return (num_ranks + dst_rank) * kCellBytes; }

std::byte value_of(int src_rank, int dst_rank, int round) {
  return static_cast<std::byte>(1 + (src_rank * 16 + dst_rank * 64 + round) % 255);
}

/// One round of every rank to every other one.
void write_round(RankContext& rank, TestNet& net, int context, int round) {
  const std::int64_t bytes = kSizes[static_cast<std::size_t>(round) % kSizes.size()];
  for (int peer = 0; peer < rank.num_ranks(); ++peer) {
    if (peer == rank.rank()) continue;
    const std::int64_t src = source_of(rank.num_ranks(), peer);
    std::fill_n(net.memory().begin() + src, bytes, value_of(rank.rank(), peer, round));
    rank.expect_ok(net.write({.peer = peer,
                              .context = context,
                              .src = src,
                              .dst = target_of(rank.rank()),
                              .bytes = bytes,
                              .immediate = static_cast<std::uint32_t>(round),
                              .cookie = static_cast<std::uint64_t>(round)}),
                   "write");
  }
}

void check_round(RankContext& rank, TestNet& net, int round) {
  const std::int64_t bytes = kSizes[static_cast<std::size_t>(round) % kSizes.size()];
  for (int peer = 0; peer < rank.num_ranks(); ++peer) {
    if (peer == rank.rank()) continue;
    const auto first = net.memory().begin() + target_of(peer);
    const std::byte expected = value_of(peer, rank.rank(), round);
    rank.expect(std::all_of(first, first + bytes,
                            [expected](std::byte value) { return value == expected; }),
                "round " + std::to_string(round) + ": bytes of rank " + std::to_string(peer));
  }
}

TEST_P(OfiGroup, WritesArriveWithTheirImmediatesFromTheirSenders) {
  constexpr int kContexts = 2;
  const int num_rounds = scaled_rounds(20, 200);
  check_ranks(options(), [&](RankContext& rank) {
    auto net =
        TestNet::make(rank.bootstrap(), config(kContexts), 2 * rank.num_ranks() * kCellBytes);
    if (!rank.expect_ok(net.status(), "make")) return;
    const int num_peers = rank.num_ranks() - 1;
    for (int round = 0; round < num_rounds; ++round) {
      rank.step("round", round);
      write_round(rank, **net, round % kContexts, round);
      const int expected = (round + 1) * num_peers;
      rank.expect_ok((*net)->poll_until([&] {
        return (*net)->count(Kind::kArrival) >= expected &&
               (*net)->count(Kind::kSourceFree) >= expected;
      }),
                     "arrivals");
      check_round(rank, **net, round);
      rank.expect_ok((*net)->meet(rank.bootstrap()), "meet");
    }
    std::map<int, std::vector<std::uint32_t>> by_peer;
    for (const NetEvent& event : (*net)->events()) {
      if (event.kind == Kind::kArrival) by_peer[event.peer].push_back(event.immediate);
    }
    rank.expect(static_cast<int>(by_peer.size()) == num_peers, "every peer is a source");
    for (const auto& [peer, immediates] : by_peer) {
      for (std::size_t i = 0; i < immediates.size(); ++i) {
        rank.expect(peer != rank.rank() && immediates[i] == i, "immediates of a peer");
      }
    }
  });
}

TEST_P(OfiGroup, HasTheOrderThatWasAllowed) {
  check_ranks(options(), [&](RankContext& rank) {
    const auto net = TestNet::make(rank.bootstrap(), config(1), kCellBytes);
    if (!rank.expect_ok(net.status(), "make")) return;
    const auto expected =
        GetParam().may_be_ordered ? ArrivalOrder::kOrdered : ArrivalOrder::kUnordered;
    rank.expect((*net)->transport().traits().order == expected,
                "order of " + (*net)->transport().traits().name);
  });
}

TEST_P(OfiGroup, ReadsWhatThePeerHas) {
  check_ranks(options(), [&](RankContext& rank) {
    auto net = TestNet::make(rank.bootstrap(), config(1), 2 * kCellBytes);
    if (!rank.expect_ok(net.status(), "make")) return;
    std::fill_n((*net)->memory().begin(), kCellBytes, static_cast<std::byte>(1 + rank.rank()));
    rank.expect_ok((*net)->meet(rank.bootstrap()), "meet");
    const int peer = (rank.rank() + 1) % rank.num_ranks();
    rank.expect_ok(
        (*net)->read({.peer = peer, .dst = {0, kCellBytes}, .bytes = kCellBytes, .cookie = 77}),
        "read");
    rank.expect_ok((*net)->poll_until([&] { return (*net)->count(Kind::kReadDone) == 1; }),
                   "read done");
    rank.expect((*net)->events().back().cookie == 77 && (*net)->events().back().peer == peer,
                "cookie and peer of the read");
    rank.expect((*net)->memory().back() == static_cast<std::byte>(1 + peer), "bytes of the read");
    rank.expect_ok((*net)->meet(rank.bootstrap()), "meet");
  });
}

INSTANTIATE_TEST_SUITE_P(Groups,
                         OfiGroup,
                         testing::Values(Group{2, Launch::kThreads, true},
                                         Group{2, Launch::kThreads, false},
                                         Group{4, Launch::kThreads, true},
                                         Group{2, Launch::kForks, true},
                                         Group{4, Launch::kForks, false}));

/// Two ranks as threads; rank 1 only stays until rank 0 is done.
void with_one_active_rank(const std::function<void(RankContext&, TestNet&)>& active) {
  check_ranks({.num_ranks = 2}, [&](RankContext& rank) {
    auto net = TestNet::make(rank.bootstrap(), loopback_config(), 4 * kCellBytes);
    if (!rank.expect_ok(net.status(), "make")) return;
    if (rank.rank() == 0) active(rank, **net);
    rank.expect_ok((*net)->meet(rank.bootstrap()), "meet");
  });
}

TEST(OfiTransport, RefusesPlacesOutsideTheirWindows) {
  with_one_active_rank([](RankContext& rank, TestNet& net) {
    const std::int64_t size = 4 * kCellBytes;
    const auto expect_refused = [&](const fabric::WriteOp& op, const char* what) {
      rank.expect(net.transport().write(op) == Posted::kFailed, what);
      rank.expect(net.transport().failure(0).code() == Errc::kInvalidArgument, what);
      const fabric::ReadOp read = {
          .peer = op.peer, .dst = op.src, .src = op.dst, .bytes = op.bytes};
      rank.expect(net.transport().read(read) == Posted::kFailed, what);
    };
    expect_refused({.peer = 1, .src = {0, size - 7}, .bytes = 8}, "source past the end");
    expect_refused({.peer = 1, .dst = {0, size - 7}, .bytes = 8}, "target past the end");
    expect_refused({.peer = 1, .src = {0, -1}, .bytes = 8}, "source before the begin");
    expect_refused({.peer = 1, .dst = {0, -8}, .bytes = 8}, "target before the begin");
    expect_refused({.peer = 1, .bytes = -1}, "negative size");
    expect_refused({.peer = 1, .dst = {0, INT64_MAX - 3}, .bytes = 8}, "an offset that wraps");
    expect_refused({.peer = 1, .src = {1, 0}, .bytes = 8}, "no window of this rank");
    expect_refused({.peer = 1, .dst = {1, 0}, .bytes = 8}, "no window of the peer");
    expect_refused({.peer = 1, .dst = {-1, 0}, .bytes = 8}, "a negative window");
    expect_refused({.peer = 0, .bytes = 8}, "itself");
    expect_refused({.peer = 2, .bytes = 8}, "no rank");
    rank.expect_ok(net.write({.peer = 1, .src = size - 8, .dst = size, .bytes = 0, .immediate = 1}),
                   "nothing at the end of a window");
    rank.expect_ok(net.poll_until([&] { return net.count(Kind::kSourceFree) == 1; }), "complete");
  });
}

TEST(OfiTransport, RefusesWhatIsNoDescriptionOfAWindow) {
  with_one_active_rank([](RankContext& rank, TestNet& net) {
    const std::vector<std::byte> good = net.transport().describe_window(0);
    for (std::size_t size = 0; size < good.size(); ++size) {
      const auto part = std::span(good).first(size);
      const Status status = net.transport().set_peer_window(1, 0, part);
      rank.expect(status.code() == Errc::kFabric && status.peer() == 1, "a truncated description");
    }
    std::vector<std::byte> longer = good;
    longer.push_back(std::byte{0});
    rank.expect(!net.transport().set_peer_window(1, 0, longer).ok(), "a description with a tail");
  });
}

TEST(OfiTransport, HasSeveralWindows) {
  check_ranks({.num_ranks = 2}, [](RankContext& rank) {
    auto net = TestNet::make(rank.bootstrap(), loopback_config(), 64);
    if (!rank.expect_ok(net.status(), "make")) return;
    std::vector<std::byte> second(128, static_cast<std::byte>(10 + rank.rank()));
    fabric::Transport& transport = (*net)->transport();
    const auto window = transport.add_window(second);
    if (!rank.expect(window.ok() && *window == 1, "the next window is 1")) return;
    const auto all = rank.bootstrap().all_gather(transport.describe_window(1), kPatience);
    if (!rank.expect_ok(all.status(), "descriptions")) return;
    const int peer = 1 - rank.rank();
    rank.expect_ok(transport.set_peer_window(peer, 1, (*all)[static_cast<std::size_t>(peer)]),
                   "set");
    // From window 1 into the peer's window 0.
    const fabric::WriteOp op = {
        .peer = peer, .src = {1, 100}, .dst = {0, 8}, .bytes = 28, .immediate = 5};
    rank.expect(transport.write(op) == Posted::kYes, "write");
    rank.expect_ok((*net)->poll_until([&] { return (*net)->count(Kind::kArrival) == 1; }), "poll");
    const std::byte expected = static_cast<std::byte>(10 + peer);
    rank.expect((*net)->memory()[7] == std::byte{0} && (*net)->memory()[8] == expected &&
                    (*net)->memory()[35] == expected && (*net)->memory()[36] == std::byte{0},
                "only the 28 bytes");
    rank.expect_ok((*net)->meet(rank.bootstrap()), "meet");
  });
}

TEST(OfiTransport, IsBusyAfterAsManyWritesAsItHolds) {
  with_one_active_rank([](RankContext& rank, TestNet& net) {
    const int limit = net.transport().traits().max_outstanding;
    int num_posted = 0;
    while (num_posted <= limit &&
           net.transport().write(TestNet::op_of(
               {.peer = 1, .bytes = 8, .cookie = static_cast<std::uint64_t>(num_posted)})) ==
               Posted::kYes) {
      ++num_posted;
    }
    rank.expect(num_posted == limit, std::to_string(num_posted) + " writes without a poll");
    rank.expect_ok(net.poll_until([&] { return net.count(Kind::kSourceFree) == num_posted; }),
                   "all complete");
    std::set<std::uint64_t> cookies;
    for (const NetEvent& event : net.events()) cookies.insert(event.cookie);
    rank.expect(static_cast<int>(cookies.size()) == num_posted, "every cookie once");
    rank.expect_ok(net.write({.peer = 1, .bytes = 8}), "then it takes more");
    rank.expect_ok(net.poll_until([&] { return net.count(Kind::kSourceFree) == num_posted + 1; }),
                   "complete");
  });
}

std::int64_t thread_cpu_ms() {
  std::timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
}

TEST(OfiTransport, SleepsWithoutWorkingAndForABoundedTime) {
  with_one_active_rank([](RankContext& rank, TestNet& net) {
    const std::int64_t before = thread_cpu_ms();
    net.transport().sleep(0, std::chrono::milliseconds(500));
    const std::int64_t used = thread_cpu_ms() - before;
    rank.expect(used < 250, std::to_string(used) + " ms of work in 500 ms of sleep");
  });
}

TEST(OfiTransport, WakesWhenSomethingArrives) {
  check_ranks({.num_ranks = 2}, [](RankContext& rank) {
    auto net = TestNet::make(rank.bootstrap(), loopback_config(), 64);
    if (!rank.expect_ok(net.status(), "make")) return;
    if (rank.rank() == 0) {
      // Far beyond the limit of the test.
      (*net)->transport().sleep(0, std::chrono::hours(1));
      std::array<NetEvent, 4> events;
      rank.expect((*net)->transport().poll(0, std::span(events).first(0)) == 0, "no room");
      rank.expect((*net)->transport().poll(0, events) == 1 && events[0].immediate == 99,
                  "the arrival that ended the sleep");
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      rank.expect_ok((*net)->write({.peer = 0, .bytes = 8, .immediate = 99}), "write");
    }
    rank.expect_ok((*net)->meet(rank.bootstrap()), "meet");
  });
}

/// Writes to the peer and hears from it, `num_writes` times, in one context. What went wrong.
std::string run_context(fabric::Transport& transport, int context, int num_writes) {
  const base::Deadline deadline = test_deadline();
  const auto immediate_of = [context](int number) {
    return static_cast<std::uint32_t>(context << 24 | number);
  };
  int num_posted = 0;
  int num_done = 0;
  int num_arrived = 0;
  while (num_arrived < num_writes || num_done < num_writes) {
    if (deadline.expired()) return "late";
    if (num_posted < num_writes) {
      const Posted posted = transport.write({.peer = 1 - transport.rank(),
                                             .context = context,
                                             .src = {0, context * 64},
                                             .dst = {0, context * 64 + 8},
                                             .bytes = 8,
                                             .immediate = immediate_of(num_posted)});
      if (posted == Posted::kFailed) return transport.failure(context).to_string();
      num_posted += posted == Posted::kYes ? 1 : 0;
    }
    std::array<NetEvent, 16> events;
    const int num = transport.poll(context, events);
    for (const NetEvent& event : std::span(events).first(static_cast<std::size_t>(num))) {
      num_done += event.kind == Kind::kSourceFree ? 1 : 0;
      if (event.kind != Kind::kArrival) continue;
      if (event.immediate != immediate_of(num_arrived)) return "an immediate out of order";
      ++num_arrived;
    }
    if (num == 0) std::this_thread::yield();
  }
  return {};
}

TEST(OfiTransport, ContextsServeThreadsOfTheirOwn) {
  constexpr int kContexts = 3;
  const int num_writes = scaled_rounds(500, 20'000);
  OfiConfig config = loopback_config();
  config.num_contexts = kContexts;
  check_ranks({.num_ranks = 2}, [&](RankContext& rank) {
    auto net = TestNet::make(rank.bootstrap(), config, kContexts * 64);
    if (!rank.expect_ok(net.status(), "make")) return;
    std::array<std::string, kContexts> findings;
    {
      std::vector<std::jthread> threads;
      for (int context = 0; context < kContexts; ++context) {
        threads.emplace_back([&, context] {
          findings[static_cast<std::size_t>(context)] =
              run_context((*net)->transport(), context, num_writes);
        });
      }
    }
    for (const std::string& finding : findings) rank.expect_nothing(finding, "a context");
    rank.expect_ok((*net)->meet(rank.bootstrap()), "meet");
  });
}

TEST(OfiTransport, LeavesNothingBehind) {
  const int num_cycles = 50;
  const auto cycle = [] {
    check_ranks({.num_ranks = 2}, [](RankContext& rank) {
      OfiConfig config = loopback_config();
      config.num_contexts = 2;
      const auto net = TestNet::make(rank.bootstrap(), config, 4096);
      rank.expect_ok(net.status(), "make");
      // One rank may go while the other one is still there.
    });
  };
  cycle();
  await_num_threads(1, std::chrono::seconds(5));
  const ProcessState before = process_state();
  for (int i = 0; i < num_cycles; ++i) cycle();
  await_num_threads(before.num_threads, std::chrono::seconds(5));
  const ProcessState after = process_state();
  EXPECT_EQ(after.num_fds, before.num_fds);
  EXPECT_EQ(after.num_threads, before.num_threads);
}

TEST(OfiTransport, ServesOneRank) {
  check_ranks({.num_ranks = 1}, [](RankContext& rank) {
    const auto net = TestNet::make(rank.bootstrap(), loopback_config(), 64);
    rank.expect_ok(net.status(), "make");
  });
}

}  // namespace
}  // namespace ep::test
