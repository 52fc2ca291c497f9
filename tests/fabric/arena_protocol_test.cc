// SPDX-License-Identifier: Apache-2.0
// What an arena does with messages that no arena would send, and with connections of strangers.
#include "base/unique_fd.h"
#include "fabric/arena_identity.h"
#include "fabric/arena_mesh.h"
#include "fabric/arena_message.h"
#include "fabric/host/memory.h"
#include "tests/fabric/arena_ranks.h"
#include "tests/fabric/fake_peer.h"
#include "tests/support/process_state.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <poll.h>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

using test::FakePeer;
using test::PacketPair;
using test::patient;
using test::segment_message;

int count_fds() { return test::process_state().num_fds; }

/// A packet as it goes over the wire, for damaging it.
std::vector<std::byte> packet_of(const ArenaMessage& message) {
  const PacketPair pair;
  EXPECT_TRUE(send_message(pair.near.get(), message, -1, patient()).ok());
  std::vector<std::byte> packet(256);
  const ssize_t size = ::recv(pair.far.get(), packet.data(), packet.size(), 0);
  packet.resize(static_cast<std::size_t>(size));
  return packet;
}

TEST(ArenaMessage, CarriesAllFieldsAndADescriptor) {
  const PacketPair pair;
  auto memory = create_memory(4096);
  ASSERT_TRUE(memory.ok());
  ArenaMessage message{
      .kind = ArenaMessageKind::kSegment, .rank = 3, .segment = 17, .error = 5, .bytes = 4096};
  message.token.fill(std::byte{9});
  ASSERT_TRUE(send_message(pair.near.get(), message, memory->get(), patient()).ok());
  auto received = receive_message(pair.far.get());
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(received->message.rank, 3);
  EXPECT_EQ(received->message.segment, 17);
  EXPECT_EQ(received->message.error, 5);
  EXPECT_EQ(received->message.bytes, 4096);
  EXPECT_EQ(received->message.token, message.token);
  EXPECT_TRUE(check_memory(received->fd.get(), 4096).ok());
  EXPECT_EQ(receive_message(pair.far.get())->state, ReceiveState::kNothing);
}

TEST(ArenaMessage, CarriesAFabricHandleWithoutADescriptor) {
  const PacketPair pair;
  ArenaMessage message{.kind = ArenaMessageKind::kFabricSegment, .segment = 4, .bytes = 8192};
  for (std::size_t i = 0; i < message.fabric.size(); ++i) {
    message.fabric[i] = static_cast<std::byte>(200 + i);
  }
  ASSERT_TRUE(send_message(pair.near.get(), message, -1, patient()).ok());
  const auto received = receive_message(pair.far.get());
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(received->message.kind, ArenaMessageKind::kFabricSegment);
  EXPECT_EQ(received->message.fabric, message.fabric);
  EXPECT_FALSE(received->fd.is_open());
  auto memory = create_memory(4096);
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE(send_message(pair.near.get(), message, memory->get(), patient()).ok());
  EXPECT_EQ(receive_message(pair.far.get()).status().code(), Errc::kFabric);
}

TEST(ArenaMessage, ADescriptorTooFewOrTooManyIsAnErrorAndClosed) {
  auto memory = create_memory(4096);
  ASSERT_TRUE(memory.ok());
  const PacketPair pair;
  const int num_fds = count_fds();
  const ArenaMessage segment{.kind = ArenaMessageKind::kSegment, .bytes = 4096};
  ASSERT_TRUE(send_message(pair.near.get(), segment, -1, patient()).ok());
  EXPECT_EQ(receive_message(pair.far.get()).status().code(), Errc::kFabric);
  const ArenaMessage mapped{.kind = ArenaMessageKind::kMapped};
  ASSERT_TRUE(send_message(pair.near.get(), mapped, memory->get(), patient()).ok());
  EXPECT_EQ(receive_message(pair.far.get()).status().code(), Errc::kFabric);
  EXPECT_EQ(count_fds(), num_fds);
}

