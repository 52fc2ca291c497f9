// SPDX-License-Identifier: Apache-2.0
// Rank, size and address from the variables of launchers, good and bad.
#include "fabric/bootstrap/environment.h"

#include "tests/support/test_scale.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <string_view>

namespace ep::fabric {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

base::EnvLookup lookup_in(Variables variables) {
  return [variables](base::EnvVar var) -> std::optional<std::string> {
    const auto found = variables.find(base::name_of(var));
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Result<RendezvousSettings> resolve(const Variables& variables,
                                   const TcpBootstrapConfig& config = {}) {
  return resolve_settings(config, lookup_in(variables));
}

const Variables kTorchrun = {{"RANK", "2"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node7"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"}};

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

TEST(Environment, ReadsTorchrun) {
  const auto settings = resolve(kTorchrun);
  ASSERT_TRUE(settings.ok()) << settings.status().message();
  EXPECT_EQ(settings->rank, 2);
  EXPECT_EQ(settings->num_ranks, 4);
  EXPECT_TRUE(settings->is_single_host);
  EXPECT_EQ(settings->host, "node7");
  EXPECT_EQ(settings->job_id, "torch/none/29500/0");
}

TEST(Environment, TakesPortsOfItsOwnUnderTorchrun) {
  const auto settings = resolve(kTorchrun);
  ASSERT_EQ(settings->ports.size(), static_cast<std::size_t>(kNumDerivedPorts));
  for (int port : settings->ports) {
    EXPECT_NE(port, 29500) << "torchrun's store holds it";
    EXPECT_GE(port, kFirstDerivedPort);
    EXPECT_LE(port, kLastDerivedPort);
  }
  const auto other_job = resolve(with(kTorchrun, {{"MASTER_PORT", "29501"}}));
  EXPECT_NE(settings->ports, other_job->ports);
  const auto other_rank = resolve(with(kTorchrun, {{"RANK", "0"}}));
  EXPECT_EQ(settings->ports, other_rank->ports);
}

TEST(Environment, PrefersItsOwnAddress) {
  const auto settings =
      resolve(with(kTorchrun, {{"EP_MASTER_ADDR", "10.0.0.1"}, {"EP_MASTER_PORT", "7000"}}));
  EXPECT_EQ(settings->host, "10.0.0.1");
  EXPECT_EQ(settings->ports, std::vector<int>{7000});
}

TEST(Environment, ReadsOpenMpiAndSlurm) {
  const auto ompi = resolve({{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                             {"PMIX_NAMESPACE", "prterun-1"}});
  ASSERT_TRUE(ompi.ok()) << ompi.status().message();
  EXPECT_EQ(ompi->rank, 1);
  EXPECT_FALSE(ompi->host.has_value()) << "on one host: an abstract socket";
  EXPECT_EQ(ompi->job_id, "ompi/prterun-1");
  const auto slurm = resolve({{"SLURM_PROCID", "3"},
                              {"SLURM_NTASKS", "4"},
                              {"SLURM_STEP_NUM_NODES", "1"},
                              {"SLURM_JOB_ID", "12"},
                              {"SLURM_STEP_ID", "0"}});
  ASSERT_TRUE(slurm.ok()) << slurm.status().message();
  EXPECT_EQ(slurm->rank, 3);
  EXPECT_TRUE(slurm->is_single_host);
  EXPECT_EQ(slurm->job_id, "slurm/12/0");
}

TEST(Environment, FieldsWinOverVariables) {
  TcpBootstrapConfig config;
  config.rank = 1;
  config.num_ranks = 3;
  config.job_id = "mine";
  const auto settings = resolve(with(kTorchrun, {{"EP_JOB_ID", "theirs"}}), config);
  EXPECT_EQ(settings->rank, 1);
  EXPECT_EQ(settings->num_ranks, 3);
  EXPECT_EQ(settings->job_id, "mine");
}

TEST(Environment, AcrossHostsACookieIsRequired) {
  const Variables two_hosts = with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}});
  const auto without = resolve(two_hosts);
  ASSERT_FALSE(without.ok());
  EXPECT_EQ(without.status().code(), Errc::kInvalidArgument);
  EXPECT_NE(without.status().message().find("EP_COOKIE is not set"), std::string::npos);
  const auto with_cookie = resolve(with(two_hosts, {{"EP_COOKIE", "secret"}}));
  ASSERT_TRUE(with_cookie.ok());
  EXPECT_FALSE(with_cookie->is_single_host);
}

TEST(Environment, AnAddressThatIsNotLoopbackMayBeAnotherHost) {
  TcpBootstrapConfig config;
  config.rank = 0;
  config.num_ranks = 2;
  config.address = "10.0.0.1";
  config.port = 7000;
  EXPECT_FALSE(resolve({}, config).ok()) << "no cookie";
  config.address = "127.0.0.1";
  EXPECT_TRUE(resolve({}, config).ok());
}

TEST(Environment, SeveralHostsNeedAnAddress) {
  const auto settings = resolve({{"SLURM_PROCID", "0"},
                                 {"SLURM_NTASKS", "4"},
                                 {"SLURM_STEP_NUM_NODES", "2"},
                                 {"EP_COOKIE", "secret"}});
  ASSERT_FALSE(settings.ok());
  EXPECT_NE(settings.status().message().find("EP_MASTER_ADDR"), std::string::npos);
}

/// A change to kTorchrun and what the message must contain.
struct BadCase {
  Variables change;
  const char* expected;
};

TEST(Environment, NamesWhatIsWrong) {
  const std::vector<BadCase> cases = {
      {{{"RANK", "4"}}, "RANK = 4, but WORLD_SIZE = 4"},
      {{{"RANK", "-1"}}, "RANK = '-1'"},
      {{{"RANK", "two"}}, "RANK = 'two'"},
      {{{"WORLD_SIZE", "0"}}, "WORLD_SIZE = '0'"},
      {{{"WORLD_SIZE", "4x"}}, "WORLD_SIZE = '4x'"},
      {{{"LOCAL_WORLD_SIZE", "many"}}, "LOCAL_WORLD_SIZE = 'many'"},
      {{{"EP_MASTER_PORT", "70000"}}, "EP_MASTER_PORT = '70000'"},
      {{{"EP_JOB_ID", std::string(300, 'x')}}, "job id of 300 bytes"},
  };
  for (const BadCase& bad : cases) {
    const auto settings = resolve(with(kTorchrun, bad.change));
    ASSERT_FALSE(settings.ok()) << bad.expected;
    EXPECT_EQ(settings.status().code(), Errc::kInvalidArgument);
    EXPECT_NE(settings.status().message().find(bad.expected), std::string::npos)
        << settings.status().message();
  }
}

TEST(Environment, NamesWhatIsMissing) {
  EXPECT_NE(resolve({}).status().message().find("none of RANK"), std::string::npos);
  const auto no_size = resolve({{"RANK", "0"}});
  ASSERT_FALSE(no_size.ok());
  EXPECT_NE(no_size.status().message().find("WORLD_SIZE is not set"), std::string::npos);
  TcpBootstrapConfig config;
  config.timeout = std::chrono::milliseconds(0);
  EXPECT_FALSE(resolve(kTorchrun, config).ok());
}

TEST(Environment, RandomVariablesGiveSettingsThatHoldOrAnError) {
  std::mt19937_64 random(3);
  const std::vector<std::string> values = {"0",   "1",     "2",     "4",    "-1",
                                           "x",   "99999", "1.5",   "none", "127.0.0.1",
                                           "::1", " ",     "65536", "\xff"};
  const int rounds = test::scaled_rounds(5'000, 100'000);
  int num_accepted = 0;
  for (int round = 0; round < rounds; ++round) {
    Variables variables = random() % 2 == 0 ? kTorchrun : Variables{};
    for (const base::EnvSpec& spec : base::env_table()) {
      if (random() % 4 != 0) continue;
      variables[std::string(spec.name)] = values[random() % values.size()];
    }
    const auto settings = resolve(variables);
    if (!settings.ok()) {
      ASSERT_EQ(settings.status().code(), Errc::kInvalidArgument);
      ASSERT_FALSE(settings.status().message().empty());
      continue;
    }
    ++num_accepted;
    ASSERT_TRUE(settings->rank >= 0 && settings->rank < settings->num_ranks);
    ASSERT_LE(settings->num_ranks, kMaxBootstrapRanks);
    ASSERT_EQ(settings->host.has_value(), !settings->ports.empty());
    ASSERT_TRUE(settings->is_single_host || !settings->cookie.empty());
  }
  EXPECT_GT(num_accepted, 0);
}

}  // namespace
}  // namespace ep::fabric
