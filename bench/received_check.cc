// SPDX-License-Identifier: Apache-2.0
// Received rows against what their sources must have sent.
#include "bench/row_check.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace ep::bench {
namespace {

template <class T>
std::span<const T> elems_of(const Tensor& tensor) {
  if (tensor.view().is_null()) return {};
  return {tensor.data<T>(), static_cast<std::size_t>(tensor.view().num_elems())};
}

template <class T>
std::string list_of(std::span<const T> values) {
  std::string text = "[";
  for (const T& value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "]";
}

class ReceivedChecker {
 public:
  ReceivedChecker(const StepView& step, RowSource& rows, const DispatchOutput& received)
      : step_(step),
        rows_(rows),
        received_(received),
        expected_(step.places.received(step.rank)),
        num_kept_(std::min(expected_.num_rows, step.capacity)),
        is_met_(static_cast<std::size_t>(num_kept_)),
        row_(rows.format().row_bytes()),
        scales_(rows.format().num_scales()) {}

  RowCheck run() {
    if (!has_room()) return check_;
    for (int src = 0; src < static_cast<int>(step_.places.choices().size()); ++src)
      check_source(src);
    check_padding();
    check_sizes();
    return check_;
  }

 private:
  bool is_flat() const { return step_.places.config().layout == Layout::kFlat; }

  /// A tensor too small for the rows would be read beyond its end.
  bool has_room() {
    const ConstTensorView x = received_.x.view();
    if (x.num_dims == 2 && x.size(0) >= num_kept_ && x.size(1) == rows_.format().hidden)
      return true;
    check_.checked = num_kept_;
    fail("x is " + to_string(x) + ", expected " + std::to_string(num_kept_) + " rows");
    check_.wrong = std::max<std::int64_t>(num_kept_, 1);
    return false;
  }

  void fail(const std::string& what) {
    check_.add_wrong("rank " + std::to_string(step_.rank) + ": " + what);
  }

  void check_source(int src) {
    const RankChoices& sent = step_.places.choices()[static_cast<std::size_t>(src)];
    const int topk = step_.places.topk();
    const ExpertMap& map = step_.places.config().map;
    for (std::int64_t token = 0; token < sent.num_tokens; ++token) {
      bool is_filled = false;
      for (int k = 0; k < topk; ++k) {
        const std::int64_t row = step_.places.row(src, token, k);
        if (row == RowPlaces::kNoRow || row >= num_kept_) continue;
        const auto index = static_cast<std::size_t>(token * topk + k);
        if (map.rank_of(static_cast<int>(sent.topk_idx[index])) != step_.rank) continue;
        if (is_met_[static_cast<std::size_t>(row)]) continue;  // kFlat: a further choice
        if (!is_filled)
          rows_.fill(step_.routing.row_key(step_.rows_step, src, token), row_, scales_);
        is_filled = true;
        check_row(src, token, k, row);
      }
    }
  }

  void check_row(int src, std::int64_t token, int k, std::int64_t row) {
    is_met_[static_cast<std::size_t>(row)] = true;
    ++check_.checked;
    const std::string name = "row " + std::to_string(row) + " (token " + std::to_string(token) +
                             " of rank " + std::to_string(src) + "): ";
    const auto at = static_cast<std::size_t>(row);
    const auto* bytes = received_.x.data<std::byte>() + at * row_.size();
    if (!std::equal(row_.begin(), row_.end(), bytes)) return fail(name + "other bytes than sent");
    const auto* scales = received_.scales.data<float>() + at * scales_.size();
    if (!scales_.empty() &&
        std::memcmp(scales, scales_.data(), scales_.size() * sizeof(float)) != 0) {
      return fail(name + "other scales than sent");
    }
    is_flat() ? check_choices(name, src, token, row) : check_weight(name, src, token, k, row);
  }

  /// kFlat: local experts and their weights; -1 and 0 for experts elsewhere and repeats.
  void check_choices(const std::string& name, int src, std::int64_t token, std::int64_t row) {
    const ExpertMap& map = step_.places.config().map;
    const auto topk = static_cast<std::size_t>(step_.places.topk());
    std::vector<std::int64_t> topk_idx(topk, -1);
    std::vector<float> topk_weights(topk, 0.0F);
    for (const WeightedExpert& choice : experts_of(src, token)) {
      if (map.rank_of(choice.expert) != step_.rank) continue;
      topk_idx[static_cast<std::size_t>(choice.first_k)] = map.local_of(choice.expert);
      topk_weights[static_cast<std::size_t>(choice.first_k)] = choice.weight;
    }
    const std::size_t first = static_cast<std::size_t>(row) * topk;
    const auto got_idx = elems_of<std::int64_t>(received_.topk_idx).subspan(first, topk);
    const auto got_weights = elems_of<float>(received_.topk_weights).subspan(first, topk);
    if (!std::equal(topk_idx.begin(), topk_idx.end(), got_idx.begin())) {
      return fail(name + "topk_idx " + list_of(got_idx) + ", expected " +
                  list_of(std::span<const std::int64_t>(topk_idx)));
    }
    if (!std::equal(topk_weights.begin(), topk_weights.end(), got_weights.begin())) {
      fail(name + "topk_weights " + list_of(got_weights) + ", expected " +
           list_of(std::span<const float>(topk_weights)));
    }
  }

  void check_weight(const std::string& name, int src, std::int64_t token, int k, std::int64_t row) {
    const float got = elems_of<float>(received_.topk_weights)[static_cast<std::size_t>(row)];
    for (const WeightedExpert& choice : experts_of(src, token)) {
      if (choice.first_k != k || choice.weight == got) continue;
      fail(name + "weight " + std::to_string(got) + ", expected " + std::to_string(choice.weight));
    }
  }

  const std::vector<WeightedExpert>& experts_of(int src, std::int64_t token) {
    const RankChoices& sent = step_.places.choices()[static_cast<std::size_t>(src)];
    const auto topk = static_cast<std::size_t>(step_.places.topk());
    const std::size_t first = static_cast<std::size_t>(token) * topk;
    distinct_experts(std::span(sent.topk_idx).subspan(first, topk),
                     std::span(sent.topk_weights).subspan(first, topk), experts_);
    return experts_;
  }

  /// Rows below the end that no token has are padding.
  void check_padding() {
    for (std::size_t row = 0; row < is_met_.size(); ++row) {
      if (is_met_[row]) continue;
      ++check_.checked;
      const auto* bytes = received_.x.data<std::byte>() + row * row_.size();
      const bool is_zero =
          std::all_of(bytes, bytes + row_.size(), [](std::byte b) { return b == std::byte{0}; });
      if (!is_zero) fail("padding row " + std::to_string(row) + " is not zero");
    }
  }

  void check_list(const char* name, const Tensor& got, const std::vector<std::int64_t>& expected) {
    const auto elems = elems_of<std::int64_t>(got);
    if (std::equal(elems.begin(), elems.end(), expected.begin(), expected.end())) return;
    fail(std::string(name) + " " + list_of(elems) + ", expected " +
         list_of(std::span<const std::int64_t>(expected)));
  }

  void check_sizes() {
    const bool overflows = expected_.num_rows > step_.capacity;
    check_list("sizes", received_.sizes, {num_kept_, expected_.num_rows, overflows ? 1 : 0});
    check_list("expert_counts", received_.expert_counts, expected_.expert_counts);
    if (!is_flat())
      check_list("expert_offsets", received_.expert_offsets, expected_.expert_offsets);
  }

  const StepView& step_;
  RowSource& rows_;
  const DispatchOutput& received_;
  const Received& expected_;
  std::int64_t num_kept_;
  std::vector<bool> is_met_;
  std::vector<std::byte> row_;
  std::vector<float> scales_;
  std::vector<WeightedExpert> experts_;
  RowCheck check_;
};

}  // namespace

RowCheck check_received(const StepView& step, RowSource& rows, const DispatchOutput& received) {
  return ReceivedChecker(step, rows, received).run();
}

}  // namespace ep::bench
