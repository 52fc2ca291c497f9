// SPDX-License-Identifier: Apache-2.0
// Measures wires in turn, so that all of them see the same machine.
#include "bench/net.h"

#include "base/check.h"
#include "bench/engine_wire.h"
#include "bench/json_machine.h"
#include "bench/report.h"
#include "bench/stats.h"
#include "bench/transport_wire.h"
#include "bench/wire.h"
#include "fabric/ofi/ofi.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ostream>

namespace ep::bench {
namespace {

constexpr std::array<std::int64_t, 8> kDefaultSizes = {8,      1024,    7168,    14'336,
                                                       65'536, 262'144, 1 << 20, 4 << 20};
constexpr int kDefaultRounds = 7;
constexpr std::int64_t kStreamBytes = std::int64_t{32} << 20;
constexpr int kMaxStreamMessages = 3000;
constexpr std::int64_t kRoundTripBytes = std::int64_t{4} << 20;
constexpr int kMaxRoundTrips = 400;
constexpr int kMinMessages = 8;

int count_for(std::int64_t total_bytes, std::int64_t bytes, int most) {
  return static_cast<int>(
      std::clamp<std::int64_t>(total_bytes / std::max<std::int64_t>(bytes, 1), kMinMessages, most));
}

/// Of one wire and size, one element per round.
struct Samples {
  std::vector<double> half_round_trip_us;
  std::vector<double> message_us;
  std::vector<double> announced_message_us;
};

double median(const std::vector<double>& values) { return stats_of(values).median; }

/// Of the rounds' a / b.
double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(ratios);
}

NetFigure figure_of(const Samples& own, const Samples& raw) {
  NetFigure figure;
  figure.half_round_trip_us = median(own.half_round_trip_us);
  figure.message_us = median(own.message_us);
  figure.announced_message_us = median(own.announced_message_us);
  figure.half_round_trip_over_raw = median_ratio(own.half_round_trip_us, raw.half_round_trip_us);
  figure.rate_over_raw = median_ratio(raw.message_us, own.message_us);
  figure.announced_rate_over_raw = median_ratio(raw.announced_message_us, own.announced_message_us);
  figure.announcement_cost = median_ratio(own.announced_message_us, own.message_us) - 1;
  return figure;
}

class NetBench {
 public:
  NetBench(const Options& options, RankScope& scope) : options_(options), scope_(scope) {}

  Result<NetResult> run();

 private:
  Status open_wires();
  Result<std::unique_ptr<fabric::Transport>> open_transport(bool may_be_ordered);
  Status measure_size(std::int64_t bytes);
  Status measure_round(std::int64_t bytes, int round, std::vector<Samples>& samples);
  Status measure_wire(Wire& wire, std::int64_t bytes, int round, Samples& samples);

  Result<double> time_round_trips(Wire& wire, std::int64_t bytes);
  Status bounce(Wire& wire, std::int64_t bytes, int num);
  Result<double> time_stream(Wire& wire, const Stream& stream);
  Status send_stream(Wire& wire, const Stream& stream);
  void stamp(std::span<std::byte> memory, const Stream& stream) const;
  void check(Wire& wire, const Stream& stream);

  bool is_sender() const { return scope_.rank == 0; }
  Status meet() { return scope_.meeting.wait(options_.timeout); }

