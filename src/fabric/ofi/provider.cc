// SPDX-License-Identifier: Apache-2.0
// Asks for what the transport needs and chooses among the answers.
#include "fabric/ofi/provider.h"

#include "base/check.h"
#include "base/env.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <mutex>
#include <netinet/in.h>
#include <set>

namespace ep::fabric {
namespace {

constexpr std::size_t kImmediateBytes = 4;

/// Taken unasked, best first. Not in it: rxm over tcp (70 MB and 50 ms per endpoint), sockets
/// (deprecated, milliseconds of latency), shm (leaks files when a process is killed).
struct Preference {
  const char* provider;
  const char* fabric;  // nullptr: any
};
constexpr std::array kPreferences = {
    Preference{"efa", "efa-direct"},      Preference{"efa", nullptr}, Preference{"cxi", nullptr},
    Preference{"verbs;ofi_rxm", nullptr}, Preference{"tcp", nullptr}, Preference{"net", nullptr}};

std::optional<std::size_t> preference_of(const Candidate& candidate) {
  for (std::size_t i = 0; i < kPreferences.size(); ++i) {
    const Preference& preference = kPreferences[i];
    if (candidate.provider != preference.provider) continue;
    if (preference.fabric == nullptr || candidate.fabric == preference.fabric) return i;
  }
  return std::nullopt;
}

template <class TextOf>
std::string list_of(std::span<const Candidate> candidates, TextOf text_of) {
  std::set<std::string> texts;
  for (const Candidate& candidate : candidates) texts.insert(text_of(candidate));
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + text;
  return list.empty() ? "none" : list;
}

std::string provider_list(std::span<const Candidate> candidates) {
  return list_of(candidates, [](const Candidate& candidate) { return candidate.provider; });
}

/// The provider to take. Errors: as choose_provider.
Result<std::string> choose_name(std::span<const Candidate> candidates,
                                const std::optional<std::string>& wish) {
  if (wish) {
    const bool exists =
        std::any_of(candidates.begin(), candidates.end(),
                    [&wish](const Candidate& candidate) { return candidate.provider == *wish; });
    if (exists) return *wish;
    return Status(
        Errc::kInvalidArgument,
        "ofi: provider '" + *wish + "' is not here; libfabric has: " + provider_list(candidates));
  }
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates) {
    const auto preference = preference_of(candidate);
    if (preference && (best == nullptr || *preference < *preference_of(*best))) best = &candidate;
  }
  if (best != nullptr) return best->provider;
  return Status(Errc::kUnsupported,
                "ofi: none of efa, cxi, verbs;ofi_rxm, tcp, net is here; libfabric has: " +
                    provider_list(candidates) + " (EP_NET_PROVIDER takes one of these)");
}

bool is_on(const Candidate& candidate, const std::string& interface) {
  return candidate.interface == interface || candidate.address == interface ||
         candidate.fabric == interface;
}

/// Lower is better.
int address_class(const Candidate& candidate) {
  const std::string& address = candidate.address;
  if (address.empty()) return 0;  // no internet address: as the provider orders them
  if (address.starts_with("fe80:")) return 4;
  if (address.starts_with("127.") || address == "::1") return 3;
  return address.find(':') == std::string::npos ? 1 : 2;
}

std::string address_of(const fi_info& info) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* source = nullptr;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  int family = AF_UNSPEC;
  if (info.src_addr == nullptr) return {};
  if (info.addr_format == FI_SOCKADDR_IN && info.src_addrlen >= sizeof(v4)) {
    std::memcpy(&v4, info.src_addr, sizeof(v4));
    family = AF_INET;
    source = &v4.sin_addr;
  } else if (info.addr_format == FI_SOCKADDR_IN6 && info.src_addrlen >= sizeof(v6)) {
    std::memcpy(&v6, info.src_addr, sizeof(v6));
    family = AF_INET6;
    source = &v6.sin6_addr;
  }
  if (source == nullptr || inet_ntop(family, source, text.data(), text.size()) == nullptr)
    return {};
  return text.data();
}

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

Candidate candidate_of(const fi_info& info) {
  return {.provider = text_or_empty(info.fabric_attr->prov_name),
          .fabric = text_or_empty(info.fabric_attr->name),
          .interface = text_or_empty(info.domain_attr->name),
          .address = address_of(info)};
}

