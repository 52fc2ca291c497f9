// SPDX-License-Identifier: Apache-2.0
// Uses an installed ep: the expected version, a group of one rank and memory from its arena.
#include <ep/ep.h>

#include <cstdio>
#include <string_view>

namespace {

ep::Status use_group() {
  auto bootstraps = ep::make_in_process_bootstraps(1);
  if (!bootstraps.ok()) return bootstraps.status();
  auto group = ep::Group::create(*bootstraps->front(), ep::GroupConfig{.max_tokens = 8});
  if (!group.ok()) return group.status();
  return (*group)->allocate(ep::DType::kBf16, {8, 64}).status();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view expected = argc == 2 ? argv[1] : "";
  if (ep::version() != expected) {
    std::fprintf(stderr, "version %s, expected %s\n", ep::version().data(), expected.data());
    return 1;
  }
  const ep::Status status = use_group();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
