// SPDX-License-Identifier: Apache-2.0
// Rank, size and address of torchrun, Open MPI and Slurm.
#include "fabric/bootstrap/environment.h"

#include "base/check.h"
#include "base/hash.h"

#include <array>
#include <string>
#include <utility>

namespace ep::fabric {
namespace {

using base::EnvLookup;
using base::EnvVar;

constexpr base::IntRange kRankRange{0, kMaxBootstrapRanks - 1};
constexpr base::IntRange kCountRange{1, kMaxBootstrapRanks};
constexpr base::IntRange kPortRange{1, 65'535};

/// One launcher's variables.
struct Launcher {
  EnvVar rank;
  EnvVar num_ranks;
  /// Ranks on this host, or hosts: whichever the launcher tells.
  EnvVar locality;
  bool is_locality_in_hosts;
};

constexpr Launcher kTorchrun{EnvVar::kTorchRank, EnvVar::kTorchWorldSize,
                             EnvVar::kTorchLocalWorldSize, false};
/// torchrun first: it may itself run below one of the others, and mpirun within a Slurm job.
constexpr std::array kLaunchers = {
    kTorchrun,
    Launcher{EnvVar::kOmpiRank, EnvVar::kOmpiSize, EnvVar::kOmpiLocalSize, false},
    Launcher{EnvVar::kSlurmProcId, EnvVar::kSlurmNumTasks, EnvVar::kSlurmNumNodes, true},
};

std::optional<Launcher> find_launcher(const EnvLookup& lookup) {
  for (const Launcher& launcher : kLaunchers) {
    if (lookup(launcher.rank)) return launcher;
  }
  return std::nullopt;
}

std::string name(EnvVar var) { return std::string(base::name_of(var)); }

Status invalid(std::string message) {
  return Status(Errc::kInvalidArgument, "bootstrap: " + std::move(message));
}

Result<int> required_int(EnvVar var, base::IntRange range, const EnvLookup& lookup) {
  EP_TRY_ASSIGN(const std::optional<std::int64_t> value, base::env_int(var, range, lookup));
  if (!value) return invalid(name(var) + " is not set");
  return static_cast<int>(*value);
}

/// A field of TcpBootstrapConfig, else the launcher's variable.
Result<int> field_or_variable(std::optional<int> field,
                              const char* field_name,
                              std::optional<EnvVar> var,
                              base::IntRange range,
                              const EnvLookup& lookup) {
  if (field) {
    EP_TRY(base::parse_int(field_name, std::to_string(*field), range));
    return *field;
  }
  if (!var) {
    return invalid(std::string(field_name) +
                   " is not known: none of RANK, OMPI_COMM_WORLD_RANK and " +
                   "SLURM_PROCID is set");
  }
  return required_int(*var, range, lookup);
}

Status resolve_rank(const TcpBootstrapConfig& config,
                    const std::optional<Launcher>& launcher,
                    const EnvLookup& lookup,
                    RendezvousSettings& settings) {
  std::optional<EnvVar> rank_var;
  std::optional<EnvVar> size_var;
  if (launcher) {
    rank_var = launcher->rank;
    size_var = launcher->num_ranks;
  }
  EP_TRY_ASSIGN(settings.num_ranks,
                field_or_variable(config.num_ranks, "num_ranks", size_var, kCountRange, lookup));
  EP_TRY_ASSIGN(settings.rank,
                field_or_variable(config.rank, "rank", rank_var, kRankRange, lookup));
  if (settings.rank >= settings.num_ranks) {
    const std::string rank_name = config.rank || !rank_var ? "rank" : name(*rank_var);
    const std::string size_name = config.num_ranks || !size_var ? "num_ranks" : name(*size_var);
    return invalid(rank_name + " = " + std::to_string(settings.rank) + ", but " + size_name +
                   " = " + std::to_string(settings.num_ranks));
  }
  return Status();
}

/// Empty where the launcher does not say.
Result<std::optional<bool>> single_host_of_launcher(const std::optional<Launcher>& launcher,
                                                    int num_ranks,
                                                    const EnvLookup& lookup) {
  if (!launcher) return std::optional<bool>();
  EP_TRY_ASSIGN(const std::optional<std::int64_t> count,
                base::env_int(launcher->locality, kCountRange, lookup));
  if (!count) return std::optional<bool>();
  return std::optional<bool>(launcher->is_locality_in_hosts ? *count == 1 : *count >= num_ranks);
}

std::string job_id_of_launcher(const std::optional<Launcher>& launcher, const EnvLookup& lookup) {
  const auto text = [&lookup](EnvVar var) { return lookup(var).value_or(""); };
  if (!launcher) return "default";
  if (launcher->rank == EnvVar::kTorchRank) {
    // The run id alone is "none" for every job started without one; the store's port tells them
    // apart.
    return "torch/" + text(EnvVar::kTorchRunId) + "/" + text(EnvVar::kTorchMasterPort) + "/" +
           text(EnvVar::kTorchRestartCount);
  }
  if (launcher->rank == EnvVar::kOmpiRank) return "ompi/" + text(EnvVar::kPmixNamespace);
  return "slurm/" + text(EnvVar::kSlurmJobId) + "/" + text(EnvVar::kSlurmStepId);
}

std::vector<int> derived_ports(const std::string& job_id) {
  constexpr std::uint64_t kNumPorts = kLastDerivedPort - kFirstDerivedPort + 1;
  const std::uint64_t start = base::fnv1a_64(job_id);
  std::vector<int> ports;
  for (std::uint64_t i = 0; i < kNumDerivedPorts; ++i) {
    ports.push_back(kFirstDerivedPort + static_cast<int>((start + i) % kNumPorts));
  }
  return ports;
}

Status resolve_address(const TcpBootstrapConfig& config,
                       const std::optional<Launcher>& launcher,
                       const EnvLookup& lookup,
                       RendezvousSettings& settings) {
  settings.host = config.address ? config.address : lookup(EnvVar::kMasterAddr);
  const bool is_torchrun = launcher && launcher->rank == EnvVar::kTorchRank;
  if (!settings.host && is_torchrun) settings.host = lookup(EnvVar::kTorchMasterAddr);

  EP_TRY_ASSIGN(const std::optional<std::int64_t> env_port,
                base::env_int(EnvVar::kMasterPort, kPortRange, lookup));
  std::optional<std::int64_t> port = env_port;
  if (config.port) {
    EP_TRY_ASSIGN(port, base::parse_int("port", std::to_string(*config.port), kPortRange));
  }

  EP_TRY_ASSIGN(const std::optional<bool> told,
                single_host_of_launcher(launcher, settings.num_ranks, lookup));
  const bool has_loopback = settings.host && is_loopback_name(*settings.host);
  settings.is_single_host = has_loopback || told.value_or(!settings.host.has_value());
  if (!settings.host && !settings.is_single_host) {
    return invalid("EP_MASTER_ADDR is not set, and the ranks are on several hosts");
  }
  if (port && !settings.host) settings.host = "127.0.0.1";
  if (!settings.host) return Status();
  settings.ports =
      port ? std::vector<int>{static_cast<int>(*port)} : derived_ports(settings.job_id);
  return Status();
}

}  // namespace

bool is_loopback_name(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Result<RendezvousSettings> resolve_settings(const TcpBootstrapConfig& config,
                                            const EnvLookup& lookup) {
  RendezvousSettings settings;
  settings.timeout = config.timeout;
  if (settings.timeout.count() <= 0) {
    return invalid("timeout = " + std::to_string(settings.timeout.count()) +
                   " ms, expected above 0");
  }
  const std::optional<Launcher> launcher = find_launcher(lookup);
  EP_TRY(resolve_rank(config, launcher, lookup, settings));

  std::optional<std::string> job_id = config.job_id ? config.job_id : lookup(EnvVar::kJobId);
  settings.job_id = job_id ? *job_id : job_id_of_launcher(launcher, lookup);
  if (settings.job_id.size() > kMaxJobIdBytes) {
    return invalid("job id of " + std::to_string(settings.job_id.size()) + " bytes, at most " +
                   std::to_string(kMaxJobIdBytes) + " allowed");
  }
  EP_TRY(resolve_address(config, launcher, lookup, settings));
  settings.cookie = config.cookie ? *config.cookie : lookup(EnvVar::kCookie).value_or("");
  if (!settings.is_single_host && settings.cookie.empty()) {
    return invalid("EP_COOKIE is not set, but the " + std::to_string(settings.num_ranks) +
                   " ranks may be on several hosts (rank 0 at " + *settings.host +
                   "): all need the same secret");
  }
  return settings;
}

}  // namespace ep::fabric
