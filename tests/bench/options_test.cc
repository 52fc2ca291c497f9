// SPDX-License-Identifier: Apache-2.0
// The command line: what is accepted, what is refused, and with which exit code.
#include "bench/options.h"

#include "bench/job.h"

#include <gtest/gtest.h>

#include <iterator>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

namespace ep::bench {
namespace {

struct Parsed {
  std::variant<Options, ExitCode> outcome;
  std::string out;
  std::string err;

  bool is_refused() const {
    const auto* code = std::get_if<ExitCode>(&outcome);
    return code != nullptr && *code == ExitCode::kUsage && !err.empty();
  }
};

using Args = std::vector<std::string>;

Args words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

Parsed parse(const Args& args) {
  std::vector<const char*> argv = {"ep-bench"};
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  std::ostringstream out;
  std::ostringstream err;
  auto outcome = parse_options(static_cast<int>(argv.size()), argv.data(), out, err);
  return {std::move(outcome), out.str(), err.str()};
}

Options options_of(const Args& args) {
  const Parsed parsed = parse(args);
  EXPECT_TRUE(std::holds_alternative<Options>(parsed.outcome)) << parsed.err;
  const auto* options = std::get_if<Options>(&parsed.outcome);
  return options == nullptr ? Options() : *options;
}

TEST(BenchOptions, HasTheDocumentedDefaults) {
  const Options options = options_of({"moe"});
  EXPECT_EQ(options.backend, Backend::kHost);
  EXPECT_EQ(options.ranks, 2);
  EXPECT_EQ(options.tokens, 1024);
  EXPECT_EQ(options.hidden, 2048);
  EXPECT_EQ(options.topk, 4);
  EXPECT_EQ(options.experts, 32);
  EXPECT_EQ(options.dtype, DType::kBf16);
  EXPECT_EQ(options.layout, Layout::kFlat);
  EXPECT_EQ(options.launch, Launch::kFork);
  EXPECT_EQ(options.capacity.kind, Capacity::Kind::kExact);
  EXPECT_FALSE(options.given.ranks);
}

TEST(BenchOptions, ReadsEveryOption) {
  const Options options = options_of(words_of(
      "combine --ranks 3 --lsa-size 3 --tokens 0 --hidden 16 --topk 2 --experts 9 --dtype fp8 "
      "--layout expert_major --sms 4 --iters 7 --warmup 0 --seed 99 --exact --launch threads "
      "--mode eager --routing cached --placement outside --capacity 77 --align 8 --timeout 2.5 "
      "--json - --text a --record b"));
  EXPECT_EQ(options.command, Command::kCombine);
  EXPECT_EQ(options.lsa_size, 3);
  EXPECT_EQ(options.tokens, 0);
  EXPECT_EQ(options.dtype, DType::kFp8E4M3);
  EXPECT_EQ(options.layout, Layout::kExpertMajor);
  EXPECT_EQ(options.sms, 4);
  EXPECT_EQ(options.warmup, 0);
  EXPECT_EQ(options.seed, 99u);
  EXPECT_TRUE(options.exact);
  EXPECT_EQ(options.launch, Launch::kThreads);
  EXPECT_EQ(options.routing, RoutingReuse::kCached);
  EXPECT_EQ(options.placement, Placement::kOutside);
  EXPECT_EQ(options.capacity.rows, 77);
  EXPECT_EQ(options.align, 8);
  EXPECT_EQ(options.timeout.count(), 2500);
  EXPECT_EQ(options.text, "a");
  EXPECT_TRUE(options.given.ranks && options.given.iters && options.given.launch);
}

TEST(BenchOptions, ReadsTheNetworkBetweenNodes) {
  const Options plain = options_of(words_of("moe --ranks 4 --lsa-size 2"));
  EXPECT_EQ(plain.net, NetKind::kOrdered);
  EXPECT_FALSE(plain.chaos_seed.has_value());
  EXPECT_TRUE(has_nodes(plain));
  EXPECT_TRUE(validate_topology(plain).ok());
  const Options chaos =
      options_of(words_of("soak --ranks 4 --lsa-size 3 --net chaos --chaos-seed 7 --provider net"));
  EXPECT_EQ(chaos.net, NetKind::kChaos);
  EXPECT_EQ(chaos.chaos_seed, 7u);
  EXPECT_EQ(chaos.provider, "net");
  const Options unseeded = options_of(words_of("moe --ranks 4 --lsa-size 1 --net chaos"));
  EXPECT_EQ(unseeded.chaos_seed, 1u);
  EXPECT_TRUE(validate(unseeded).ok());
}

TEST(BenchOptions, OneNodeHasNoNetwork) {
  for (const char* args : {"moe --ranks 4", "moe --ranks 4 --lsa-size 4", "model"}) {
    EXPECT_FALSE(has_nodes(options_of(words_of(args)))) << args;
  }
  Options cuda = options_of(words_of("moe --ranks 4 --lsa-size 2"));
  cuda.backend = Backend::kCuda;
  EXPECT_EQ(validate_topology(cuda).code(), Errc::kUnsupported);
}

TEST(BenchOptions, SweepTakesLists) {
  const Options options = options_of(
      words_of("sweep --op combine --sms 8,12,16 --tokens 128,4096 --plot a.png --ceilings b"));
  EXPECT_EQ(options.command, Command::kSweep);
  EXPECT_EQ(options.swept, Command::kCombine);
  EXPECT_EQ(options.sms_list, (std::vector<int>{8, 12, 16}));
  EXPECT_EQ(options.tokens_list, (std::vector<std::int64_t>{128, 4096}));
  EXPECT_EQ(options.plot, "a.png");
  EXPECT_EQ(options.ceilings, "b");
}

TEST(BenchOptions, ModelHasAShapeOfItsOwn) {
  const Options options = options_of({"model"});
  EXPECT_EQ(options.command, Command::kModel);
  EXPECT_EQ(options.ranks_list, (std::vector<int>{8, 16, 32, 64, 128, 256, 512, 1024}));
  EXPECT_EQ(options.lsa_size, 8);
  EXPECT_EQ(options.tokens, 4096);
  EXPECT_EQ(options.hidden, 7168);
  EXPECT_EQ(options.topk, 8);
  EXPECT_EQ(options.experts, 256);
  EXPECT_EQ(options.capacity.kind, Capacity::Kind::kAuto);
}

TEST(BenchOptions, ModelTakesRanksAndCosts) {
  const Options options = options_of(words_of(
      "model --ranks 4,6 --lsa-size 2 --tokens 5 --topk 2 --experts 12 --chunk-tokens 32 --zipf "
      "1.5 "
      "--message-us 0.25 --net-gbps 12.5 --net-latency-us 3 --push-gbps 7 --pull-gbps 6 --plot p"));
  EXPECT_EQ(options.ranks_list, (std::vector<int>{4, 6}));
  EXPECT_EQ(options.ranks, 4);
  EXPECT_EQ(options.lsa_size, 2);
  EXPECT_EQ(options.experts, 12);
  EXPECT_EQ(options.model.chunk_tokens, 32);
  EXPECT_EQ(options.model.zipf_exponent, 1.5);
  EXPECT_EQ(options.model.costs.message_us, 0.25);
  EXPECT_EQ(options.model.costs.net_gbps, 12.5);
  EXPECT_EQ(options.model.costs.net_latency_us, 3);
  EXPECT_EQ(options.model.costs.push_gbps, 7);
  EXPECT_EQ(options.model.costs.pull_gbps, 6);
  EXPECT_TRUE(validate(options).ok()) << "more ranks than one node";
}

TEST(BenchOptions, ACudaRunHasACapacityUnlessToldOtherwise) {
  using Kind = Capacity::Kind;
  const auto kind_of = [](const char* args) { return options_of(words_of(args)).capacity.kind; };
  EXPECT_EQ(kind_of("dispatch --backend cuda"), Kind::kAuto);
  EXPECT_EQ(kind_of("dispatch --backend cuda --capacity exact"), Kind::kExact);
  EXPECT_EQ(kind_of("dispatch --backend cuda --capacity 7"), Kind::kRows);
  EXPECT_EQ(kind_of("dispatch"), Kind::kExact);
}

TEST(BenchOptions, HelpAndVersionAreRight) {
  for (const auto& args : {Args{"--help"}, Args{"moe", "--help"}, Args{"--version"}}) {
    const Parsed parsed = parse(args);
    ASSERT_TRUE(std::holds_alternative<ExitCode>(parsed.outcome));
    EXPECT_EQ(std::get<ExitCode>(parsed.outcome), ExitCode::kRight);
    EXPECT_FALSE(parsed.out.empty());
  }
  EXPECT_NE(parse({"moe", "--help"}).out.find("--experts"), std::string::npos);
}

class BenchBadOptions : public testing::TestWithParam<const char*> {};

TEST_P(BenchBadOptions, AreRefusedByTheParser) {
  EXPECT_TRUE(parse(words_of(GetParam())).is_refused());
}

INSTANTIATE_TEST_SUITE_P(All,
                         BenchBadOptions,
                         testing::Values("",
                                         "fly",
                                         "moe dispatch",
                                         "moe --unknown",
                                         "moe stray",
                                         "moe --ranks",
                                         "moe --ranks 0",
                                         "moe --ranks two",
                                         "moe --ranks 2 --ranks 3",
                                         "moe --tokens -1",
                                         "moe --tokens 99999999999",
                                         "moe --hidden 0",
                                         "moe --topk 0",
                                         "moe --topk 33",
                                         "moe --experts 0",
                                         "moe --dtype fp64",
                                         "moe --layout batched",
                                         "moe --sms 0",
                                         "moe --sms 1025",
                                         "sweep --sms 8,,12",
                                         "sweep --sms 8,",
                                         "sweep --sms 8,x",
                                         "sweep --tokens ,",
                                         "sweep --op moe",
                                         "model --ranks 8,",
                                         "model --ranks 8,2000",
                                         "model --zipf -1",
                                         "model --chunk-tokens 0",
                                         "model --net-gbps 0",
                                         "model --message-us soon",
                                         "moe --iters 0",
                                         "moe --warmup -1",
                                         "moe --launch ssh",
                                         "moe --mode lazy",
                                         "moe --backend tpu",
                                         "moe --routing stale",
                                         "moe --placement disk",
                                         "moe --capacity 0",
                                         "moe --capacity most",
                                         "moe --align 0",
                                         "moe --timeout 0",
                                         "moe --timeout soon",
                                         "moe --seed -3",
                                         "moe --text a --trace b"));

struct Invalid {
  const char* args;
  Errc code;
  const char* message;
};

class BenchInvalidOptions : public testing::TestWithParam<Invalid> {};

TEST_P(BenchInvalidOptions, AreRefusedWithNamesAndValues) {
  const Result<Job> job = make_job(options_of(words_of(GetParam().args)));
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.status().code(), GetParam().code);
  EXPECT_NE(job.status().message().find(GetParam().message), std::string::npos)
      << job.status().message();
  EXPECT_EQ(exit_code_of(job.status()), ExitCode::kUsage);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    BenchInvalidOptions,
    testing::Values(
        Invalid{"moe --topk 9 --experts 8", Errc::kInvalidArgument,
                "--topk 9 is above --experts 8"},
        Invalid{"moe --hidden 2047", Errc::kInvalidArgument,
                "--hidden 2047 of --dtype bf16 is 4094 bytes"},
        Invalid{"moe --hidden 24 --dtype int8", Errc::kInvalidArgument, "24 bytes"},
        Invalid{"moe --align 4", Errc::kInvalidArgument, "--align 4 needs --layout expert_major"},
        Invalid{"moe --lsa-size 3", Errc::kInvalidArgument, "--lsa-size 3, --ranks 2"},
        Invalid{"moe --lsa-size 0", Errc::kInvalidArgument, "--lsa-size 0"},
        Invalid{"moe --net ordered", Errc::kInvalidArgument, "--net needs several nodes"},
        Invalid{"moe --lsa-size 1 --net unordered --chaos-seed 7", Errc::kInvalidArgument,
                "--chaos-seed 7 needs --net chaos, not --net unordered"},
        Invalid{"moe --mode graph", Errc::kUnsupported, "--mode graph"},
        Invalid{"moe --sms 8,12", Errc::kInvalidArgument, "--sms takes a list"},
        Invalid{"moe --tokens 8,12", Errc::kInvalidArgument, "--tokens takes a list"},
        Invalid{"moe --plot a.png", Errc::kInvalidArgument, "--plot a.png"},
        Invalid{"moe --ranks 2,4", Errc::kInvalidArgument, "--ranks takes a list"},
        Invalid{"model --lsa-size 0", Errc::kInvalidArgument, "--lsa-size 0"},
        Invalid{"model --topk 9 --experts 8", Errc::kInvalidArgument, "--topk 9"},
        Invalid{"moe --ceilings /nonexistent/c", Errc::kInvalidArgument, "/nonexistent/c"},
        Invalid{"moe --text /nonexistent/a", Errc::kInvalidArgument, "/nonexistent/a"},
        Invalid{"moe --trace /nonexistent/b", Errc::kInvalidArgument, "/nonexistent/b"}));

TEST(BenchOptions, CudaIsRefusedWhereTheBuildLacksIt) {
  if (has_cuda()) GTEST_SKIP() << "this build has the CUDA backend";
  for (const char* args : {"moe --backend cuda", "info --backend cuda", "p2p"}) {
    const Result<Job> job = make_job(options_of(words_of(args)));
    EXPECT_EQ(job.status().code(), Errc::kUnsupported) << args;
    EXPECT_NE(job.status().message().find("EP_WITH_CUDA"), std::string::npos) << args;
  }
}

TEST(BenchOptions, GraphsNeedACapacityAndNoTrace) {
  if (!has_cuda()) GTEST_SKIP() << "this build has no CUDA backend";
  for (const char* more : {"--capacity exact", "--trace /nonexistent/t"}) {
    Options options = options_of(words_of(std::string("moe --backend cuda --mode graph ") + more));
    EXPECT_EQ(validate(options).code(), Errc::kUnsupported) << more;
  }
}

TEST(BenchOptions, SpellingsAreThoseOfTheCommandLine) {
  EXPECT_STREQ(option_name_of(DType::kFp8E4M3), "fp8");
  EXPECT_STREQ(option_name_of(Layout::kExpertMajor), "expert_major");
  EXPECT_STREQ(name_of(RoutingReuse::kCached), "cached");
  EXPECT_STREQ(name_of(Placement::kOutside), "outside");
  EXPECT_STREQ(name_of(Command::kInfo), "info");
}

Trace small_trace() {
  return {.num_ranks = 3,
          .num_experts = 6,
          .topk = 2,
          .steps = {{{.experts = {0, 1, 2, 3}, .weights = {1, 1, 1, 1}}, {}, {}}, {{}, {}, {}}}};
}

TEST(BenchOptions, ATraceDecidesTheShape) {
  Options options = options_of({"moe"});
  options.iters = 5;
  ASSERT_TRUE(apply_trace(small_trace(), options).ok());
  EXPECT_EQ(options.ranks, 3);
  EXPECT_EQ(options.experts, 6);
  EXPECT_EQ(options.topk, 2);
  EXPECT_EQ(options.tokens, 2);
  EXPECT_EQ(options.iters, 6) << "whole passes over both steps";
}

TEST(BenchOptions, ATraceRefusesAnotherShape) {
  for (const auto& args : {Args{"moe", "--ranks", "2"}, Args{"moe", "--experts", "7"},
                           Args{"moe", "--topk", "4"}, Args{"moe", "--tokens", "9"}}) {
    Options options = options_of(args);
    const Status status = apply_trace(small_trace(), options);
    EXPECT_EQ(status.code(), Errc::kInvalidArgument);
    EXPECT_NE(status.message().find(std::string(args[1]) + " " + args[2]), std::string::npos)
        << status.message();
  }
}

}  // namespace
}  // namespace ep::bench
