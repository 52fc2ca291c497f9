// SPDX-License-Identifier: Apache-2.0
// The net subcommand: what a network between two ranks does, beside a plain TCP socket.
#pragma once

#include "bench/job.h"
#include "bench/rank_scope.h"

#include <ep/status.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace ep::bench {

/// Of one wire and size; medians over the rounds. Ratios are medians of the rounds' ratios, whose
/// both sides saw the machine at nearly the same time.
struct NetFigure {
  std::string wire;  ///< raw_tcp, transport, put_ordered, put_unordered
  std::int64_t bytes = 0;
  double half_round_trip_us = 0;
  double message_us = 0;            ///< in a stream where only the last message is announced
  double announced_message_us = 0;  ///< in a stream where each one is
  double half_round_trip_over_raw = 1;
  double rate_over_raw = 1;
  double announced_rate_over_raw = 1;
  double announcement_cost = 0;  ///< more time per message if each is announced: 0.1 is 10 %

  double gbps() const;
  double announced_gbps() const;
  double messages_per_second() const;
};

struct NetResult {
  std::string provider;
  bool is_ordered = false;
  std::vector<NetFigure> figures;  ///< size by size, all wires of it one after another
  std::int64_t messages_checked = 0;
  std::int64_t messages_wrong = 0;  ///< arrived with other bytes than were sent
};

/// Collective over two ranks; complete on rank 0. Errors: as make_ofi_transport, kPeerTimeout.
Result<NetResult> measure_net(const Job& job, RankScope& scope);

/// A table for people.
void print_net(const NetResult& result, std::ostream& out);
/// A line for each wire and size.
std::string net_json_lines(const Job& job, const NetResult& result);

}  // namespace ep::bench
