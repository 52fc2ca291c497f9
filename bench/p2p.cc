// SPDX-License-Identifier: Apache-2.0
// Shows the figures of the links.
#include "bench/p2p.h"

#include "base/check.h"
#include "bench/json_machine.h"
#include "bench/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <ostream>

namespace ep::bench {
namespace {

constexpr std::array kDefaultSms = {1, 2, 4, 6, 8, 12, 16, 24, 32, 64, 132};
constexpr int kRepetitions = 7;

struct Column {
  const char* title;
  const char* what;
  int directions;
};
constexpr std::array kColumns = {Column{"push", "push", 2}, Column{"push alone", "push", 1},
                                 Column{"pull", "pull", 2}, Column{"pull alone", "pull", 1},
                                 Column{"local copy", "local_copy", 1}};

std::string cell(std::optional<double> value) {
  std::array<char, 32> text{};
  if (!value) return "           -";
  std::snprintf(text.data(), text.size(), "%12.1f", *value);
  return text.data();
}

std::optional<double> rate_of(const std::vector<LinkSample>& samples,
                              const Column& column,
                              int sms) {
  for (const LinkSample& sample : samples) {
    if (sample.what == column.what && sample.directions == column.directions && sample.sms == sms)
      return sample.gbps();
  }
  return std::nullopt;
}

void print_by_sms(const std::vector<LinkSample>& samples, std::ostream& out) {
  out << "GB/s per direction, rows of " << with_commas(kLinkRowBytes)
      << " bytes in random order; alone: one direction busy\n SMs";
  for (const Column& column : kColumns) {
    const std::string title = column.title;
    out << std::string(12 - title.size(), ' ') << title;
  }
  out << "\n";
  std::vector<int> all_sms;
  for (const LinkSample& sample : samples) {
    if (sample.sms > 0) all_sms.push_back(sample.sms);
  }
  std::sort(all_sms.begin(), all_sms.end());
  all_sms.erase(std::unique(all_sms.begin(), all_sms.end()), all_sms.end());
  for (int sms : all_sms) {
    std::array<char, 16> number{};
    std::snprintf(number.data(), number.size(), "%4d", sms);
    out << number.data();
    for (const Column& column : kColumns) out << cell(rate_of(samples, column, sms));
    out << "\n";
  }
}

}  // namespace

double LinkSample::gbps() const {
  constexpr double kBytesPerMicroToGbps = 1e-3;
  return micros > 0 ? static_cast<double>(bytes) * kBytesPerMicroToGbps / micros : 0;
}

void print_links(const std::vector<LinkSample>& samples, std::ostream& out) {
  print_by_sms(samples, out);
  out << "\n";
  for (const LinkSample& sample : samples) {
    if (sample.sms > 0) continue;
    std::array<char, 128> line{};
    const bool is_flag = sample.bytes == 0;
    std::snprintf(line.data(), line.size(), "%-14s %d direction(s)  %9.2f %s\n",
                  sample.what.c_str(), sample.directions, is_flag ? sample.micros : sample.gbps(),
                  is_flag ? "us one way" : "GB/s");
    out << line.data();
  }
  out.flush();
}

std::string link_json_lines(const Job& job, const std::vector<LinkSample>& samples) {
  using Json = nlohmann::ordered_json;
  std::string lines;
  for (const LinkSample& sample : samples) {
    Json line;
    line["op"] = "p2p";
    line["what"] = sample.what;
    line["sms"] = sample.sms > 0 ? Json(sample.sms) : Json(nullptr);
    line["directions"] = sample.directions;
    line["bytes"] = sample.bytes;
    line["median_us"] = sample.micros;
    line["gbps"] = sample.bytes > 0 ? Json(sample.gbps()) : Json(nullptr);
    add_machine(line, job);
    lines += line.dump() + "\n";
  }
  return lines;
}

Status run_p2p(const Job& shared_job, std::ostream& out) {
  Job job = shared_job;
  EP_TRY_ASSIGN(job.gpus, read_gpus());
  LinkPlan plan = {.sms = job.options.sms_list, .repetitions = kRepetitions};
  if (plan.sms.empty()) plan.sms.assign(kDefaultSms.begin(), kDefaultSms.end());
  const int num_sms = job.gpus->gpus.front().num_sms;
  std::erase_if(plan.sms, [num_sms](int sms) { return sms > num_sms; });
  EP_TRY_ASSIGN(const auto samples, measure_links(plan));
  print_links(samples, out);
  return write_json_lines(job.options, link_json_lines(job, samples));
}

}  // namespace ep::bench
