// SPDX-License-Identifier: Apache-2.0
// A rendezvous with strangers around: wrong cookies, other jobs, garbage, silence.
#include "fabric/bootstrap/rendezvous.h"

#include "base/unique_fd.h"
#include "fabric/bootstrap/socket.h"
#include "fabric/bootstrap/wire.h"
#include "tests/fabric/listener.h"
#include "tests/fabric/tcp_ranks.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <poll.h>
#include <random>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace ep::fabric {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{20'000};

/// Ranks that may be on several hosts: a wildcard listener, and a cookie.
RendezvousSettings tcp_settings(int rank, int num_ranks, int port, milliseconds timeout) {
  RendezvousSettings settings;
  settings.rank = rank;
  settings.num_ranks = num_ranks;
  settings.is_single_host = false;
  settings.host = "127.0.0.1";
  settings.ports = {port};
  settings.job_id = "job";
  settings.cookie = "swordfish";
  settings.timeout = timeout;
  return settings;
}

Status meet(const RendezvousSettings& settings) {
  const base::Deadline deadline = base::Deadline::after(settings.timeout);
  if (settings.rank == 0) return host_rendezvous(settings, deadline).status();
  return join_rendezvous(settings, deadline).status();
}

std::vector<Status> meet_all(const std::vector<RendezvousSettings>& all) {
  std::vector<Status> statuses(all.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] { statuses[i] = meet(all[i]); });
  }
  threads.clear();
  return statuses;
}

Endpoint endpoint_of(const RendezvousSettings& settings) {
  auto endpoints = connect_endpoints(settings);
  EXPECT_TRUE(endpoints.ok());
  return endpoints->front();
}

/// Connects as soon as somebody listens.
base::UniqueFd connect_patiently(const RendezvousSettings& settings) {
  const base::Deadline deadline = base::Deadline::after(kPatience);
  const Endpoint endpoint = endpoint_of(settings);
  while (!deadline.expired()) {
    auto fd = connect_to(endpoint, deadline);
    if (fd.ok()) return std::move(*fd);
    ::poll(nullptr, 0, 2);
  }
  ADD_FAILURE() << "nobody listens";
  return {};
}

/// A job of two ranks whose second one comes only once `disturb` has done its worst.
void expect_undisturbed(const std::function<void(const RendezvousSettings&)>& disturb) {
  const int port = test::free_port();
  const RendezvousSettings host = tcp_settings(0, 2, port, kPatience);
  const RendezvousSettings guest = tcp_settings(1, 2, port, kPatience);
  Status host_status;
  Status guest_status;
  {
    std::jthread host_thread([&] { host_status = meet(host); });
    disturb(guest);
    guest_status = meet(guest);
  }
  EXPECT_TRUE(host_status.ok()) << host_status.to_string();
  EXPECT_TRUE(guest_status.ok()) << guest_status.to_string();
}

