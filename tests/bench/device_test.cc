// SPDX-License-Identifier: Apache-2.0
// The way of a GPU's rows through the bench, with a device whose memory is apart from the
// processor's.
#include "bench/device.h"

#include "bench/rank_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ep::bench {
namespace {

/// Counts what a GPU would be asked for. Calls run where they are queued.
class RemoteDevice : public Device {
 public:
  struct Counts {
    int blocks = 0;
    int copies_in = 0;
    int copies_out = 0;
    int captures = 0;
    int launches = 0;
  };
  explicit RemoteDevice(Counts& counts) : counts_(counts) {}

  bool is_host() const override { return false; }
  Stream stream() const override { return {}; }
  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override {
    ++counts_.blocks;
    auto* block = static_cast<std::byte*>(std::malloc(bytes + 16));
    return std::shared_ptr<std::byte>(block, [](std::byte* old) { std::free(old); });
  }
  Status copy_in(std::byte* device, std::span<const std::byte> host) override {
    ++counts_.copies_in;
    std::copy(host.begin(), host.end(), device);
    return {};
  }
  Status copy_out(std::span<std::byte> host, const std::byte* device) override {
    ++counts_.copies_out;
    std::copy_n(device, host.size(), host.begin());
    return {};
  }
  Status fill(std::byte* device, int byte, std::size_t bytes) override {
    std::memset(device, byte, bytes);
    return {};
  }
  Status delay(std::chrono::microseconds /*time*/) override { return {}; }
  Status synchronize() override { return {}; }
  Result<std::unique_ptr<Graph>> capture(const Call& call) override {
    ++counts_.captures;
    return Result<std::unique_ptr<Graph>>(std::make_unique<Replay>(call, counts_));
  }
  Result<OpTime> time(const Timed& timed) override {
    const Status met = timed.meet();
    if (!met.ok()) return met;
    const Status called = timed.call();
    if (!called.ok()) return called;
    OpTime time = {.micros = 2, .host_micros = {}};
    if (timed.is_queued) time.host_micros = 1;
    return time;
  }

 private:
  class Replay : public Graph {
   public:
    Replay(Call call, Counts& counts) : call_(std::move(call)), counts_(counts) {}
    Status launch() override {
      ++counts_.launches;
      return call_();
    }

   private:
    Call call_;
    Counts& counts_;
  };

  Counts& counts_;
};

/// Checks as the kernels of a GPU do, and may damage what it checks: then only it sees the damage.
class CheckingDevice : public RemoteDevice {
 public:
  static constexpr int kLanes = 3;
  using RemoteDevice::RemoteDevice;
  std::function<void(ReceivedTable&)> damage_received;
  std::function<void(OutputTable&)> damage_output;
  int num_checks = 0;

