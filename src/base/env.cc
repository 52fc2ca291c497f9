// SPDX-License-Identifier: Apache-2.0
// The table of environment variables, their reading and their parsing.
#include "base/env.h"

#include "base/check.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string>
#include <system_error>

namespace ep::base {
namespace {

constexpr std::array kTable = {
    EnvSpec{EnvVar::kLog, "EP_LOG",
            "what is printed to stderr: off, error, warn, info, debug; default warn"},
    EnvSpec{EnvVar::kTimeout, "EP_TIMEOUT",
            "seconds after which a wait for a peer ends; default 10"},
    EnvSpec{EnvVar::kNumSms, "EP_NUM_SMS",
            "SMs (host: channels) of an operation, 1 to 1024; default: by the operation"},
    EnvSpec{EnvVar::kLsaSize, "EP_LSA_SIZE",
            "ranks that reach each other by load and store; default: all"},
    EnvSpec{EnvVar::kMasterAddr, "EP_MASTER_ADDR", "host name or address of rank 0"},
    EnvSpec{EnvVar::kMasterPort, "EP_MASTER_PORT", "TCP port on which rank 0 listens"},
    EnvSpec{EnvVar::kCookie, "EP_COOKIE", "secret that all ranks share; required across hosts"},
    EnvSpec{EnvVar::kJobId, "EP_JOB_ID", "tells jobs of one user apart; default: the launcher's"},
    EnvSpec{EnvVar::kNetProvider, "EP_NET_PROVIDER",
            "provider of libfabric between nodes, as fi_info prints it; default: the best"},
    EnvSpec{EnvVar::kNetInterface, "EP_NET_INTERFACE",
            "interface, address or subnet between nodes; default: the first that is no loopback"},
    EnvSpec{EnvVar::kRxmNumConnections, "FI_OFI_RXM_NUM_MSG_EPS",
            "libfabric: connections per endpoint of rxm; above 1 ep relies on no order"},
    EnvSpec{EnvVar::kTestScale, "EP_TEST_SCALE", "factor on the rounds of tests; default 1"},
    EnvSpec{EnvVar::kTestSeed, "EP_TEST_SEED",
            "the one seed that tests of many seeds run: replays a failure; default: all"},
    EnvSpec{EnvVar::kTestBackend, "EP_TEST_BACKEND",
            "where the tests of operations run: host, cuda; default host"},
    EnvSpec{EnvVar::kTestLsaSize, "EP_TEST_LSA_SIZE",
            "ranks per node in the tests of operations; default: all"},
    EnvSpec{EnvVar::kTorchRank, "RANK", "torchrun: rank"},
    EnvSpec{EnvVar::kTorchWorldSize, "WORLD_SIZE", "torchrun: number of ranks"},
    EnvSpec{EnvVar::kTorchLocalWorldSize, "LOCAL_WORLD_SIZE", "torchrun: ranks on this host"},
    EnvSpec{EnvVar::kTorchMasterAddr, "MASTER_ADDR", "torchrun: host of rank 0"},
    EnvSpec{EnvVar::kTorchMasterPort, "MASTER_PORT",
            "torchrun: port of its own store; only tells jobs apart"},
    EnvSpec{EnvVar::kTorchRunId, "TORCHELASTIC_RUN_ID", "torchrun: job id"},
    EnvSpec{EnvVar::kTorchRestartCount, "TORCHELASTIC_RESTART_COUNT",
            "torchrun: attempt, part of the job id"},
    EnvSpec{EnvVar::kOmpiRank, "OMPI_COMM_WORLD_RANK", "Open MPI: rank"},
    EnvSpec{EnvVar::kOmpiSize, "OMPI_COMM_WORLD_SIZE", "Open MPI: number of ranks"},
    EnvSpec{EnvVar::kOmpiLocalSize, "OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI: ranks on this host"},
    EnvSpec{EnvVar::kPmixNamespace, "PMIX_NAMESPACE", "Open MPI: job id"},
    EnvSpec{EnvVar::kSlurmProcId, "SLURM_PROCID", "Slurm: rank"},
    EnvSpec{EnvVar::kSlurmNumTasks, "SLURM_NTASKS", "Slurm: number of ranks"},
    EnvSpec{EnvVar::kSlurmNumNodes, "SLURM_STEP_NUM_NODES", "Slurm: hosts of this step"},
    EnvSpec{EnvVar::kSlurmJobId, "SLURM_JOB_ID", "Slurm: job id"},
    EnvSpec{EnvVar::kSlurmStepId, "SLURM_STEP_ID", "Slurm: step, part of the job id"},
};

constexpr bool table_is_in_order() {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<std::size_t>(kTable[i].var) != i) return false;
  }
  return true;
}
static_assert(table_is_in_order());
static_assert(kTable.size() == static_cast<std::size_t>(EnvVar::kSlurmStepId) + 1);

