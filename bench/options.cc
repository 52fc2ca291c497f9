// SPDX-License-Identifier: Apache-2.0
// Parses with CLI11; every error of the parser is exit code 2.
#include "bench/options.h"

#include "base/check.h"
#include "base/env.h"
#include "bench/model.h"
#include "bench/soak.h"

#include <ep/sm_budget.h>
#include <ep/version.h>

#include <CLI/CLI.hpp>

#include <limits>
#include <map>
#include <ostream>
#include <sstream>

namespace ep::bench {
namespace {

constexpr int kMaxRanks = 1024;
constexpr int kMaxTopk = 32;
constexpr int kMaxExperts = 1 << 16;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMaxHidden = std::int64_t{1} << 24;
constexpr int kMaxIters = 10'000'000;
constexpr int kMaxChunkTokens = 1 << 16;
constexpr double kMaxZipfExponent = 8;
constexpr double kMaxMicros = 1e6;
constexpr double kMinGbps = 1e-3;
constexpr double kMaxGbps = 1e6;
constexpr std::uint64_t kChaosSeed = 1;
constexpr std::int64_t kMaxMessageBytes = std::int64_t{1} << 30;

template <class T>
using Names = std::map<std::string, T>;

const Names<Backend> kBackends = {{"host", Backend::kHost}, {"cuda", Backend::kCuda}};
const Names<DType> kDTypes = {{"bf16", DType::kBf16},
                              {"fp16", DType::kFp16},
                              {"fp32", DType::kFp32},
                              {"fp8", DType::kFp8E4M3},
                              {"int8", DType::kInt8}};
const Names<Layout> kLayouts = {{"flat", Layout::kFlat}, {"expert_major", Layout::kExpertMajor}};
const Names<Command> kSweepable = {{"dispatch", Command::kDispatch},
                                   {"combine", Command::kCombine}};
const Names<Launch> kLaunches = {{"fork", Launch::kFork}, {"threads", Launch::kThreads}};
const Names<Mode> kModes = {{"eager", Mode::kEager}, {"graph", Mode::kGraph}};
const Names<RoutingReuse> kRoutings = {{"fresh", RoutingReuse::kFresh},
                                       {"cached", RoutingReuse::kCached}};
const Names<NetKind> kNets = {
    {"ordered", NetKind::kOrdered}, {"unordered", NetKind::kUnordered}, {"chaos", NetKind::kChaos}};
const Names<Placement> kPlacements = {{"arena", Placement::kArena},
                                      {"outside", Placement::kOutside}};

template <class T>
const char* name_in(const Names<T>& names, T value) {
  for (const auto& [name, named] : names) {
    if (named == value) return name.c_str();
  }
  return "?";
}

template <class T>
void add_choice(
    CLI::App& app, const char* name, T& value, const Names<T>& names, const char* help) {
  app.add_option(name, value, help)
      ->transform(CLI::CheckedTransformer(names).description(""))
      ->option_text([&] {
        std::string text = "{";
        for (const auto& [spelling, named] : names) {
          text += (text.size() > 1 ? "|" : "") + spelling;
        }
        return text + "} default " + name_in(names, value);
      }());
}

template <class T>
CLI::Option* add_number(CLI::App& app, const char* name, T& value, T min, T max) {
  return app.add_option(name, value)->check(CLI::Range(min, max).description(""));
}

/// "12" or "8,12,16".
template <class T>
Status parse_list(const std::string& name,
                  const std::string& text,
                  base::IntRange range,
                  std::vector<T>& list) {
  list.clear();
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    EP_TRY_ASSIGN(const std::int64_t value, base::parse_int(name, item, range));
    list.push_back(static_cast<T>(value));
  }
  if (list.empty() || text.ends_with(',')) {
    return Status(Errc::kInvalidArgument, name + " = '" + text + "' is no list of numbers");
  }
  return {};
}

template <class T>
void add_list(CLI::App& app,
              const std::string& name,
              std::vector<T>& list,
              base::IntRange range,
              const char* help) {
  app.add_option_function<std::string>(
      name,
      [name, range, &list](const std::string& text) {
        const Status status = parse_list(name, text, range, list);
        if (!status.ok()) throw CLI::ValidationError(name, status.message());
      },
      help);
}

void add_shape_options(CLI::App& app, Options& options) {
  add_list(app, "--ranks", options.ranks_list, {.min = 1, .max = kMaxRanks},
           "Processes or threads that dispatch to each other, default 2; model takes a list");
  app.add_option("--lsa-size", options.lsa_size,
                 "Ranks of a node, which reach each other by load and store; fewer than --ranks: "
                 "several nodes. Default EP_LSA_SIZE, else all");
  add_list(app, "--tokens", options.tokens_list, {.min = 0, .max = kMaxTokens},
           "Tokens per rank, default 1024; sweep takes a list: 128,1024");
  add_number(app, "--hidden", options.hidden, std::int64_t{1}, kMaxHidden)
      ->description("Elements per row, a multiple of 16 bytes, default 2048");
  add_number(app, "--topk", options.topk, 1, kMaxTopk)->description("Experts per token, default 4");
  add_number(app, "--experts", options.experts, 1, kMaxExperts)->description("Default 32");
  add_choice(app, "--dtype", options.dtype, kDTypes, "Rows that are dispatched");
  add_choice(app, "--layout", options.layout, kLayouts, "Of the received rows");
  add_number(app, "--align", options.align, 1, 1 << 20)
      ->description("expert_major: rows of an expert are padded to a multiple of this");
}

void add_run_options(CLI::App& app, Options& options) {
  add_choice(app, "--backend", options.backend, kBackends, "Executor");
  add_list(app, "--sms", options.sms_list, {.min = 1, .max = SmBudget::kMaxSms},
           "SMs, on the host channels, per rank, default chosen by the library; sweep and p2p take "
           "a list: 8,12,16");
  add_choice(app, "--op", options.swept, kSweepable, "What sweep runs");
  add_number(app, "--iters", options.iters, 1, kMaxIters)->description("Timed, default 20");
  add_number(app, "--warmup", options.warmup, 0, kMaxIters)->description("Not timed, default 3");
  add_choice(app, "--launch", options.launch, kLaunches, "Ranks are processes or threads");
  add_choice(app, "--mode", options.mode, kModes, "How operations are issued");
  add_choice(app, "--routing", options.routing, kRoutings, "New or repeated routing");
  add_choice(app, "--placement", options.placement, kPlacements, "Where expert rows lie");
}

void add_input_options(CLI::App& app, Options& options) {
  app.add_option("--text", options.text, "File whose words are the tokens (moe: a novel)");
  app.add_option("--trace", options.trace, "File of recorded routing: CSV or .ept")
      ->excludes("--text");
  app.add_option("--record", options.record, "Writes the routing to a file that --trace reads");
  app.add_option("--seed", options.seed, "Of rows, router and experts, default 1")
      ->check(CLI::NonNegativeNumber.description(""));
  app.add_flag("--exact", options.exact, "Values whose sums are exact in the dtype");
  app.add_option("--json", options.json, "Writes a line per operation to a file, - is stdout");
  app.add_option("--ceilings", options.ceilings,
                 "JSON lines of a p2p run of this machine: figures are given as shares of them");
  app.add_option("--plot", options.plot,
                 "sweep: a PNG of time and GB/s; model: of bytes and time (python3-matplotlib)");
}

void add_model_options(CLI::App& app, ModelOptions& options) {
  LinkCosts& costs = options.costs;
  add_number(app, "--chunk-tokens", options.chunk_tokens, 1, kMaxChunkTokens)
      ->description("model: tokens of a rank that may share a put, default 8");
  add_number(app, "--zipf", options.zipf_exponent, 0.0, kMaxZipfExponent)
      ->description("model: exponent of the skewed routing, default 0.5");
  add_number(app, "--message-us", costs.message_us, 0.0, kMaxMicros)
      ->description("model: time of a NIC per message, default 1");
  add_number(app, "--net-gbps", costs.net_gbps, kMinGbps, kMaxGbps)
      ->description("model: GB/s of a NIC and direction, default 50");
  add_number(app, "--net-latency-us", costs.net_latency_us, 0.0, kMaxMicros)
      ->description("model: from a put to its signal, default 5");
  add_number(app, "--push-gbps", costs.push_gbps, kMinGbps, kMaxGbps)
      ->description("model: GB/s that a rank stores to its node, default 365");
  add_number(app, "--pull-gbps", costs.pull_gbps, kMinGbps, kMaxGbps)
      ->description("model: GB/s that a rank loads from its node, default 335");
}

void add_net_options(CLI::App& app, Options& options) {
  add_choice(app, "--net", options.net, kNets, "Network between nodes");
  app.add_option("--chaos-seed", options.chaos_seed, "Of --net chaos, default 1")
      ->check(CLI::NonNegativeNumber.description(""));
  app.add_option("--provider", options.provider,
                 "Of libfabric, as fi_info prints it, between nodes and for net; local: memory, "
                 "with --launch threads. Default EP_NET_PROVIDER, else the best");
  add_list(app, "--sizes", options.sizes, {.min = 1, .max = kMaxMessageBytes},
           "net: bytes of a message, default 8 to 4194304");
  app.add_flag("--unordered", options.unordered, "net: relies on no order, whatever the provider");
}

std::string parse_capacity(const std::string& text, Capacity& capacity) {
  if (text == "auto" || text == "exact") {
    const bool is_auto = text == "auto";
    capacity = {.kind = is_auto ? Capacity::Kind::kAuto : Capacity::Kind::kExact, .rows = 0};
    return {};
  }
  const Result<std::int64_t> rows =
      base::parse_int("--capacity", text, {.min = 1, .max = std::numeric_limits<int>::max()});
  if (!rows.ok()) return rows.status().message() + ", or auto, or exact";
  capacity = {.kind = Capacity::Kind::kRows, .rows = *rows};
  return {};
}

void add_limit_options(CLI::App& app, Options& options) {
  app.add_option_function<std::string>(
      "--capacity",
      [&options](const std::string& text) {
        const std::string error = parse_capacity(text, options.capacity);
        if (!error.empty()) throw CLI::ValidationError("--capacity", error);
      },
      "Static rows of the receive tensors: a number, auto for the most that can arrive (default "
      "on cuda), or exact for as many as arrive (default on the host)");
  app.add_option_function<std::string>(
      "--timeout",
      [&options](const std::string& text) {
        const auto timeout = base::parse_seconds("--timeout", text);
        if (!timeout.ok()) throw CLI::ValidationError("--timeout", timeout.status().message());
        options.timeout = *timeout;
      },
      "Seconds until a wait for a peer ends, default EP_TIMEOUT, else 10");
}

void add_command(CLI::App& app, Options& options, Command command, const char* help) {
  CLI::App* subcommand = app.add_subcommand(name_of(command), help);
  subcommand->set_help_flag();  // --help falls through to the program, which has all options
  subcommand->fallthrough();
  subcommand->callback([&options, command] { options.command = command; });
}

void add_everything(CLI::App& app, Options& options) {
  app.set_version_flag("--version", std::string(version()) + " " + std::string(git_commit()));
  app.require_subcommand(1);
  add_command(app, options, Command::kMoe, "A MoE layer over a real text, every row checked");
  add_command(app, options, Command::kDispatch, "Tokens to their experts, every row checked");
  add_command(app, options, Command::kCombine, "Expert rows back to their tokens, checked");
  add_command(app, options, Command::kInfo, "Machine, versions and memory plan; runs nothing");
  add_command(app, options, Command::kSweep, "An operation over SMs and tokens, checked");
  add_command(app, options, Command::kSoak,
              "Rounds of dispatch and combine without a barrier, one rank late, exact sums");
  add_command(app, options, Command::kNet,
              "What the network between two ranks can do, beside a TCP socket");
  add_command(app, options, Command::kP2p, "What the GPUs' links and memory can do, by SMs");
  add_command(app, options, Command::kModel,
              "Bytes, messages and an estimate of time by number of ranks; runs nothing");
  add_shape_options(app, options);
  add_run_options(app, options);
  add_input_options(app, options);
  add_net_options(app, options);
  add_limit_options(app, options);
  add_model_options(app, options.model);
}

Given given_of(const CLI::App& app) {
  const auto is_given = [&app](const char* name) { return app.count(name) > 0; };
  return {.ranks = is_given("--ranks"),
          .lsa_size = is_given("--lsa-size"),
          .tokens = is_given("--tokens"),
          .hidden = is_given("--hidden"),
          .topk = is_given("--topk"),
          .experts = is_given("--experts"),
          .iters = is_given("--iters"),
          .launch = is_given("--launch"),
          .capacity = is_given("--capacity"),
          .net = is_given("--net")};
}

void settle_model(Options& options) {
  const ModelDefaults defaults;
  const Given& given = options.given;
  if (!given.ranks) options.ranks_list = defaults.ranks;
  if (!given.lsa_size) options.lsa_size = defaults.lsa_size;
  if (!given.tokens) options.tokens = defaults.tokens;
  if (!given.hidden) options.hidden = defaults.hidden;
  if (!given.topk) options.topk = defaults.topk;
  if (!given.experts) options.experts = defaults.experts;
  if (!given.capacity) options.capacity.kind = Capacity::Kind::kAuto;
}

/// What the lists and the backend decide.
void settle(Options& options) {
  if (!options.tokens_list.empty()) options.tokens = options.tokens_list.front();
  if (!options.ranks_list.empty()) options.ranks = options.ranks_list.front();
  if (!options.sms_list.empty() && options.command != Command::kP2p) {
    options.sms = options.sms_list.front();
  }
  if (options.command == Command::kSoak) {
    options.exact = true;
    if (!options.given.iters) options.iters = kSoakRounds;
    if (!options.given.tokens) options.tokens = kSoakTokens;
  }
  if (options.command == Command::kModel) settle_model(options);
  if (options.net == NetKind::kChaos && !options.chaos_seed) options.chaos_seed = kChaosSeed;
  // An operation of exact size stops the host in the middle.
  if (options.backend == Backend::kCuda && !options.given.capacity) {
    options.capacity.kind = Capacity::Kind::kAuto;
  }
}

/// As a group would; the bench must know it.
Status default_lsa_size(Options& options) {
  if (options.lsa_size || !has_group(options.command)) return {};
  EP_TRY_ASSIGN(const auto from_env, base::env_int(base::EnvVar::kLsaSize, {1, kMaxRanks}));
  if (from_env) options.lsa_size = static_cast<int>(*from_env);
  return {};
}

Status default_timeout(std::chrono::milliseconds& timeout) {
  EP_TRY_ASSIGN(const auto from_env, base::env_seconds(base::EnvVar::kTimeout));
  timeout = from_env.value_or(timeout);
  return {};
}

}  // namespace

