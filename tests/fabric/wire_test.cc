// SPDX-License-Identifier: Apache-2.0
// Frames, hellos, statuses and results: round trips, and random damage that must not do harm.
#include "fabric/bootstrap/wire.h"

#include "base/unique_fd.h"
#include "fabric/bootstrap/gather.h"
#include "fabric/bootstrap/rendezvous.h"
#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <poll.h>
#include <random>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

namespace ep::fabric {
namespace {

using std::chrono::milliseconds;

struct SocketPair {
  SocketPair() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
    near = base::UniqueFd(fds[0]);
    far = base::UniqueFd(fds[1]);
  }
  base::UniqueFd near;
  base::UniqueFd far;
};

Bootstrap::Bytes some_bytes(std::size_t size) {
  Bootstrap::Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

Bootstrap::Bytes damaged(Bootstrap::Bytes bytes, std::mt19937_64& random) {
  for (std::uint64_t i = 0; i <= random() % 4 && !bytes.empty(); ++i) {
    switch (random() % 4) {
      case 0:
        bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        break;
      case 1:
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << (random() % 8));
        break;
      case 2:
        bytes.resize(random() % bytes.size());
        break;
      default:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(random() % bytes.size()),
                     static_cast<std::byte>(random()));
    }
  }
  return bytes;
}

TEST(Wire, CarriesFramesOfAnySize) {
  for (std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{3} << 20}) {
    const SocketPair pair;
    const Frame frame{.kind = FrameKind::kGather, .sequence = 42, .payload = some_bytes(size)};
    const base::Deadline deadline = base::Deadline::after(milliseconds(20'000));
    std::jthread sender(
        [&] { EXPECT_TRUE(send_all(pair.near.get(), encode(frame), deadline).ok()); });
    const auto received = receive_frame(pair.far.get(), std::size_t{4} << 20, deadline);
    ASSERT_TRUE(received.ok()) << received.status().to_string();
    EXPECT_EQ(received->kind, frame.kind);
    EXPECT_EQ(received->sequence, 42u);
    EXPECT_EQ(received->payload, frame.payload);
  }
}

TEST(Wire, ReadsFramesByteByByte) {
  const SocketPair pair;
  FrameReader reader(16);
  const Bootstrap::Bytes bytes =
      encode({.kind = FrameKind::kReady, .sequence = 1, .payload = some_bytes(16)});
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(::send(pair.near.get(), &bytes[i], 1, 0), 1);
    const auto progress = reader.read_from(pair.far.get());
    ASSERT_TRUE(progress.ok());
    const bool is_last = i + 1 == bytes.size();
    EXPECT_EQ(*progress == FrameReader::Progress::kComplete, is_last) << i;
  }
  EXPECT_EQ(reader.take().payload, some_bytes(16));
}

