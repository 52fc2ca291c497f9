// SPDX-License-Identifier: Apache-2.0
// The CSV form of a trace, see docs/trace_format.md.
#include "base/check.h"
#include "bench/trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

namespace ep::bench {
namespace {

constexpr std::string_view kColumns = "step,rank,token,k,expert,weight";
constexpr std::string_view kSelfPrefix = "# ep-trace";
constexpr std::int64_t kMaxTraceTokens = 1 << 24;  // of one rank and step

struct Entry {
  int step = 0;
  int rank = 0;
  int token = 0;
  int k = 0;
  int expert = -1;
  float weight = 0;
};

auto place_of(const Entry& entry) {
  return std::tuple(entry.step, entry.rank, entry.token, entry.k);
}

std::string to_string(const Entry& entry) {
  return "(step " + std::to_string(entry.step) + ", rank " + std::to_string(entry.rank) +
         ", token " + std::to_string(entry.token) + ", k " + std::to_string(entry.k) + ")";
}

struct IntField {
  const char* name;
  int Entry::*member;
  std::int64_t min;
  std::int64_t max;
};

/// The columns before `weight`.
constexpr std::array<IntField, 5> kIntFields = {{
    {"step", &Entry::step, 0, kMaxTraceSteps - 1},
    {"rank", &Entry::rank, 0, kMaxTraceRanks - 1},
    {"token", &Entry::token, 0, kMaxTraceTokens - 1},
    {"k", &Entry::k, 0, kMaxTraceTopk - 1},
    {"expert", &Entry::expert, -1, kMaxTraceExperts - 1},
}};

/// What a file says about itself; 0: follows from the entries.
struct SelfDescription {
  int steps = 0;
  int ranks = 0;
  int experts = 0;
  int topk = 0;
};

struct SelfField {
  std::string_view name;
  int SelfDescription::*member;
  std::int64_t max;
};

constexpr std::array<SelfField, 4> kSelfFields = {{
    {"steps", &SelfDescription::steps, kMaxTraceSteps},
    {"ranks", &SelfDescription::ranks, kMaxTraceRanks},
    {"experts", &SelfDescription::experts, kMaxTraceExperts},
    {"topk", &SelfDescription::topk, kMaxTraceTopk},
}};

std::string_view strip(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

/// Takes the part before `separator`, and the separator, from the front of `text`.
std::string_view take_field(std::string_view& text, char separator) {
  const std::size_t at = std::min(text.find(separator), text.size());
  const std::string_view field = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return strip(field);
}

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class CsvReader {
 public:
  explicit CsvReader(const std::string& name) : name_(name) {}

  Status read_line(std::string_view line);
  Result<Trace> finish();

 private:
  Status error(const std::string& what) const {
    return Status(Errc::kInvalidArgument, name_ + ", line " + std::to_string(line_) + ": " + what);
  }
  Result<int> read_int(std::string_view name,
                       std::string_view text,
                       std::int64_t min,
                       std::int64_t max) const;
  Status read_self_description(std::string_view line);
  Status read_entry(std::string_view line);
  Status check_order(const Entry& entry) const;
  Status check_against_self(const Entry& entry) const;
  void complete_self_description();

  const std::string& name_;
  std::int64_t line_ = 0;
  bool has_columns_ = false;
  SelfDescription self_;
  std::vector<Entry> entries_;
};

Result<int> CsvReader::read_int(std::string_view name,
                                std::string_view text,
                                std::int64_t min,
                                std::int64_t max) const {
  const std::optional<std::int64_t> value = parse_number<std::int64_t>(text);
  if (value && *value >= min && *value <= max) return static_cast<int>(*value);
  return error(std::string(name) + " = '" + std::string(text) + "', must be an integer from " +
               std::to_string(min) + " to " + std::to_string(max));
}

Status CsvReader::read_self_description(std::string_view line) {
  line.remove_prefix(kSelfPrefix.size());
  while (!strip(line).empty()) {
    line = strip(line);
    std::string_view value = take_field(line, ' ');
    const std::string_view name = take_field(value, '=');
    const auto* field = std::find_if(kSelfFields.begin(), kSelfFields.end(),
                                     [name](const SelfField& known) { return known.name == name; });
    if (field == kSelfFields.end()) {
      return error("unknown name '" + std::string(name) + "', known: steps, ranks, experts, topk");
    }
    EP_TRY_ASSIGN(self_.*(field->member), read_int(name, value, 1, field->max));
  }
  return {};
}

Status CsvReader::check_order(const Entry& entry) const {
  const bool is_first = entries_.empty();
  if (!is_first && place_of(entry) <= place_of(entries_.back())) {
    return error(to_string(entry) + " after " + to_string(entries_.back()) +
                 ", must ascend by step, rank, token, k");
  }
  const bool same_cell =
      !is_first && entry.step == entries_.back().step && entry.rank == entries_.back().rank;
  const int next_token = same_cell ? entries_.back().token + 1 : 0;
  if (entry.token > next_token) {
    return error("token = " + std::to_string(entry.token) + ", but token " +
                 std::to_string(next_token) + " of " + to_string(entry) + " is missing");
  }
  return {};
}

Status CsvReader::check_against_self(const Entry& entry) const {
  struct Bound {
    const char* name;
    int value;
    int count;
  };
  const std::array<Bound, 4> bounds = {{{"step", entry.step, self_.steps},
                                        {"rank", entry.rank, self_.ranks},
                                        {"k", entry.k, self_.topk},
                                        {"expert", entry.expert, self_.experts}}};
  for (const Bound& bound : bounds) {
    if (bound.count == 0 || bound.value < bound.count) continue;
    return error(std::string(bound.name) + " = " + std::to_string(bound.value) +
                 ", but the file says that there are " + std::to_string(bound.count));
  }
  return {};
}

Status CsvReader::read_entry(std::string_view line) {
  const auto num_fields = 1 + std::count(line.begin(), line.end(), ',');
  if (num_fields != kIntFields.size() + 1) {
    return error(std::to_string(num_fields) + " fields in '" + std::string(line) + "', must be " +
                 std::to_string(kIntFields.size() + 1) + ": " + std::string(kColumns));
  }
  Entry entry;
  for (const IntField& field : kIntFields) {
    EP_TRY_ASSIGN(entry.*(field.member),
                  read_int(field.name, take_field(line, ','), field.min, field.max));
  }
  const std::string_view weight_text = take_field(line, ',');
  const std::optional<float> weight = parse_number<float>(weight_text);
  if (!weight || !std::isfinite(*weight)) {
    return error("weight = '" + std::string(weight_text) + "', must be a finite number");
  }
  entry.weight = *weight;
  EP_TRY(check_order(entry));
  EP_TRY(check_against_self(entry));
  entries_.push_back(entry);
  return {};
}

Status CsvReader::read_line(std::string_view line) {
  ++line_;
  line = strip(line);
  if (line.starts_with(kSelfPrefix) && entries_.empty()) return read_self_description(line);
  if (line.empty() || line.front() == '#') return {};
  if (has_columns_) return read_entry(line);
  if (line != kColumns) {
    return error("the columns are '" + std::string(line) + "', must be " + std::string(kColumns));
  }
  has_columns_ = true;
  return {};
}

void CsvReader::complete_self_description() {
  SelfDescription found;
  for (const Entry& entry : entries_) {
    found.steps = std::max(found.steps, entry.step + 1);
    found.ranks = std::max(found.ranks, entry.rank + 1);
    found.experts = std::max(found.experts, entry.expert + 1);
    found.topk = std::max(found.topk, entry.k + 1);
  }
  for (const SelfField& field : kSelfFields) {
    if (self_.*(field.member) == 0) self_.*(field.member) = std::max(found.*(field.member), 1);
  }
}

Result<Trace> CsvReader::finish() {
  if (!has_columns_) return error("the file ends before the line " + std::string(kColumns));
  if (entries_.empty()) return error("the file has no entry");
  complete_self_description();
  const std::int64_t num_cells = std::int64_t{self_.steps} * self_.ranks;
  if (num_cells > kMaxTraceCells) {
    return error(std::to_string(self_.steps) + " steps times " + std::to_string(self_.ranks) +
                 " ranks, must be at most " + std::to_string(kMaxTraceCells));
  }
  Trace trace = {
      .num_ranks = self_.ranks, .num_experts = self_.experts, .topk = self_.topk, .steps = {}};
  trace.steps.assign(static_cast<std::size_t>(self_.steps),
                     std::vector<TraceTokens>(static_cast<std::size_t>(self_.ranks)));
  const auto topk = static_cast<std::size_t>(self_.topk);
  for (const Entry& entry : entries_) {
    TraceTokens& cell =
        trace.steps[static_cast<std::size_t>(entry.step)][static_cast<std::size_t>(entry.rank)];
    const std::size_t row = static_cast<std::size_t>(entry.token) * topk;
    cell.experts.resize(row + topk, -1);
    cell.weights.resize(row + topk, 0.0F);
    cell.experts[row + static_cast<std::size_t>(entry.k)] = entry.expert;
    cell.weights[row + static_cast<std::size_t>(entry.k)] = entry.weight;
  }
  return trace;
}

void append_tokens(std::string& out, int step, int rank, const Trace& trace) {
  const TraceTokens& tokens = trace.tokens(step, rank);
  const std::string front = std::to_string(step) + "," + std::to_string(rank) + ",";
  for (std::size_t i = 0; i < tokens.experts.size(); ++i) {
    // The shortest text that reads back as the same number.
    std::array<char, 32> weight{};
    const auto end = std::to_chars(weight.data(), weight.data() + weight.size(), tokens.weights[i]);
    const auto topk = static_cast<std::size_t>(trace.topk);
    out += front + std::to_string(i / topk) + "," + std::to_string(i % topk) + "," +
           std::to_string(tokens.experts[i]) + ",";
    out.append(weight.data(), end.ptr);
    out += '\n';
  }
}

}  // namespace

Result<Trace> parse_trace_csv(const std::string& name, std::string_view content) {
  CsvReader reader(name);
  while (!content.empty()) {
    const std::size_t at = std::min(content.find('\n'), content.size());
    EP_TRY(reader.read_line(content.substr(0, at)));
    content.remove_prefix(std::min(at + 1, content.size()));
  }
  return reader.finish();
}

std::string format_trace_csv(const Trace& trace) {
  std::string out(kSelfPrefix);
  out += " steps=" + std::to_string(trace.num_steps()) +
         " ranks=" + std::to_string(trace.num_ranks) +
         " experts=" + std::to_string(trace.num_experts) + " topk=" + std::to_string(trace.topk) +
         "\n" + std::string(kColumns) + "\n";
  for (int step = 0; step < trace.num_steps(); ++step) {
    for (int rank = 0; rank < trace.num_ranks; ++rank) append_tokens(out, step, rank, trace);
  }
  return out;
}

}  // namespace ep::bench
