// SPDX-License-Identifier: Apache-2.0
// Reads the lines that p2p writes.
#include "bench/ceilings.h"

#include "base/check.h"
#include "bench/file_bytes.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

namespace ep::bench {
namespace {

using Json = nlohmann::json;

void raise(std::optional<double>& ceiling, double gbps) {
  ceiling = std::max(ceiling.value_or(gbps), gbps);
}

void add_line(const Json& line, Ceilings& ceilings) {
  if (line.value("op", "") != "p2p" || line.value("directions", 0) != 2) return;
  const std::string what = line.value("what", "");
  if (what == "push") raise(ceilings.push_gbps, line.at("gbps").get<double>());
  if (what == "pull") raise(ceilings.pull_gbps, line.at("gbps").get<double>());
}

}  // namespace

Result<Ceilings> parse_ceilings(std::string_view lines) {
  Ceilings ceilings;
  std::istringstream text{std::string(lines)};
  try {
    for (std::string line; std::getline(text, line);) {
      if (!line.empty()) add_line(Json::parse(line), ceilings);
    }
  } catch (const Json::exception& error) {
    return Status(Errc::kInvalidArgument, std::string("lines of p2p: ") + error.what());
  }
  if (!ceilings.push_gbps && !ceilings.pull_gbps) {
    return Status(Errc::kInvalidArgument, "no line of p2p with both directions busy");
  }
  return ceilings;
}

Result<Ceilings> read_ceilings(const std::string& path) {
  EP_TRY_ASSIGN(const std::string text, read_file(path));
  Result<Ceilings> ceilings = parse_ceilings(text);
  if (ceilings.ok()) return ceilings;
  return Status(Errc::kInvalidArgument, "--ceilings " + path + ": " + ceilings.status().message());
}

}  // namespace ep::bench
