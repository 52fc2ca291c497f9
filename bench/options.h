// SPDX-License-Identifier: Apache-2.0
// The command line of ep-bench.
#pragma once

#include "bench/exit_code.h"
#include "bench/link_costs.h"

#include <ep/config.h>
#include <ep/dtype.h>
#include <ep/moe.h>
#include <ep/status.h>

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ep::bench {

enum class Command : std::uint8_t {
  kMoe,
  kDispatch,
  kCombine,
  kInfo,
  kP2p,
  kNet,
  kSweep,
  kSoak,
  kModel,
};
enum class Launch : std::uint8_t { kFork, kThreads };
enum class Mode : std::uint8_t { kEager, kGraph };
enum class RoutingReuse : std::uint8_t {
  kFresh,   ///< every dispatch counts
  kCached,  ///< every dispatch repeats the routing of a handle
};
enum class Placement : std::uint8_t {
  kArena,    ///< expert rows lie in the arena
  kOutside,  ///< expert rows lie in ordinary memory
};

/// Between the nodes of a run.
enum class NetKind : std::uint8_t {
  kOrdered,    ///< as the provider says of itself
  kUnordered,  ///< no order is relied on
  kChaos,      ///< a hostile network that decides by a seed
};

/// Rows of the receive tensors.
struct Capacity {
  enum class Kind : std::uint8_t {
    kExact,  ///< as many as arrive
    kAuto,   ///< as many as could arrive
    kRows,
  };
  Kind kind = Kind::kExact;
  std::int64_t rows = 0;
};

/// Which options the command line names: a trace and a launcher decide the others.
struct Given {
  bool ranks = false;
  bool lsa_size = false;
  bool tokens = false;
  bool hidden = false;
  bool topk = false;
  bool experts = false;
  bool iters = false;
  bool launch = false;
  bool capacity = false;
  bool net = false;
};

struct ModelOptions {
  /// Tokens of a rank that may share a put.
  int chunk_tokens = 8;
  double zipf_exponent = 0.5;
  LinkCosts costs;
};

struct Options {
  Command command = Command::kMoe;
  Backend backend = Backend::kHost;
  int ranks = 2;
  std::optional<int> lsa_size;
  std::int64_t tokens = 1024;
  std::int64_t hidden = 2048;
  int topk = 4;
  int experts = 32;
  DType dtype = DType::kBf16;
  Layout layout = Layout::kFlat;
  std::optional<int> sms;
  /// Of sweep, p2p and model, which take several; else at most one.
  std::vector<int> sms_list;
  std::vector<std::int64_t> tokens_list;
  std::vector<int> ranks_list;
  Command swept = Command::kDispatch;
  /// Between nodes. The seed is that of NetKind::kChaos, which always has one.
  NetKind net = NetKind::kOrdered;
  std::optional<std::uint64_t> chaos_seed;
  /// Between nodes, and of net.
  std::optional<std::string> provider;
  /// Of net.
  std::vector<std::int64_t> sizes;
  bool unordered = false;
  std::optional<std::string> plot;
  std::optional<std::string> ceilings;
  int iters = 20;
  int warmup = 3;
  std::optional<std::string> text;
  std::optional<std::string> trace;
  std::optional<std::string> record;
  std::optional<std::string> json;
  std::uint64_t seed = 1;
  bool exact = false;
  Launch launch = Launch::kFork;
  Mode mode = Mode::kEager;
  RoutingReuse routing = RoutingReuse::kFresh;
  Placement placement = Placement::kArena;
  Capacity capacity;
  int align = 1;
  ModelOptions model;
  std::chrono::milliseconds timeout{10'000};
  Given given;
};

/// The options, or the exit code of a program that has nothing to run: help, version, or an error,
/// which was printed.
std::variant<Options, ExitCode> parse_options(int argc,
                                              const char* const* argv,
                                              std::ostream& out,
                                              std::ostream& err);

/// What the parser cannot see by itself. Errors: kInvalidArgument, kUnsupported, with the options'
/// names and values.
Status validate(const Options& options);
/// The same, of ranks and nodes: once it is known how many ranks there are.
Status validate_topology(const Options& options);

/// Whether it runs operations of a group.
bool has_group(Command command);
/// Ranks of a node; the last node may have fewer.
int lsa_size_of(const Options& options);
/// Whether the group has several nodes. Of Command::kModel, which has no group, false.
bool has_nodes(const Options& options);

/// Spellings of the command line and of the JSON lines.
const char* name_of(Command command);
const char* name_of(Mode mode);
const char* name_of(RoutingReuse routing);
const char* name_of(Placement placement);
const char* name_of(Launch launch);
const char* name_of(NetKind net);
const char* option_name_of(DType dtype);
const char* option_name_of(Layout layout);
const char* option_name_of(Backend backend);

}  // namespace ep::bench