TEST(ArenaMessage, DamagedPacketsAreErrorsOrMessages) {
  std::mt19937_64 random(9);
  const PacketPair pair;
  const auto good = packet_of({.kind = ArenaMessageKind::kMapped, .rank = 1, .segment = 2});
  const int num_fds = count_fds();
  const int rounds = test::scaled_rounds(20'000, 200'000);
  int num_messages = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::byte> packet = good;
    packet[random() % packet.size()] = static_cast<std::byte>(random());
    if (random() % 3 == 0) packet.resize(1 + random() % 400);
    ASSERT_EQ(::send(pair.near.get(), packet.data(), packet.size(), 0),
              static_cast<ssize_t>(packet.size()));
    const auto received = receive_message(pair.far.get());
    if (received.ok()) ++num_messages;
    ASSERT_TRUE(!received.ok() || packet.size() == good.size());
  }
  EXPECT_GT(num_messages, 0);
  EXPECT_EQ(count_fds(), num_fds);
}

TEST(ArenaMemory, RefusesMemoryThatIsNotWhatWasAnnounced) {
  const auto memory = create_memory(8192);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(check_memory(memory->get(), 8192).ok());
  EXPECT_EQ(check_memory(memory->get(), 4096).code(), Errc::kFabric);
  const base::UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 8192), 0);
  EXPECT_EQ(check_memory(unsealed.get(), 8192).code(), Errc::kFabric)
      << "its owner could shrink it, and a reader would die of SIGBUS";
  const PacketPair pair;
  EXPECT_FALSE(check_memory(pair.near.get(), 8192).ok());
}

TEST(ArenaMemory, CannotShrinkOrGrow) {
  const auto memory = create_memory(8192);
  ASSERT_TRUE(memory.ok());
  EXPECT_NE(::ftruncate(memory->get(), 4096), 0);
  EXPECT_NE(::ftruncate(memory->get(), 16384), 0);
}

TEST(ArenaProtocol, MapsAndAnswers) {
  FakePeer peer;
  const auto memory = create_memory(4096);
  peer.send(segment_message(0, 4096), memory->get());
  EXPECT_EQ(peer.receive().message.kind, ArenaMessageKind::kMapped);
  EXPECT_NE(peer.arena().base(1, 0), nullptr);
}

TEST(ArenaProtocol, AnswersThatItCannotMap) {
  FakePeer peer;
  const base::UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  peer.send(segment_message(0, 4096), unsealed.get());
  EXPECT_EQ(peer.receive().message.kind, ArenaMessageKind::kNotMapped);
  const ArenaMessage unknown{
      .kind = ArenaMessageKind::kSharedSegment, .rank = 1, .segment = 0, .bytes = 4096};
  peer.send(unknown);
  EXPECT_EQ(peer.receive().message.kind, ArenaMessageKind::kNotMapped);
  EXPECT_EQ(peer.arena().base(1, 0), nullptr);
}

TEST(ArenaProtocol, APeerThatBreaksTheRulesIsGone) {
  const auto memory = create_memory(4096);
  ASSERT_TRUE(memory.ok());
  const std::vector<ArenaMessage> bad = {
      segment_message(-1, 4096),
      segment_message(kMaxSegments, 4096),
      segment_message(0, 0),
      segment_message(0, -4096),
  };
  for (const ArenaMessage& message : bad) {
    FakePeer peer;
    peer.send(message, memory->get());
    EXPECT_TRUE(peer.is_gone()) << message.segment << ", " << message.bytes;
  }
  FakePeer greeter;
  greeter.send({.kind = ArenaMessageKind::kHello, .rank = 1});
  EXPECT_TRUE(greeter.is_gone());
  FakePeer repeater;
  repeater.send(segment_message(0, 4096), memory->get());
  repeater.send(segment_message(0, 4096), memory->get());
  EXPECT_TRUE(repeater.is_gone()) << "an id must not be used twice";
  FakePeer babbler;
  EXPECT_EQ(::send(babbler.socket(), "babble", 6, 0), 6);
  EXPECT_TRUE(babbler.is_gone());
}