InfoPtr make_hints(const OfiLibrary& library) {
  InfoPtr hints(library.dupinfo(nullptr), FreeInfo{library.freeinfo});
  if (hints == nullptr) return hints;
  hints->caps = FI_RMA | FI_MSG | FI_WRITE | FI_REMOTE_WRITE | FI_READ | FI_REMOTE_READ | FI_SOURCE;
  // Not FI_RX_CQ_DATA: then every immediate would take a posted receive.
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->cq_data_size = kImmediateBytes;
  // Each endpoint has a completion queue of its own, used by one thread at a time.
  hints->domain_attr->threading = FI_THREAD_COMPLETION;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->av_type = FI_AV_TABLE;
  return hints;
}

/// What libfabric can offer: asked on first use, kept until the process ends.
Result<const fi_info*> list_providers(const OfiLibrary& library) {
  static std::mutex mutex;
  static InfoPtr answers;
  const std::lock_guard lock(mutex);
  if (answers != nullptr) return answers.get();
  const InfoPtr hints = make_hints(library);
  if (hints == nullptr) return fi_status(library, "fi_dupinfo", -FI_ENOMEM);
  fi_info* found = nullptr;
  const int result = library.getinfo(kOfiApiVersion, nullptr, nullptr, 0, hints.get(), &found);
  if (result == -FI_ENODATA) {
    return Status(Errc::kUnsupported, "ofi: libfabric " + text_of_version(library.version()) +
                                          " has no provider here that writes with immediates");
  }
  if (result != 0) return fi_status(library, "fi_getinfo", result);
  answers = InfoPtr(found, FreeInfo{library.freeinfo});
  return answers.get();
}

}  // namespace

Result<std::size_t> choose_provider(std::span<const Candidate> candidates,
                                    const ProviderWish& wish) {
  EP_TRY_ASSIGN(const std::string name, choose_name(candidates, wish.provider));
  const Candidate* best = nullptr;
  const auto is_better = [](const Candidate& a, const Candidate& b) {
    const auto worst = kPreferences.size();
    const auto preference_a = preference_of(a).value_or(worst);
    const auto preference_b = preference_of(b).value_or(worst);
    if (preference_a != preference_b) return preference_a < preference_b;
    return address_class(a) < address_class(b);
  };
  std::vector<Candidate> of_name;
  for (const Candidate& candidate : candidates) {
    if (candidate.provider != name) continue;
    of_name.push_back(candidate);
    if (wish.interface && !is_on(candidate, *wish.interface)) continue;
    if (best == nullptr || is_better(candidate, *best)) best = &candidate;
  }
  if (best != nullptr) return static_cast<std::size_t>(best - candidates.data());
  return Status(Errc::kInvalidArgument,
                "ofi: provider " + name + " has no interface, address or subnet '" +
                    wish.interface.value_or("") +
                    "'; it has: " + list_of(of_name, [](const Candidate& candidate) {
                      return candidate.interface + " " + candidate.address + " (" +
                             candidate.fabric + ")";
                    }));
}

Result<InfoPtr> find_provider(const OfiLibrary& library, const ProviderWish& wish) {
  EP_TRY_ASSIGN(const fi_info* const list, list_providers(library));
  std::vector<const fi_info*> infos;
  std::vector<Candidate> candidates;
  for (const fi_info* info = list; info != nullptr; info = info->next) {
    infos.push_back(info);
    candidates.push_back(candidate_of(*info));
  }
  EP_TRY_ASSIGN(const std::size_t chosen, choose_provider(candidates, wish));
  InfoPtr info(library.dupinfo(infos[chosen]), FreeInfo{library.freeinfo});
  if (info == nullptr) return fi_status(library, "fi_dupinfo", -FI_ENOMEM);
  return info;
}

bool keeps_order(const std::string& provider) {
  if (provider == "tcp" || provider == "net") return true;
  // Several connections per endpoint have no order between them.
  const auto rxm_connections = base::env_text(base::EnvVar::kRxmNumConnections);
  return provider == "verbs;ofi_rxm" && rxm_connections.value_or("1") == "1";
}

}  // namespace ep::fabric
