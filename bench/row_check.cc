// SPDX-License-Identifier: Apache-2.0
// Output rows against the reference.
#include "bench/row_check.h"

#include <algorithm>
#include <sstream>
#include <vector>

namespace ep::bench {
namespace {

std::string describe(int rank, std::int64_t token, const Mismatch& mismatch) {
  std::ostringstream text;
  text.precision(10);
  text << "rank " << rank << ": out[" << token << ", " << mismatch.elem << "] = " << mismatch.actual
       << ", expected " << mismatch.expected << " +- " << mismatch.tolerance;
  return text.str();
}

}  // namespace

void collect_terms(const StepView& step,
                   std::int64_t token,
                   std::vector<WeightedExpert>& scratch,
                   std::vector<Term>& terms) {
  const RowPlaces& places = step.places;
  const RankChoices& own = places.choices()[static_cast<std::size_t>(step.rank)];
  const auto topk = static_cast<std::size_t>(places.topk());
  const std::size_t first = static_cast<std::size_t>(token) * topk;
  distinct_experts(std::span(own.topk_idx).subspan(first, topk),
                   std::span(own.topk_weights).subspan(first, topk), scratch);
  terms.clear();
  for (const WeightedExpert& choice : scratch) {
    if (places.row(step.rank, token, choice.first_k) >= step.capacity) continue;
    terms.push_back({.rank = places.config().map.rank_of(choice.expert),
                     .expert = choice.expert,
                     .weight = choice.weight});
  }
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Term& a, const Term& b) { return a.rank < b.rank; });
}

void RowCheck::add(const RowCheck& other) {
  checked += other.checked;
  wrong += other.wrong;
  if (first_wrong.empty()) first_wrong = other.first_wrong;
}

void RowCheck::add_wrong(const std::string& what) {
  ++wrong;
  if (first_wrong.empty()) first_wrong = what;
}

RowCheck check_output(const StepView& step,
                      RowSource& rows,
                      Reference& reference,
                      const std::byte* out) {
  const RowFormat& format = rows.format();
  const DType out_dtype = expert_dtype_of(format.dtype);
  const auto out_bytes = static_cast<std::size_t>(format.hidden * size_of(out_dtype));
  std::vector<std::byte> input(format.row_bytes());
  std::vector<float> scales(format.num_scales());
  std::vector<WeightedExpert> scratch;
  std::vector<Term> terms;
  RowCheck check;
  const std::int64_t num_tokens =
      step.places.choices()[static_cast<std::size_t>(step.rank)].num_tokens;
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    rows.fill(step.routing.row_key(step.rows_step, step.rank, token), input, scales);
    collect_terms(step, token, scratch, terms);
    reference.compute({.dtype = format.dtype, .bytes = input, .scales = scales}, terms);
    const auto mismatch =
        reference.compare({out + static_cast<std::size_t>(token) * out_bytes, out_bytes});
    ++check.checked;
    if (mismatch) check.add_wrong(describe(step.rank, token, *mismatch));
  }
  return check;
}

}  // namespace ep::bench