TEST(ArenaProtocol, AnswersToNothingAreIgnored) {
  FakePeer peer;
  for (int segment : {-1, 0, 5, 1 << 30}) {
    peer.send({.kind = ArenaMessageKind::kMapped, .rank = 1, .segment = segment});
    peer.send({.kind = ArenaMessageKind::kNotMapped, .rank = 1, .segment = segment});
  }
  const auto memory = create_memory(4096);
  peer.send(segment_message(0, 4096), memory->get());
  EXPECT_EQ(peer.receive().message.kind, ArenaMessageKind::kMapped);
}

/// add_segment while the fake peer answers with `answer`.
Status add_with_answer(FakePeer& peer, const ArenaMessage& answer) {
  Result<Segment> segment = Status(Errc::kInternal, "not run");
  std::jthread adder([&] {
    segment = peer.arena().add_segment(4096, base::Deadline::after(std::chrono::milliseconds(500)));
  });
  const Received announced = peer.receive();
  EXPECT_EQ(announced.message.kind, ArenaMessageKind::kSegment);
  EXPECT_TRUE(check_memory(announced.fd.get(), 4096).ok());
  peer.send(answer);
  adder.join();
  return segment.status();
}

TEST(ArenaProtocol, AddingNeedsTheAnswerToThisVerySegment) {
  FakePeer peer;
  const ArenaMessage right{.kind = ArenaMessageKind::kMapped, .rank = 1, .segment = 0};
  EXPECT_TRUE(add_with_answer(peer, right).ok());
  const Status wrong = add_with_answer(peer, right);
  EXPECT_EQ(wrong.code(), Errc::kPeerTimeout) << "the answer was to segment 0, not 1";
  EXPECT_EQ(wrong.peer(), 1);
  EXPECT_EQ(peer.arena().total_bytes(), 4096) << "the failed segment must not count";
  EXPECT_EQ(peer.arena().base(0, 1), nullptr);
  const ArenaMessage refusal{
      .kind = ArenaMessageKind::kNotMapped, .rank = 1, .segment = 2, .error = ENOMEM};
  EXPECT_EQ(add_with_answer(peer, refusal).code(), Errc::kOutOfMemory);
  const ArenaMessage third{.kind = ArenaMessageKind::kMapped, .rank = 1, .segment = 3};
  EXPECT_TRUE(add_with_answer(peer, third).ok()) << "a failure must not spoil the arena";
}

/// In a child process: connects to the abstract socket and says the right words; true if it was let
/// in.
bool is_stranger_let_in(const ArenaIdentity& target) {
  const pid_t child = ::fork();
  if (child != 0) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WEXITSTATUS(status) != 0;
  }
  const base::UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, target.socket_name.data(), target.socket_name.size());
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + target.socket_name.size());
  const auto* const generic = static_cast<const sockaddr*>(static_cast<const void*>(&address));
  if (::connect(fd.get(), generic, bytes) != 0) ::_exit(0);
  const ArenaMessage hello{.kind = ArenaMessageKind::kHello, .rank = 1, .token = target.token};
  static_cast<void>(send_message(fd.get(), hello, -1, patient()).ok());
  // Closed: the stranger was thrown out. Still open after a while: it was let in.
  pollfd entry{.fd = fd.get(), .events = POLLIN, .revents = 0};
  ::_exit(::poll(&entry, 1, 2000) > 0 ? 0 : 1);
}