  const Options& options_;
  RankScope& scope_;
  std::vector<std::unique_ptr<Wire>> wires_;
  std::uint64_t num_streams_ = 0;
  NetResult result_;
};

Result<NetResult> NetBench::run() {
  EP_TRY(open_wires());
  std::vector<std::int64_t> sizes = options_.sizes;
  if (sizes.empty()) sizes.assign(kDefaultSizes.begin(), kDefaultSizes.end());
  for (std::int64_t bytes : sizes) EP_TRY(measure_size(bytes));
  // Rank 1 checked: rank 0 reports.
  const std::array<std::int64_t, 2> mine = {result_.messages_checked, result_.messages_wrong};
  EP_TRY_ASSIGN(const auto counts,
                scope_.bootstrap.all_gather(std::as_bytes(std::span(mine)), options_.timeout));
  std::array<std::int64_t, 2> of_receiver{};
  EP_CHECK(counts[1].size() == sizeof(of_receiver));
  std::memcpy(of_receiver.data(), counts[1].data(), sizeof(of_receiver));
  result_.messages_checked = of_receiver[0];
  result_.messages_wrong = of_receiver[1];
  return result_;
}

Result<std::unique_ptr<fabric::Transport>> NetBench::open_transport(bool may_be_ordered) {
  fabric::OfiConfig config;
  config.provider = options_.provider;
  config.may_be_ordered = may_be_ordered;
  EP_TRY_ASSIGN(auto transport, make_ofi_transport(scope_.bootstrap, config,
                                                   base::Deadline::after(options_.timeout)));
  result_.provider = transport->traits().name;
  return transport;
}

Status NetBench::open_wires() {
  const std::int64_t most = options_.sizes.empty()
                                ? kDefaultSizes.back()
                                : *std::max_element(options_.sizes.begin(), options_.sizes.end());
  const WireOptions wire_options = {.bytes = wire_bytes(most), .timeout = options_.timeout};
  EP_TRY_ASSIGN(auto tcp, make_tcp_wire(scope_.bootstrap, wire_options));
  wires_.push_back(std::move(tcp));

  EP_TRY_ASSIGN(auto plain, open_transport(!options_.unordered));
  result_.is_ordered = plain->traits().order == fabric::ArrivalOrder::kOrdered;
  EP_TRY_ASSIGN(auto writes, make_transport_wire(scope_.bootstrap, std::move(plain), wire_options));
  wires_.push_back(std::move(writes));

  if (result_.is_ordered) {
    EP_TRY_ASSIGN(auto ordered, open_transport(/*may_be_ordered=*/true));
    EP_TRY_ASSIGN(auto puts, make_engine_wire(scope_.bootstrap, std::move(ordered), wire_options));
    wires_.push_back(std::move(puts));
  }
  EP_TRY_ASSIGN(auto unordered, open_transport(/*may_be_ordered=*/false));
  EP_TRY_ASSIGN(auto puts, make_engine_wire(scope_.bootstrap, std::move(unordered), wire_options));
  wires_.push_back(std::move(puts));
  return Status();
}

Status NetBench::measure_size(std::int64_t bytes) {
  std::vector<Samples> samples(wires_.size());
  std::vector<Samples> warm_up(wires_.size());
  const int num_rounds = options_.given.iters ? options_.iters : kDefaultRounds;
  EP_TRY(measure_round(bytes, 0, warm_up));
  for (int round = 0; round < num_rounds; ++round) EP_TRY(measure_round(bytes, round, samples));
  for (std::size_t i = 0; i < wires_.size(); ++i) {
    NetFigure figure = figure_of(samples[i], samples.front());
    figure.wire = wires_[i]->name();
    figure.bytes = bytes;
    result_.figures.push_back(std::move(figure));
  }
  return Status();
}

/// Another wire begins in every round, and each kind of stream goes first in every other one:
/// whoever comes first finds colder caches.
Status NetBench::measure_round(std::int64_t bytes, int round, std::vector<Samples>& samples) {
  for (std::size_t i = 0; i < wires_.size(); ++i) {
    const std::size_t wire = (i + static_cast<std::size_t>(round)) % wires_.size();
    EP_TRY(measure_wire(*wires_[wire], bytes, round, samples[wire]));
  }
  return Status();
}

Status NetBench::measure_wire(Wire& wire, std::int64_t bytes, int round, Samples& samples) {
  EP_TRY_ASSIGN(const double half, time_round_trips(wire, bytes));
  samples.half_round_trip_us.push_back(half);
  Stream stream = {.bytes = bytes, .num = count_for(kStreamBytes, bytes, kMaxStreamMessages)};
  for (int turn = 0; turn < 2; ++turn) {
    stream.announces_each = turn != round % 2;
    EP_TRY_ASSIGN(const double micros, time_stream(wire, stream));
    (stream.announces_each ? samples.announced_message_us : samples.message_us).push_back(micros);
  }
  return Status();
}

Result<double> NetBench::time_round_trips(Wire& wire, std::int64_t bytes) {
  const int num = count_for(kRoundTripBytes, bytes, kMaxRoundTrips);
  EP_TRY(meet());
  EP_TRY(bounce(wire, bytes, kMinMessages));
  const std::int64_t start = base::now_ns();
  EP_TRY(bounce(wire, bytes, num));
  const double elapsed_us = static_cast<double>(base::now_ns() - start) * 1e-3;
  EP_TRY(wire.flush());
  return elapsed_us / (2.0 * num);
}

Status NetBench::bounce(Wire& wire, std::int64_t bytes, int num) {
  const Stream one = {.bytes = bytes};
  for (int i = 0; i < num; ++i) {
    if (is_sender()) EP_TRY(wire.send(one.message(0)));
    EP_TRY(wire.receive(one));
    if (!is_sender()) EP_TRY(wire.send(one.message(0)));
  }
  return Status();
}

/// The clock stops when rank 1 has said that all is there.
Result<double> NetBench::time_stream(Wire& wire, const Stream& stream) {
  ++num_streams_;
  stamp(is_sender() ? wire.source() : wire.target(), stream);
  EP_TRY(meet());
  const Stream answer = {.bytes = 1};
  const std::int64_t start = base::now_ns();
  if (is_sender()) {
    EP_TRY(send_stream(wire, stream));
    EP_TRY(wire.receive(answer));
  } else {
    EP_TRY(wire.receive(stream));
    EP_TRY(wire.send(answer.message(0)));
  }
  const double elapsed_us = static_cast<double>(base::now_ns() - start) * 1e-3;
  EP_TRY(wire.flush());
  if (!is_sender()) check(wire, stream);
  return elapsed_us / stream.num;
}

Status NetBench::send_stream(Wire& wire, const Stream& stream) {
  for (int i = 0; i < stream.num; ++i) EP_TRY(wire.send(stream.message(i)));
  return Status();
}

std::byte stamp_of(std::uint64_t num_streams, int place) {
  constexpr std::uint64_t kPrime = 251;
  return static_cast<std::byte>(1 + (num_streams * 7 + static_cast<std::uint64_t>(place)) % kPrime);
}

/// First and last byte of every place: what the sender sends, or what the receiver loses.
void NetBench::stamp(std::span<std::byte> memory, const Stream& stream) const {
  for (int place = 0; place < stream.num_places(); ++place) {
    const auto at = static_cast<std::size_t>(stream.message(place).offset);
    const auto last = at + static_cast<std::size_t>(stream.bytes) - 1;
    memory[at] = memory[last] = is_sender() ? stamp_of(num_streams_, place) : std::byte{0};
  }
}

void NetBench::check(Wire& wire, const Stream& stream) {
  for (int place = 0; place < stream.num_places(); ++place) {
    const auto at = static_cast<std::size_t>(stream.message(place).offset);
    const auto last = at + static_cast<std::size_t>(stream.bytes) - 1;
    const std::byte expected = stamp_of(num_streams_, place);
    const bool is_right = wire.target()[at] == expected && wire.target()[last] == expected;
    ++result_.messages_checked;
    result_.messages_wrong += is_right ? 0 : 1;
  }
}

}  // namespace

