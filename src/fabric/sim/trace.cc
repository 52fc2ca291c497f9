// SPDX-License-Identifier: Apache-2.0
// Chrome's trace format.
#include "fabric/sim/trace.h"

#include <cstdio>
#include <utility>

namespace ep::fabric::sim {

void Trace::name_track(int rank, AgentId agent, const std::string& name) {
  tracks_.push_back({rank, agent, name});
}

void Trace::add(int rank,
                AgentId agent,
                std::uint64_t at_ns,
                const char* what,
                std::string where,
                std::uint64_t value) {
  events_.push_back({rank, agent, at_ns, what, std::move(where), value});
}

bool Trace::write(const std::string& path) const {
  FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  std::fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n", file);
  for (const Track& track : tracks_) {
    std::fprintf(file,
                 "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %d, "
                 "\"args\": {\"name\": \"%s\"}},\n",
                 track.rank, track.agent, track.name.c_str());
  }
  constexpr double kNsPerUs = 1000.0;
  for (const Event& event : events_) {
    std::fprintf(file,
                 "{\"ph\": \"X\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, "
                 "\"dur\": 0.02, \"args\": {\"where\": \"%s\", \"value\": \"0x%llx\"}},\n",
                 event.what, event.rank, event.agent, static_cast<double>(event.at_ns) / kNsPerUs,
                 event.where.c_str(), static_cast<unsigned long long>(event.value));
  }
  std::fputs("{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 0, \"args\": {}}\n]}\n", file);
  return std::fclose(file) == 0;
}

}  // namespace ep::fabric::sim