TEST(ArenaMesh, AProcessThatNoRankAnnouncedIsThrownOut) {
  auto listeners = std::make_unique<std::array<Result<ArenaListener>, 2>>(
      std::array<Result<ArenaListener>, 2>{open_arena_listener(2), open_arena_listener(2)});
  std::vector<ArenaIdentity> identities;
  for (const auto& listener : *listeners) identities.push_back(make_identity(listener->name, 4096));
  // The stranger is forked before there are threads; it has to wait for nobody: the listener queues
  // it.
  const pid_t helper = ::fork();
  if (helper == 0) ::_exit(is_stranger_let_in(identities[0]) ? 1 : 0);
  std::array<Status, 2> statuses;
  {
    std::vector<std::jthread> threads;
    for (int rank : {0, 1}) {
      threads.emplace_back([&, rank] {
        // Rank 1 comes last: until then rank 0 has only the stranger.
        if (rank == 1) ::usleep(300'000);
        const auto at = static_cast<std::size_t>(rank);
        statuses[at] = connect_arenas(identities, rank, *(*listeners)[at], patient()).status();
      });
    }
  }
  EXPECT_TRUE(statuses[0].ok()) << statuses[0].to_string();
  EXPECT_TRUE(statuses[1].ok()) << statuses[1].to_string();
  int status = 0;
  ASSERT_EQ(::waitpid(helper, &status, 0), helper);
  EXPECT_EQ(status, 0) << "the stranger was let in";
}

TEST(ArenaMesh, AWrongTokenIsThrownOut) {
  auto first = open_arena_listener(2);
  auto second = open_arena_listener(2);
  std::vector<ArenaIdentity> identities = {make_identity(first->name, 4096),
                                           make_identity(second->name, 4096)};
  std::vector<ArenaIdentity> mistaken = identities;
  mistaken[0].token[3] ^= std::byte{1};
  const base::Deadline deadline = base::Deadline::after(std::chrono::milliseconds(300));
  Status status;
  {
    std::jthread host([&] { status = connect_arenas(identities, 0, *first, deadline).status(); });
    EXPECT_TRUE(connect_arenas(mistaken, 1, *second, deadline).ok()) << "only rank 0 can tell";
  }
  EXPECT_EQ(status.code(), Errc::kPeerTimeout);
  EXPECT_EQ(status.peer(), 1);
}

TEST(ArenaIdentity, NamesRanksOfOtherHosts) {
  std::vector<ArenaIdentity> identities(4, make_identity("unused", 4096));
  EXPECT_TRUE(check_identities(identities).ok());
  identities[1].host = identities[3].host = "another kernel";
  identities[1].host_name = "node7";
  const Status status = check_identities(identities);
  EXPECT_EQ(status.code(), Errc::kUnsupported);
  EXPECT_NE(status.message().find("rank 1, 3"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("rank 1 on node7"), std::string::npos) << status.message();
}

TEST(ArenaIdentity, NamesRanksOfOtherUsers) {
  std::vector<ArenaIdentity> identities(3, make_identity("unused", 4096));
  identities[2].uid += 1;
  const Status status = check_identities(identities);
  EXPECT_EQ(status.code(), Errc::kUnsupported);
  EXPECT_NE(status.message().find("rank 2"), std::string::npos);
}

DeviceUuid uuid_of(int device) {
  DeviceUuid uuid{};
  uuid.fill(static_cast<std::byte>(device));
  return uuid;
}

std::vector<ArenaIdentity> ranks_on_devices(const std::vector<int>& devices) {
  std::vector<ArenaIdentity> identities;
  for (const int device : devices) {
    DeviceIdentity identity;
    identity.ordinal = device;
    if (!identity.is_host()) identity.uuid = uuid_of(device);
    identities.push_back(make_identity("unused", 4096, identity));
  }
  return identities;
}

TEST(ArenaIdentity, NamesThePairThatHasNoWayToEachOther) {
  std::vector<ArenaIdentity> identities = ranks_on_devices({0, 1, 0, 0x2f});
  EXPECT_TRUE(check_identities(identities).ok());
  // One of them says so: the other's process may not see its device.
  identities[3].device.unreachable = {uuid_of(1)};
  const Status status = check_identities(identities);
  EXPECT_EQ(status.code(), Errc::kUnsupported);
  EXPECT_EQ(status.message(),
            "arena: no P2P with atomics between "
            "rank 1 on device 1 (GPU-01010101-0101-0101-0101-010101010101) and "
            "rank 3 on device 47 (GPU-2f2f2f2f-2f2f-2f2f-2f2f-2f2f2f2f2f2f)");
}

TEST(ArenaIdentity, NamesRanksOfOtherHostsWhoseGpusLackFabricHandles) {
  std::vector<ArenaIdentity> identities = ranks_on_devices({0, 1, 0, 1});
  for (ArenaIdentity& identity : identities) identity.host_name = "node1";
  identities[2].host = identities[3].host = "another kernel";
  identities[2].host_name = identities[3].host_name = "node2";
  identities[0].device.has_fabric_handles = identities[3].device.has_fabric_handles = true;
  const std::string hosts =
      "arena: on another host (or in other namespaces) than rank 0: rank 2, 3; rank 0 on node1, "
      "rank 2 on node2; ";
  const Status lacking = check_identities(identities);
  EXPECT_EQ(lacking.code(), Errc::kUnsupported);
  EXPECT_EQ(lacking.message(),
            hosts + "without FABRIC handles, by which GPUs reach memory of other hosts: rank 1, 2");
  for (ArenaIdentity& identity : identities) identity.device.has_fabric_handles = true;
  const Status complete = check_identities(identities);
  EXPECT_EQ(complete.code(), Errc::kUnsupported);
  EXPECT_EQ(complete.message(),
            hosts +
                "all GPUs have FABRIC handles, but the messages of an arena do not cross hosts "
                "so far");
}

TEST(ArenaIdentity, FabricHandlesAreChosenWhereAllRanksHaveThem) {
  std::vector<ArenaIdentity> identities = ranks_on_devices({0, 1, 2});
  EXPECT_EQ(choose_handles(identities), HandleKind::kDescriptor);
  identities[0].device.has_fabric_handles = identities[2].device.has_fabric_handles = true;
  EXPECT_EQ(choose_handles(identities), HandleKind::kDescriptor) << "rank 1 could not map them";
  identities[1].device.has_fabric_handles = true;
  EXPECT_EQ(choose_handles(identities), HandleKind::kFabric);
}

TEST(ArenaIdentity, NamesRanksWithAnotherKindOfMemory) {
  std::vector<ArenaIdentity> identities = ranks_on_devices({0, DeviceIdentity::kHost, 1});
  const Status status = check_identities(identities);
  EXPECT_EQ(status.code(), Errc::kInvalidArgument);
  EXPECT_EQ(status.message(), "arena: memory of the host on rank 1, of a GPU on rank 0");
}

TEST(ArenaIdentity, SurvivesTheTripAndDamageIsAnError) {
  const ArenaIdentity identity = make_identity("name", 4096,
                                               {.ordinal = 3,
                                                .uuid = uuid_of(7),
                                                .unreachable = {uuid_of(1), uuid_of(9)},
                                                .has_fabric_handles = true});
  const Bootstrap::Bytes good = encode_identity(identity);
  const auto copy = decode_identity(good);
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->host, identity.host);
  EXPECT_EQ(copy->token, identity.token);
  EXPECT_EQ(copy->control_bytes, 4096);
  EXPECT_EQ(copy->device.ordinal, 3);
  EXPECT_EQ(copy->device.uuid, uuid_of(7));
  EXPECT_EQ(copy->device.unreachable, identity.device.unreachable);
  EXPECT_TRUE(copy->device.has_fabric_handles);
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(decode_identity(std::span(good).first(size)).ok()) << size;
  }
}

}  // namespace
}  // namespace ep::fabric
