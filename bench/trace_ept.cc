// SPDX-License-Identifier: Apache-2.0
// The binary form of a trace: little-endian words, see docs/trace_format.md.
#include "base/check.h"
#include "bench/trace.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

namespace ep::bench {
namespace {

// The file holds words as this machine has them in memory.
static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kNumCounts = 4;
constexpr std::size_t kEntryBytes = sizeof(std::int32_t) + sizeof(float);

template <class T>
std::vector<T> words_of(std::string_view bytes) {
  std::vector<T> words(bytes.size() / sizeof(T));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), words.size() * sizeof(T));
  return words;
}

template <class T>
void append_words(std::string& out, const std::vector<T>& words) {
  if (words.empty()) return;
  const std::size_t end = out.size();
  out.resize(end + words.size() * sizeof(T));
  std::memcpy(out.data() + end, words.data(), words.size() * sizeof(T));
}

class EptReader {
 public:
  EptReader(const std::string& name, std::string_view content) : name_(name), content_(content) {}

  std::size_t offset() const { return offset_; }

  Status error(std::size_t offset, const std::string& what) const {
    return Status(Errc::kInvalidArgument, name_ + ", byte " + std::to_string(offset) + ": " + what);
  }

  /// The next `size` bytes: their size is tested before anything of that size is allocated.
  Result<std::string_view> take(std::size_t size, const char* what) {
    const std::size_t num_left = content_.size() - offset_;
    if (num_left < size) {
      return error(offset_, std::string(what) + " takes " + std::to_string(size) + " bytes, but " +
                                std::to_string(num_left) + " are left");
    }
    offset_ += size;
    return content_.substr(offset_ - size, size);
  }

  Status expect_end() const {
    if (offset_ == content_.size()) return {};
    return error(offset_, std::to_string(content_.size() - offset_) + " bytes after the last step");
  }

 private:
  const std::string& name_;
  std::string_view content_;
  std::size_t offset_ = 0;
};

struct CountRule {
  const char* what;
  std::int64_t max;
};

constexpr std::array<CountRule, kNumCounts> kCountRules = {{
    {"num_steps", kMaxTraceSteps},
    {"num_ranks", kMaxTraceRanks},
    {"num_experts", kMaxTraceExperts},
    {"topk", kMaxTraceTopk},
}};

/// In the order of kCountRules.
Result<std::vector<std::uint32_t>> read_counts(EptReader& reader) {
  const std::size_t start = reader.offset();
  EP_TRY_ASSIGN(const std::string_view bytes,
                reader.take(kNumCounts * sizeof(std::uint32_t), "the header"));
  std::vector<std::uint32_t> counts = words_of<std::uint32_t>(bytes);
  for (std::size_t i = 0; i < kNumCounts; ++i) {
    if (counts[i] >= 1 && counts[i] <= kCountRules[i].max) continue;
    return reader.error(start + i * sizeof(std::uint32_t),
                        std::string(kCountRules[i].what) + " = " + std::to_string(counts[i]) +
                            ", must be 1 to " + std::to_string(kCountRules[i].max));
  }
  return counts;
}

Status check_tokens(const EptReader& reader, const TraceTokens& tokens, int num_experts) {
  const std::size_t size = tokens.experts.size();
  const std::size_t experts_at = reader.offset() - size * kEntryBytes;
  const std::size_t weights_at = reader.offset() - size * sizeof(float);
  for (std::size_t i = 0; i < size; ++i) {
    if (tokens.experts[i] < -1 || tokens.experts[i] >= num_experts) {
      return reader.error(experts_at + i * sizeof(std::int32_t),
                          "expert = " + std::to_string(tokens.experts[i]) + ", must be -1 to " +
                              std::to_string(num_experts - 1));
    }
    if (!std::isfinite(tokens.weights[i])) {
      return reader.error(weights_at + i * sizeof(float),
                          "weight = " + std::to_string(tokens.weights[i]) + ", must be finite");
    }
  }
  return {};
}

Result<TraceTokens> read_tokens(EptReader& reader, std::uint32_t num_tokens, const Trace& trace) {
  const std::size_t size = std::size_t{num_tokens} * static_cast<std::size_t>(trace.topk);
  EP_TRY_ASSIGN(const std::string_view bytes, reader.take(size * kEntryBytes, "a rank's tokens"));
  const std::size_t weights_at = size * sizeof(std::int32_t);
  TraceTokens tokens = {words_of<std::int32_t>(bytes.substr(0, weights_at)),
                        words_of<float>(bytes.substr(weights_at))};
  EP_TRY(check_tokens(reader, tokens, trace.num_experts));
  return tokens;
}

}  // namespace

Result<Trace> parse_trace_ept(const std::string& name, std::string_view content) {
  EptReader reader(name, content);
  EP_TRY_ASSIGN(const std::string_view magic, reader.take(kEptMagic.size(), "the magic"));
  if (magic != kEptMagic) return reader.error(0, "the file does not start with EPTRACE1");
  EP_TRY_ASSIGN(const std::vector<std::uint32_t> counts, read_counts(reader));
  Trace trace;
  trace.num_ranks = static_cast<int>(counts[1]);
  trace.num_experts = static_cast<int>(counts[2]);
  trace.topk = static_cast<int>(counts[3]);
  const std::size_t num_cells = std::size_t{counts[0]} * counts[1];
  EP_TRY_ASSIGN(const std::string_view cells,
                reader.take(num_cells * sizeof(std::uint32_t), "the token counts"));
  const std::vector<std::uint32_t> num_tokens = words_of<std::uint32_t>(cells);
  trace.steps.resize(counts[0]);
  std::size_t cell = 0;
  for (std::vector<TraceTokens>& step : trace.steps) {
    for (int rank = 0; rank < trace.num_ranks; ++rank) {
      EP_TRY_ASSIGN(TraceTokens tokens, read_tokens(reader, num_tokens[cell++], trace));
      step.push_back(std::move(tokens));
    }
  }
  EP_TRY(reader.expect_end());
  return trace;
}

std::string format_trace_ept(const Trace& trace) {
  std::string out(kEptMagic);
  append_words(out,
               std::vector<int>{trace.num_steps(), trace.num_ranks, trace.num_experts, trace.topk});
  std::vector<std::uint32_t> num_tokens;
  for (int step = 0; step < trace.num_steps(); ++step) {
    for (int rank = 0; rank < trace.num_ranks; ++rank) {
      num_tokens.push_back(static_cast<std::uint32_t>(trace.num_tokens(step, rank)));
    }
  }
  append_words(out, num_tokens);
  for (const std::vector<TraceTokens>& step : trace.steps) {
    for (const TraceTokens& tokens : step) {
      append_words(out, tokens.experts);
      append_words(out, tokens.weights);
    }
  }
  return out;
}

}  // namespace ep::bench