std::variant<Options, ExitCode> parse_options(int argc,
                                              const char* const* argv,
                                              std::ostream& out,
                                              std::ostream& err) {
  Options options;
  if (const Status status = default_timeout(options.timeout); !status.ok()) {
    err << "ep-bench: " << status.to_string() << "\n";
    return ExitCode::kUsage;
  }
  CLI::App app("Measures and checks MoE dispatch and combine.", "ep-bench");
  add_everything(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    // app.help() would describe the subcommand, which has no options of its own.
    out << app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
    return ExitCode::kRight;
  } catch (const CLI::ParseError& error) {
    return app.exit(error, out, err) == 0 ? ExitCode::kRight : ExitCode::kUsage;
  }
  options.given = given_of(app);
  if (const Status status = default_lsa_size(options); !status.ok()) {
    err << "ep-bench: " << status.to_string() << "\n";
    return ExitCode::kUsage;
  }
  settle(options);
  return options;
}

const char* name_of(Command command) {
  switch (command) {
    case Command::kMoe:
      return "moe";
    case Command::kDispatch:
      return "dispatch";
    case Command::kCombine:
      return "combine";
    case Command::kInfo:
      return "info";
    case Command::kP2p:
      return "p2p";
    case Command::kNet:
      return "net";
    case Command::kSweep:
      return "sweep";
    case Command::kSoak:
      return "soak";
    case Command::kModel:
      return "model";
  }
  return "?";
}

const char* name_of(Mode mode) { return name_in(kModes, mode); }
const char* name_of(RoutingReuse routing) { return name_in(kRoutings, routing); }
const char* name_of(Placement placement) { return name_in(kPlacements, placement); }
const char* name_of(NetKind net) { return name_in(kNets, net); }
const char* name_of(Launch launch) { return name_in(kLaunches, launch); }
const char* option_name_of(DType dtype) { return name_in(kDTypes, dtype); }
const char* option_name_of(Layout layout) { return name_in(kLayouts, layout); }
const char* option_name_of(Backend backend) { return name_in(kBackends, backend); }

}  // namespace ep::bench
