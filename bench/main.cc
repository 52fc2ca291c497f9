// SPDX-License-Identifier: Apache-2.0
// ep-bench: measures and checks dispatch and combine.
#include "bench/options.h"
#include "bench/run.h"

#include <exception>
#include <iostream>
#include <variant>

int main(int argc, char** argv) {
  using ep::bench::ExitCode;
  try {
    const auto parsed = ep::bench::parse_options(argc, argv, std::cout, std::cerr);
    if (const auto* code = std::get_if<ExitCode>(&parsed)) return static_cast<int>(*code);
    return static_cast<int>(ep::bench::run(std::get<ep::bench::Options>(parsed)));
  } catch (const std::exception& error) {
    std::cerr << "ep-bench: " << error.what() << std::endl;
    return static_cast<int>(ExitCode::kPeer);
  }
}