/// What a reader says to these bytes followed by the end of the stream.
Result<Frame> read_all(std::span<const std::byte> bytes) {
  SocketPair pair;
  EXPECT_EQ(::send(pair.near.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  pair.near.reset();
  return receive_frame(pair.far.get(), 64, base::Deadline::after(milliseconds(20'000)));
}

TEST(Wire, RefusesALengthBeforeAllocating) {
  Bootstrap::Bytes bytes = encode({.kind = FrameKind::kHello, .sequence = 0, .payload = {}});
  std::fill(bytes.begin() + 16, bytes.end(), std::byte{0xff});
  const auto frame = read_all(bytes);
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.status().code(), Errc::kFabric);
  EXPECT_NE(frame.status().message().find("at most 64 expected"), std::string::npos);
}

TEST(Wire, TellsAnotherVersionFromAStranger) {
  Bootstrap::Bytes bytes = encode({.kind = FrameKind::kHello, .sequence = 0, .payload = {}});
  bytes[4] = std::byte{9};
  EXPECT_EQ(read_all(bytes).status().code(), Errc::kUnsupported);
  EXPECT_NE(read_all(bytes).status().message().find("version 9"), std::string::npos);
  bytes[0] = std::byte{'G'};
  EXPECT_EQ(read_all(bytes).status().code(), Errc::kFabric);
}

TEST(Wire, DamagedFramesAreErrorsOrFrames) {
  std::mt19937_64 random(4);
  const Bootstrap::Bytes good =
      encode({.kind = FrameKind::kHello, .sequence = 3, .payload = some_bytes(40)});
  const int rounds = test::scaled_rounds(5'000, 100'000);
  int num_frames = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto frame = read_all(damaged(good, random));
    if (frame.ok()) {
      ++num_frames;
      ASSERT_LE(frame->payload.size(), 64u);
    } else {
      ASSERT_FALSE(frame.status().message().empty());
    }
  }
  EXPECT_GT(num_frames, 0) << "damage to the payload alone must pass";
}

TEST(Wire, DamagedPayloadsDecodeToErrors) {
  std::mt19937_64 random(5);
  Hello hello{
      .rank = 1, .num_ranks = 2, .pid = 77, .job_id = "job", .host_name = "host", .nonce = {}};
  const Nonce nonce{};
  const Bootstrap::Bytes good_hello = encode_hello(hello, nonce, "secret");
  ASSERT_TRUE(has_valid_proof(good_hello, nonce, "secret"));
  ASSERT_FALSE(has_valid_proof(good_hello, nonce, "Secret"));
  const Bootstrap::Bytes good_status = encode_status(Status(Errc::kFabric, "broken", 5));
  const Bootstrap::Bytes good_result = encode_result({some_bytes(3), {}, some_bytes(9)});
  const int rounds = test::scaled_rounds(10'000, 200'000);
  for (int round = 0; round < rounds; ++round) {
    const Bootstrap::Bytes bytes = damaged(good_hello, random);
    const auto decoded = decode_hello(bytes);
    if (decoded) {
      ASSERT_LE(decoded->job_id.size(), kMaxJobIdBytes);
    }
    ASSERT_EQ(has_valid_proof(bytes, nonce, "secret"), bytes == good_hello);
    ASSERT_FALSE(decode_status(damaged(good_status, random)).ok());
    const auto result = decode_result(damaged(good_result, random), 3);
    ASSERT_TRUE(!result.ok() || result->size() == 3);
  }
}

TEST(Wire, StatusesSurviveTheTrip) {
  Status status(Errc::kPeerTimeout, "rank 3 did not come", 110);
  status.set_peer(3);
  const Status copy = decode_status(encode_status(status));
  EXPECT_EQ(copy.code(), status.code());
  EXPECT_EQ(copy.message(), status.message());
  EXPECT_EQ(copy.native_code(), 110);
  EXPECT_EQ(copy.peer(), 3);
  const Status longer =
      decode_status(encode_status(Status(Errc::kFabric, std::string(1 << 20, 'x'))));
  EXPECT_EQ(longer.code(), Errc::kFabric);
  EXPECT_LE(longer.message().size(), kMaxControlBytes);
}

TEST(Wire, APeerThatDoesNotReadDelaysNoOther) {
  const SocketPair slow;
  const SocketPair fast;
  const Bootstrap::Bytes bytes = some_bytes(std::size_t{4} << 20);
  std::size_t num_received = 0;
  std::jthread reader([&] {
    std::vector<std::byte> chunk(1 << 16);
    while (num_received < bytes.size() &&
           wait_for(fast.far.get(), POLLIN, base::Deadline::after(milliseconds(20'000)))) {
      num_received += static_cast<std::size_t>(
          std::max<ssize_t>(0, ::recv(fast.far.get(), chunk.data(), chunk.size(), 0)));
    }
  });
  const std::vector<int> fds = {slow.near.get(), -1, fast.near.get()};
  const auto statuses = send_to_each(fds, bytes, base::Deadline::after(milliseconds(500)));
  reader.join();
  EXPECT_EQ(statuses[0].code(), Errc::kPeerTimeout);
  EXPECT_TRUE(statuses[1].ok());
  EXPECT_TRUE(statuses[2].ok());
  EXPECT_EQ(num_received, bytes.size());
}

}  // namespace
}  // namespace ep::fabric