/// Long or unprintable values must not flood or garble a message.
std::string quoted(std::string_view text) {
  constexpr std::size_t kMaxShown = 64;
  std::string shown = "'";
  for (char c : text.substr(0, kMaxShown)) shown.push_back(c >= ' ' && c <= '~' ? c : '?');
  shown.append(text.size() > kMaxShown ? "...'" : "'");
  return shown;
}

Status malformed(std::string_view name, std::string_view text, const std::string& expected) {
  return Status(Errc::kInvalidArgument,
                std::string(name) + " = " + quoted(text) + ", expected " + expected);
}

template <class Number>
std::optional<Number> parse_whole(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

}  // namespace

std::span<const EnvSpec> env_table() { return kTable; }

std::string_view name_of(EnvVar var) { return kTable[static_cast<std::size_t>(var)].name; }

std::optional<std::string> env_text(EnvVar var) {
  // The names are literals, so data() ends in 0.
  const char* value = std::getenv(name_of(var).data());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<std::int64_t> parse_int(std::string_view name, std::string_view text, IntRange range) {
  const std::optional<std::int64_t> value = parse_whole<std::int64_t>(text);
  if (!value || *value < range.min || *value > range.max) {
    return malformed(
        name, text,
        "a whole number from " + std::to_string(range.min) + " to " + std::to_string(range.max));
  }
  return *value;
}

Result<std::chrono::milliseconds> parse_seconds(std::string_view name, std::string_view text) {
  const std::optional<double> seconds = parse_whole<double>(text);
  // Written so that NaN fails.
  if (!seconds || !(*seconds > 0.0 && *seconds <= static_cast<double>(kMaxSeconds))) {
    return malformed(name, text, "seconds, above 0 and at most " + std::to_string(kMaxSeconds));
  }
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(*seconds));
}

Result<std::optional<std::int64_t>> env_int(EnvVar var, IntRange range, const EnvLookup& lookup) {
  const std::optional<std::string> text = lookup(var);
  if (!text) return std::optional<std::int64_t>();
  EP_TRY_ASSIGN(const std::int64_t value, parse_int(name_of(var), *text, range));
  return std::optional<std::int64_t>(value);
}

Result<std::optional<std::chrono::milliseconds>> env_seconds(EnvVar var, const EnvLookup& lookup) {
  const std::optional<std::string> text = lookup(var);
  if (!text) return std::optional<std::chrono::milliseconds>();
  EP_TRY_ASSIGN(const std::chrono::milliseconds value, parse_seconds(name_of(var), *text));
  return std::optional<std::chrono::milliseconds>(value);
}

double env_test_scale() {
  constexpr double kMaxScale = 1e6;
  const std::optional<std::string> text = env_text(EnvVar::kTestScale);
  const std::optional<double> scale = text ? parse_whole<double>(*text) : std::nullopt;
  return scale && *scale > 0.0 && *scale <= kMaxScale ? *scale : 1.0;
}

}  // namespace ep::base