double NetFigure::gbps() const { return static_cast<double>(bytes) * 1e-3 / message_us; }

double NetFigure::announced_gbps() const {
  return static_cast<double>(bytes) * 1e-3 / announced_message_us;
}

double NetFigure::messages_per_second() const { return 1e6 / message_us; }

Result<NetResult> measure_net(const Job& job, RankScope& scope) {
  if (scope.num_ranks != 2) {
    return Status(Errc::kInvalidArgument,
                  "net measures 2 ranks, not " + std::to_string(scope.num_ranks));
  }
  return NetBench(job.options, scope).run();
}

void print_net(const NetResult& result, std::ostream& out) {
  out << "net: provider " << result.provider << ", "
      << (result.is_ordered ? "ordered" : "unordered")
      << "; x raw: of the time (half round trip) or rate of a TCP socket in this run\n"
      << "       bytes wire           half trip us   x raw      GB/s   x raw   kmsg/s"
         "   all announced GB/s   x raw    cost\n";
  for (const NetFigure& figure : result.figures) {
    std::array<char, 192> line{};
    std::snprintf(line.data(), line.size(),
                  "%12s %-14s %12.2f %7.2f %9.3f %7.2f %8.1f %20.3f %7.2f %6.1f%%\n",
                  with_commas(figure.bytes).c_str(), figure.wire.c_str(), figure.half_round_trip_us,
                  figure.half_round_trip_over_raw, figure.gbps(), figure.rate_over_raw,
                  figure.messages_per_second() * 1e-3, figure.announced_gbps(),
                  figure.announced_rate_over_raw, 100 * figure.announcement_cost);
    out << line.data();
  }
  out << result.messages_checked << " messages checked, " << result.messages_wrong << " wrong\n";
  out.flush();
}

std::string net_json_lines(const Job& job, const NetResult& result) {
  std::string lines;
  for (const NetFigure& figure : result.figures) {
    nlohmann::ordered_json line;
    line["op"] = "net";
    line["wire"] = figure.wire;
    line["provider"] = result.provider;
    line["bytes"] = figure.bytes;
    line["half_round_trip_us"] = figure.half_round_trip_us;
    line["half_round_trip_over_raw"] = figure.half_round_trip_over_raw;
    line["gbps"] = figure.gbps();
    line["gbps_over_raw"] = figure.rate_over_raw;
    line["messages_per_second"] = figure.messages_per_second();
    line["announced_gbps"] = figure.announced_gbps();
    line["announced_gbps_over_raw"] = figure.announced_rate_over_raw;
    line["announcement_cost"] = figure.announcement_cost;
    line["messages_checked"] = result.messages_checked;
    line["messages_wrong"] = result.messages_wrong;
    add_machine(line, job);
    lines += line.dump() + "\n";
  }
  return lines;
}

}  // namespace ep::bench
