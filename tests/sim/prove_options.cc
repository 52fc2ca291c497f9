// SPDX-License-Identifier: Apache-2.0
// Command line of ep_prove.
#include "tests/sim/prove_options.h"

#include <charconv>
#include <cstdio>
#include <cstring>

namespace ep::test {
namespace {

constexpr const char* kUsage =
    "usage: ep_prove [--seeds N] [--first N] [--jobs N] [--mutants N] [--large] [--report FILE]\n"
    "       ep_prove --seed N [--weaken ORDER@FILE:LINE] [--trace FILE]\n"
    "  --seeds N     run so many random workloads (300)\n"
    "  --first N     the first seed (1)\n"
    "  --jobs N      processes (2)\n"
    "  --mutants N   then weaken each tag, sync and fence that was met; up to N seeds find it\n"
    "  --large       also EP 64\n"
    "  --report FILE what found each mutant, JSON\n"
    "  --seed N      replay one run\n"
    "  --weaken M    ... with one order left out, as the reports name it\n"
    "  --trace FILE  ... and write a trace for Perfetto or chrome://tracing\n";

bool parse_number(const char* text, std::uint64_t& number) {
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, number);
  return result.ec == std::errc() && result.ptr == end;
}

class Parser {
 public:
  Parser(int argc, char** argv, ProveOptions& options)
      : argc_(argc), argv_(argv), options_(options) {}

  bool run() {
    for (at_ = 1; at_ < argc_; ++at_) {
      if (!take(argv_[at_])) return false;
    }
    return true;
  }

 private:
  bool take(const std::string& name) {
    if (name == "--large") return options_.has_large = true;
    if (at_ + 1 >= argc_) return false;
    const char* value = argv_[++at_];
    if (name == "--trace") return options_.trace_path = value, true;
    if (name == "--report") return options_.report_path = value, true;
    if (name == "--weaken") return fabric::sim::Mutation::parse(value, options_.weakened);
    std::uint64_t number = 0;
    if (!parse_number(value, number)) return false;
    if (name == "--seeds") return options_.num_seeds = number, true;
    if (name == "--first") return options_.first_seed = number, true;
    if (name == "--mutants") return options_.mutant_seeds = number, true;
    if (name == "--jobs") return options_.num_jobs = static_cast<int>(number), number > 0;
    if (name != "--seed") return false;
    options_.first_seed = number;
    return options_.is_replay = true;
  }

  int argc_;
  char** argv_;
  ProveOptions& options_;
  int at_ = 1;
};

}  // namespace

bool parse_prove_options(int argc, char** argv, ProveOptions& options) {
  if (Parser(argc, argv, options).run()) return true;
  std::fputs(kUsage, stderr);
  return false;
}

}  // namespace ep::test