TEST(Rendezvous, ProvesTheCookieAcrossHosts) {
  const int port = test::free_port();
  const auto statuses =
      meet_all({tcp_settings(0, 3, port, kPatience), tcp_settings(1, 3, port, kPatience),
                tcp_settings(2, 3, port, kPatience)});
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(Rendezvous, RefusesAnotherCookie) {
  const int port = test::free_port();
  RendezvousSettings stranger = tcp_settings(1, 2, port, kPatience);
  stranger.cookie = "Swordfish";
  const auto statuses = meet_all({tcp_settings(0, 2, port, milliseconds(500)), stranger});
  EXPECT_EQ(statuses[0].code(), Errc::kPeerTimeout);
  EXPECT_EQ(statuses[0].peer(), 1);
  EXPECT_NE(statuses[0].message().find("refused: another EP_COOKIE"), std::string::npos);
  EXPECT_EQ(statuses[1].code(), Errc::kInvalidArgument);
  EXPECT_NE(statuses[1].message().find("EP_COOKIE is not that of rank 0"), std::string::npos);
}

TEST(Rendezvous, AnotherJobAtThePortDisturbsNobody) {
  expect_undisturbed([](const RendezvousSettings& guest) {
    RendezvousSettings other = guest;
    other.job_id = "another job";
    other.timeout = milliseconds(300);
    connect_patiently(guest);  // rank 0 listens before the other job's patience begins
    const Status status = meet(other);
    EXPECT_EQ(status.code(), Errc::kPeerTimeout);
    EXPECT_NE(status.message().find("belongs to another job"), std::string::npos)
        << status.message();
  });
}

TEST(Rendezvous, SilentAndLeavingStrangersDisturbNobody) {
  std::vector<base::UniqueFd> silent;
  expect_undisturbed([&silent](const RendezvousSettings& guest) {
    constexpr int kNumStrangers = 200;  // more than rank 0 keeps waiting
    for (int i = 0; i < kNumStrangers; ++i) {
      base::UniqueFd fd = connect_patiently(guest);
      if (i % 3 != 0) silent.push_back(std::move(fd));
    }
  });
}

TEST(Rendezvous, GarbageDisturbsNobody) {
  std::mt19937_64 random(6);
  const int rounds = test::scaled_rounds(500, 5'000);
  expect_undisturbed([&](const RendezvousSettings& guest) {
    for (int round = 0; round < rounds; ++round) {
      const base::UniqueFd fd = connect_patiently(guest);
      std::vector<std::byte> garbage(random() % 200);
      for (std::byte& b : garbage) b = static_cast<std::byte>(random());
      static_cast<void>(::send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL));
    }
  });
}

/// A hello for this guest's rank with the right form; damage is the caller's.
Bootstrap::Bytes hello_frame(const RendezvousSettings& guest, const Nonce& nonce) {
  Hello hello;
  hello.rank = guest.rank;
  hello.num_ranks = guest.num_ranks;
  hello.job_id = guest.job_id;
  hello.remaining_ms = 20'000;
  return encode({.kind = FrameKind::kHello,
                 .sequence = 0,
                 .payload = encode_hello(hello, nonce, guest.cookie)});
}

TEST(Rendezvous, DamagedHellosDisturbNobody) {
  std::mt19937_64 random(7);
  const int rounds = test::scaled_rounds(500, 5'000);
  expect_undisturbed([&](const RendezvousSettings& guest) {
    const base::Deadline deadline = base::Deadline::after(kPatience);
    for (int round = 0; round < rounds; ++round) {
      const base::UniqueFd fd = connect_patiently(guest);
      const auto challenge = receive_frame(fd.get(), kMaxControlBytes, deadline);
      ASSERT_TRUE(challenge.ok()) << challenge.status().to_string();
      Nonce nonce{};
      ASSERT_EQ(challenge->payload.size(), nonce.size());
      std::copy(challenge->payload.begin(), challenge->payload.end(), nonce.begin());
      Bootstrap::Bytes frame = hello_frame(guest, nonce);
      frame[random() % frame.size()] ^= static_cast<std::byte>(1u << (random() % 8));
      static_cast<void>(::send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL));
    }
  });
}

TEST(Rendezvous, ARecordedHelloIsOfNoUseLater) {
  expect_undisturbed([](const RendezvousSettings& guest) {
    const base::Deadline deadline = base::Deadline::after(kPatience);
    const base::UniqueFd fd = connect_patiently(guest);
    const auto challenge = receive_frame(fd.get(), kMaxControlBytes, deadline);
    ASSERT_TRUE(challenge.ok());
    // Right in everything but made for another challenge.
    const Bootstrap::Bytes frame = hello_frame(guest, Nonce{});
    ASSERT_TRUE(send_all(fd.get(), frame, deadline).ok());
    const auto answer = receive_frame(fd.get(), kMaxControlBytes, deadline);
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->kind, FrameKind::kError);
  });
}

TEST(Rendezvous, NamesAnotherWireVersion) {
  const int port = test::free_port();
  const RendezvousSettings host = tcp_settings(0, 2, port, milliseconds(500));
  Status status;
  {
    std::jthread host_thread([&] { status = meet(host); });
    const base::UniqueFd fd = connect_patiently(tcp_settings(1, 2, port, kPatience));
    Bootstrap::Bytes frame = hello_frame(host, Nonce{});
    frame[4] = std::byte{77};
    EXPECT_TRUE(send_all(fd.get(), frame, base::Deadline::after(kPatience)).ok());
    wait_for(fd.get(), POLLRDHUP, base::Deadline::after(milliseconds(300)));
  }
  EXPECT_EQ(status.code(), Errc::kPeerTimeout);
  EXPECT_NE(status.message().find("wire version 77"), std::string::npos) << status.message();
}

