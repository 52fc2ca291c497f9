// SPDX-License-Identifier: Apache-2.0
// How many SMs (on the host: channels) the operations of a process, a group or a call may use.
#pragma once

#include <ep/api.h>
#include <ep/config.h>
#include <ep/layout.h>
#include <ep/status.h>

#include <cstdint>

namespace ep {

enum class Movement : std::uint8_t {
  kDispatch,  ///< rows to experts; also the backward direction of combine
  kCombine,   ///< sums to tokens; also the backward direction of dispatch
};

/// What an operation moves, for choosing a budget.
struct OpShape {
  int num_ranks = 1;
  std::int64_t num_tokens = 0;    ///< of this rank
  std::int64_t hidden_bytes = 0;  ///< of one row, without scales
  int topk = 1;
  Movement movement = Movement::kDispatch;
  Layout layout = Layout::kFlat;
  Backend backend = Backend::kHost;

  /// Rows that leave this rank if every token goes to as many ranks (kFlat) or experts
  /// (kExpertMajor) as it can.
  std::int64_t num_rows() const {
    const int copies = layout == Layout::kFlat && num_ranks < topk ? num_ranks : topk;
    return num_tokens * copies;
  }
};

/// One number bounds every kernel of an operation: counting, sending, permuting, reducing. A call
/// takes the first that is set: its own `num_sms`, the group's, the process default, else
/// suggest_num_sms(). Results are bitwise equal for every budget.
class EP_API SmBudget {
 public:
  /// The process default: set_process_default(), else EP_NUM_SMS, else 0 (none). Any thread.
  static int process_default();
  /// 0 removes the default. Errors: kInvalidArgument below 0 or above kMaxSms.
  static Status set_process_default(int num_sms);

  /// Upper bound of any budget.
  static constexpr int kMaxSms = 1024;
};

/// On GPUs: the least number of SMs that a measured curve shows within a few per cent of the best
/// time for the nearest shape (docs/tuning.md); a group takes no more than its share of the device
/// (Group::num_sms has what is in force). On the host: the processors that this process may run on,
/// divided by the ranks of this host, at least 1; a call of few bytes uses 1, since waking a second
/// thread costs more than it saves (bench/README.md).
EP_API int suggest_num_sms(const OpShape& shape);

}  // namespace ep