  bool can_check() const override { return true; }
  Status check(const ReceivedTable& table, WrongRows* wrong) override {
    ReceivedTable checked = table;
    if (damage_received) damage_received(checked);
    ++num_checks;
    for (std::int64_t item = 0; item < checked.num_items(); ++item) {
      std::int64_t first = ReceivedTable::kRight;
      for (int lane = kLanes - 1; lane >= 0; --lane) {
        const std::int64_t unit = first_wrong_unit(checked, item, lane, kLanes);
        if (unit != ReceivedTable::kRight) first = unit;
      }
      if (first == ReceivedTable::kRight) continue;
      if (wrong->num_wrong++ == 0) note_unit(checked, item, first, *wrong);
    }
    return {};
  }
  Status check(const OutputTable& table, WrongRows* wrong) override {
    OutputTable checked = table;
    if (damage_output) damage_output(checked);
    ++num_checks;
    for (std::int64_t token = 0; token < checked.num_rows; ++token) {
      for (std::int64_t elem = 0; elem < checked.hidden; ++elem) {
        const ElemVerdict verdict = check_elem(checked, token, elem);
        if (verdict.is_right) continue;
        if (wrong->num_wrong++ == 0) note_elem(checked, token, elem, verdict, *wrong);
        break;
      }
    }
    return {};
  }
};

Options sample_options(Command command) {
  Options options;
  options.command = command;
  options.ranks = 1;
  options.tokens = 50;
  options.hidden = 128;
  options.topk = 3;
  options.experts = 6;
  options.dtype = DType::kFp8E4M3;
  options.iters = 5;
  options.capacity.kind = Capacity::Kind::kAuto;
  return options;
}

/// One rank of the host backend on `device`.
RankResult run_on(Device& device, const Options& options) {
  Job job;
  job.options = options;
  job.host.cache_bytes = 1 << 16;
  job.host.memory_bytes = std::int64_t{1} << 32;
  const BufferPlan plan = plan_buffers(job);
  auto bootstraps = make_in_process_bootstraps(1);
  auto group = Group::create(*bootstraps->front(), group_config_of(job, plan));
  auto workload = Workload::create(job, plan, device, **group);
  EXPECT_TRUE(workload.ok()) << workload.status().to_string();
  MeetingBoard board(1);
  BoardMeeting meeting(board, 0);
  RankScope scope = {
      .rank = 0, .num_ranks = 1, .bootstrap = *bootstraps->front(), .meeting = meeting};
  auto result = measure(
      {.job = job, .scope = scope, .group = **group, .device = device, .workload = **workload},
      FirstChecks::kAllRows);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? *std::move(result) : RankResult();
}

RankResult run_on_host(const Options& options) {
  const auto host = make_host_device();
  return run_on(*host, options);
}

class BenchRemoteDevice : public testing::TestWithParam<std::pair<Command, Layout>> {
 protected:
  Options options() const {
    Options options = sample_options(GetParam().first);
    options.layout = GetParam().second;
    return options;
  }
};

TEST_P(BenchRemoteDevice, HasTheRowsOfTheHost) {
  for (Placement placement : {Placement::kArena, Placement::kOutside}) {
    Options shape = options();
    shape.placement = placement;
    RemoteDevice::Counts counts;
    RemoteDevice device(counts);
    const RankResult remote = run_on(device, shape);
    const RankResult host = run_on_host(shape);
    EXPECT_GT(remote.received.checked + remote.output.checked, 0);
    EXPECT_EQ(remote.received.wrong, 0) << remote.received.first_wrong;
    EXPECT_EQ(remote.output.wrong, 0) << remote.output.first_wrong;
    EXPECT_EQ(remote.received_hash, host.received_hash);
    EXPECT_EQ(remote.output_hash, host.output_hash);
    EXPECT_EQ(remote.expert_counts, host.expert_counts);
    EXPECT_GT(counts.blocks, 0);
    EXPECT_GT(counts.copies_out, 0);
    EXPECT_EQ(counts.captures, 0);
  }
}

TEST_P(BenchRemoteDevice, ReplaysWhatItCaptured) {
  Options shape = options();
  shape.mode = Mode::kGraph;
  RemoteDevice::Counts counts;
  RemoteDevice device(counts);
  const RankResult remote = run_on(device, shape);
  shape.mode = Mode::kEager;
  const RankResult host = run_on_host(shape);
  EXPECT_EQ(remote.received.wrong, 0) << remote.received.first_wrong;
  EXPECT_EQ(remote.output.wrong, 0) << remote.output.first_wrong;
  EXPECT_EQ(remote.received_hash, host.received_hash);
  EXPECT_EQ(remote.output_hash, host.output_hash);
  EXPECT_GT(counts.captures, 0);
  EXPECT_GT(counts.launches, counts.captures);
}

INSTANTIATE_TEST_SUITE_P(All,
                         BenchRemoteDevice,
                         testing::Values(std::pair(Command::kDispatch, Layout::kFlat),
                                         std::pair(Command::kDispatch, Layout::kExpertMajor),
                                         std::pair(Command::kCombine, Layout::kFlat),
                                         std::pair(Command::kMoe, Layout::kFlat),
                                         std::pair(Command::kMoe, Layout::kExpertMajor)));

TEST(BenchRemoteDevice, TellsTheTimeOfTheHostOfQueuedCalls) {
  RemoteDevice::Counts counts;
  RemoteDevice device(counts);
  Options options = sample_options(Command::kMoe);
  RankResult result = run_on(device, options);
  EXPECT_EQ(result.timings.dispatch_host, std::vector<double>(5, 1.0));
  EXPECT_EQ(result.timings.combine_host.size(), 5u);
  EXPECT_EQ(result.timings.layer, std::vector<double>(5, 4.0)) << "experts run elsewhere";
  options.capacity.kind = Capacity::Kind::kExact;
  result = run_on(device, options);
  EXPECT_TRUE(result.timings.dispatch_host.empty()) << "an exact size stops the host";
}

TEST(BenchRemoteDevice, AWrongByteBehindTheCopyIsSeen) {
  class Damaging : public RemoteDevice {
   public:
    using RemoteDevice::RemoteDevice;
    Status copy_out(std::span<std::byte> host, const std::byte* device) override {
      const Status status = RemoteDevice::copy_out(host, device);
      host.back() ^= std::byte{1};
      return status;
    }
  };
  RemoteDevice::Counts counts;
  Damaging device(counts);
  EXPECT_GT(run_on(device, sample_options(Command::kDispatch)).received.wrong, 0);
}

class BenchCheckingDevice : public testing::TestWithParam<std::tuple<DType, Layout, bool>> {
 protected:
  Options options() const {
    Options options = sample_options(Command::kMoe);
    options.dtype = std::get<0>(GetParam());
    options.layout = std::get<1>(GetParam());
    options.align = options.layout == Layout::kFlat ? 1 : 8;
    options.exact = std::get<2>(GetParam());
    return options;
  }
};

TEST_P(BenchCheckingDevice, FindsWhatTheProcessorFinds) {
  RemoteDevice::Counts counts;
  CheckingDevice device(counts);
  const RankResult checked = run_on(device, options());
  const RankResult host = run_on_host(options());
  EXPECT_EQ(checked.received.wrong, 0) << checked.received.first_wrong;
  EXPECT_EQ(checked.output.wrong, 0) << checked.output.first_wrong;
  EXPECT_EQ(checked.received.checked, host.received.checked);
  EXPECT_EQ(checked.output.checked, host.output.checked);
  EXPECT_EQ(checked.output_hash, host.output_hash);
  EXPECT_GT(device.num_checks, 0);
}

TEST_P(BenchCheckingDevice, FindsADamagedOutputElement) {
  RemoteDevice::Counts counts;
  CheckingDevice device(counts);
  std::vector<std::byte> copy;
  device.damage_output = [&](OutputTable& table) {
    copy.assign(table.out, table.out + table.num_rows * table.out_row_bytes);
    copy[static_cast<std::size_t>(3 * table.out_row_bytes + (table.is_exact ? 8 : 11))] ^=
        std::byte{0x40};
    table.out = copy.data();
  };
  const RankResult checked = run_on(device, options());
  EXPECT_GT(checked.output.wrong, 0);
  EXPECT_NE(checked.output.first_wrong.find("rank 0, round 0: out[3, "), std::string::npos)
      << checked.output.first_wrong;
}

INSTANTIATE_TEST_SUITE_P(
    Formats,
    BenchCheckingDevice,
    testing::Combine(
        testing::Values(DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp8E4M3, DType::kInt8),
        testing::Values(Layout::kFlat, Layout::kExpertMajor),
        testing::Bool()));

struct ReceivedDamage {
  const char* place;  ///< as the description names it
  std::function<void(ReceivedTable&)> damage;
};

/// `elems` elements at `first`, with the one at `index` changed by `change`.
template <class T, class Change>
const T* damaged(const T* first, std::int64_t elems, std::int64_t index, Change change) {
  static std::vector<T> copy;
  copy.assign(first, first + elems);
  change(copy[static_cast<std::size_t>(index)]);
  return copy.data();
}

TEST(BenchCheckingDevice, NamesThePlaceOfEveryDamageToReceivedRows) {
  const auto add_one = [](auto& value) { value += 1; };
  const std::vector<ReceivedDamage> damages = {
      {"wrong bytes from 112 on of row 2",
       [](ReceivedTable& table) {
         table.x = damaged(table.x, table.num_rows * table.row_bytes, 3 * table.row_bytes - 1,
                           [](std::byte& byte) { byte ^= std::byte{1}; });
       }},
      {"wrong scale 0 of row 4",
       [&](ReceivedTable& table) {
         table.scales = damaged(table.scales, table.num_rows, 4, add_one);
       }},
      {"wrong topk_idx 2 of row 1",
       [&](ReceivedTable& table) {
         table.topk_idx = damaged(table.topk_idx, table.num_rows * 3, 5, add_one);
       }},
      {"wrong topk_weights 0 of row 1",
       [&](ReceivedTable& table) {
         table.topk_weights = damaged(table.topk_weights, table.num_rows * 3, 3, add_one);
       }},
      {"wrong sizes[2]",
       [&](ReceivedTable& table) {
         table.lists[0].got = damaged(table.lists[0].got, 3, 2, add_one);
       }},
      {"wrong expert_counts[5]", [&](ReceivedTable& table) {
         table.lists[1].got = damaged(table.lists[1].got, table.lists[1].size, 5, add_one);
       }}};
  for (const ReceivedDamage& damage : damages) {
    RemoteDevice::Counts counts;
    CheckingDevice device(counts);
    device.damage_received = damage.damage;
    const RankResult checked = run_on(device, sample_options(Command::kDispatch));
    EXPECT_GT(checked.received.wrong, 0) << damage.place;
    EXPECT_NE(checked.received.first_wrong.find(damage.place), std::string::npos)
        << damage.place << " in: " << checked.received.first_wrong;
  }
}

TEST(BenchDevice, CudaIsRefusedWhereTheBuildLacksIt) {
  EXPECT_TRUE(make_device(Backend::kHost, 0).ok());
  if (has_cuda()) GTEST_SKIP() << "this build has the CUDA backend";
  EXPECT_EQ(make_device(Backend::kCuda, 0).status().code(), Errc::kUnsupported);
  EXPECT_EQ(read_gpus().status().code(), Errc::kUnsupported);
}

}  // namespace
}  // namespace ep::bench