/// Plays rank 0 without knowing the cookie; returns everything that a rank told it.
std::vector<std::byte> listen_in(const base::UniqueFd& listener) {
  std::vector<std::byte> heard;
  const base::UniqueFd fd(::accept(listener.get(), nullptr, nullptr));
  const base::Deadline deadline = base::Deadline::after(milliseconds(2000));
  const Frame challenge{
      .kind = FrameKind::kChallenge, .sequence = 0, .payload = Bootstrap::Bytes(16)};
  EXPECT_TRUE(send_all(fd.get(), encode(challenge), deadline).ok());
  const auto hello = receive_frame(fd.get(), kMaxControlBytes, deadline);
  EXPECT_TRUE(hello.ok());
  if (hello.ok()) heard = hello->payload;
  const Frame welcome{
      .kind = FrameKind::kWelcome, .sequence = 0, .payload = Bootstrap::Bytes(kDigestBytes)};
  EXPECT_TRUE(send_all(fd.get(), encode(welcome), deadline).ok());
  return heard;
}

TEST(Rendezvous, AFalseRankZeroLearnsNothingAndIsNotBelieved) {
  const test::TcpListener impostor = test::listen_on_loopback();
  const RendezvousSettings guest = tcp_settings(1, 2, impostor.port, milliseconds(500));
  Status status;
  std::vector<std::byte> heard;
  {
    std::jthread guest_thread([&] { status = meet(guest); });
    heard = listen_in(impostor.fd);
  }
  EXPECT_EQ(status.code(), Errc::kPeerTimeout);
  EXPECT_EQ(status.peer(), 0);
  const auto cookie = std::as_bytes(std::span(guest.cookie));
  EXPECT_GT(heard.size(), cookie.size());
  EXPECT_EQ(std::search(heard.begin(), heard.end(), cookie.begin(), cookie.end()), heard.end())
      << "the cookie went over the wire";
}

/// Refuses the first rank that comes and says nothing to those after it.
void refuse_then_fall_silent(const base::UniqueFd& listener) {
  const base::Deadline deadline = base::Deadline::after(kPatience);
  const base::UniqueFd fd(::accept(listener.get(), nullptr, nullptr));
  const Frame challenge{
      .kind = FrameKind::kChallenge, .sequence = 0, .payload = Bootstrap::Bytes(16)};
  EXPECT_TRUE(send_all(fd.get(), encode(challenge), deadline).ok());
  EXPECT_TRUE(receive_frame(fd.get(), kMaxControlBytes, deadline).ok());
  const Frame refusal{.kind = FrameKind::kError,
                      .sequence = 0,
                      .payload = encode_status(Status(Errc::kUnsupported, "the port is taken"))};
  EXPECT_TRUE(send_all(fd.get(), encode(refusal), deadline).ok());
}

TEST(Rendezvous, ARefusalIsReportedThoughTheLastAttemptWasCutShort) {
  const test::TcpListener listener = test::listen_on_loopback();
  const RendezvousSettings guest = tcp_settings(1, 2, listener.port, milliseconds(500));
  Status status;
  {
    std::jthread guest_thread([&] { status = meet(guest); });
    refuse_then_fall_silent(listener.fd);
  }
  EXPECT_EQ(status.code(), Errc::kPeerTimeout);
  EXPECT_NE(status.message().find("the port is taken"), std::string::npos) << status.message();
}

TEST(Rendezvous, ListensOnLoopbackOnlyWhereAllRanksAreOnOneHost) {
  RendezvousSettings settings = tcp_settings(0, 2, 7000, kPatience);
  settings.is_single_host = true;
  settings.host = "203.0.113.7";
  const auto endpoints = listen_endpoints(settings);
  ASSERT_TRUE(endpoints.ok());
  for (const Endpoint& endpoint : *endpoints) EXPECT_EQ(endpoint.text, "127.0.0.1:7000");
  EXPECT_EQ(endpoint_of(settings).text, "127.0.0.1:7000");
}

TEST(Rendezvous, TakesTheNextPortWhereOneIsHeldByAnotherProgram) {
  const test::TcpListener other = test::listen_on_loopback();
  const int port = test::free_port();
  std::vector<RendezvousSettings> all = {tcp_settings(0, 2, port, kPatience),
                                         tcp_settings(1, 2, port, kPatience)};
  for (auto& settings : all) {
    settings.is_single_host = true;
    settings.ports = {other.port, port};
  }
  for (const Status& status : meet_all(all)) EXPECT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace ep::fabric
