// SPDX-License-Identifier: Apache-2.0
// Two ranks, 256 experts: expert e multiplies by e, and combine weighs what the experts return.
#include <ep/ep.h>

#include <cstdio>
#include <thread>
#include <vector>

static ep::Result<ep::CombineOutput> run_rank(ep::Bootstrap& bootstrap) {
  auto group = ep::Group::create(bootstrap, {});
  if (!group.ok()) return group.status();
  const float x[] = {1, 1, 1, 1, 2, 2, 2, 2};  // two tokens of four elements
  const int topk_idx[] = {3, 200, 7, -1};      // top-2; -1: no expert
  const float topk_weights[] = {0.5F, 0.25F, 1, 0};
  ep::DispatchInput tokens{.x = {x, ep::DType::kFp32, {2, 4}}};
  tokens.topk_idx = {topk_idx, ep::DType::kInt32, {2, 2}};
  auto received = ep::dispatch(**group, tokens, {.layout = ep::Layout::kExpertMajor});
  if (!received.ok()) return received.status();

  auto experts = (*group)->config().experts.experts_of(bootstrap.rank());
  auto* first_row = received->expert_offsets.data<std::int64_t>();
  for (std::size_t local = 0; local < experts.size(); ++local) {
    for (auto i = first_row[local] * 4; i < first_row[local + 1] * 4; ++i)
      received->x.data<float>()[i] *= static_cast<float>(experts[local]);
  }
  ep::CombineInput outputs{.rows = received->x.view()};
  outputs.topk_weights = {topk_weights, ep::DType::kFp32, {2, 2}};
  return ep::combine(**group, received->handle, outputs);
}

int main() {
  auto bootstraps = ep::make_in_process_bootstraps(2);
  std::vector<ep::Result<ep::CombineOutput>> results(2, ep::Status());
  std::thread other([&] { results[1] = run_rank(*(*bootstraps)[1]); });
  results[0] = run_rank(*(*bootstraps)[0]);
  other.join();
  for (const auto& result : results) {
    if (!result.ok()) {
      std::puts(result.status().to_string().c_str());
      return 1;
    }
    std::printf("%g %g\n", result->tensor.data<float>()[0], result->tensor.data<float>()[4]);
  }
}
