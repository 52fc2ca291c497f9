// SPDX-License-Identifier: Apache-2.0
// Checks every access and turns it into what the provider wants.
#include "fabric/ofi/transport.h"

#include "base/check.h"

#include <algorithm>

namespace ep::fabric {
namespace {

constexpr std::int64_t kMaxWriteBytes = std::int64_t{1} << 30;
/// TCP providers queue without bound: this is the bound.
constexpr std::size_t kMaxOutstanding = 256;

bool lies_in(std::int64_t offset, std::int64_t bytes, std::int64_t window_bytes) {
  return offset >= 0 && bytes >= 0 && bytes <= window_bytes && offset <= window_bytes - bytes;
}

std::string text_of(const WindowPlace& place) {
  return "window " + std::to_string(place.window) + ", offset " + std::to_string(place.offset);
}

Status out_of_window(const char* whose, const WindowPlace& place, std::int64_t bytes) {
  return Status(Errc::kInvalidArgument, "ofi: " + std::to_string(bytes) + " bytes at " +
                                            text_of(place) + " are not in a window of " + whose);
}

}  // namespace

OfiTransport::OfiTransport(const OfiLibrary& library, InfoPtr info, const Opening& opening)
    : rank_(opening.rank),
      num_ranks_(opening.num_ranks),
      library_(library),
      info_(std::move(info)) {
  traits_.name = info_->fabric_attr->prov_name;
  traits_.num_contexts = opening.num_contexts;
  const std::size_t max_bytes = info_->ep_attr->max_msg_size;
  traits_.max_write_bytes =
      static_cast<std::int64_t>(std::min(max_bytes, static_cast<std::size_t>(kMaxWriteBytes)));
  traits_.max_outstanding =
      static_cast<int>(std::clamp(info_->tx_attr->size, std::size_t{1}, kMaxOutstanding));
}

Result<std::unique_ptr<OfiTransport>> OfiTransport::open(const OfiLibrary& library,
                                                         InfoPtr info,
                                                         const Opening& opening) {
  std::unique_ptr<OfiTransport> transport(new OfiTransport(library, std::move(info), opening));
  EP_TRY(transport->open_objects(opening));
  return transport;
}

Status OfiTransport::open_objects(const Opening& opening) {
  fid_fabric* fabric = nullptr;
  if (const int result = library_.fabric(info_->fabric_attr, &fabric, nullptr); result != 0) {
    return fi_status(library_, "fi_fabric", result);
  }
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (const int result = fi_domain(fabric, info_.get(), &domain, nullptr); result != 0) {
    return fi_status(library_, "fi_domain", result);
  }
  domain_.reset(domain);
  for (int context = 0; context < opening.num_contexts; ++context) {
    EP_TRY_ASSIGN(auto endpoint, Endpoint::open({.library = library_,
                                                 .info = *info_,
                                                 .domain = *domain,
                                                 .context = context,
                                                 .max_outstanding = traits_.max_outstanding}));
    endpoints_.push_back(std::move(endpoint));
  }
  return Status();
}

OfiTransport::~OfiTransport() {
  // A registration that is bound to an endpoint goes before it, any other one after it: peers
  // write to it as long as there is an endpoint.
  if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) windows_.clear();
  endpoints_.clear();
  windows_.clear();
}

Result<EndpointDescription> OfiTransport::describe(bool is_ordered) const {
  EndpointDescription description = {.provider = traits_.name,
                                     .protocol = info_->ep_attr->protocol,
                                     .protocol_version = info_->ep_attr->protocol_version,
                                     .address_format = info_->addr_format,
                                     .is_ordered = is_ordered,
                                     .addresses = {}};
  for (const auto& endpoint : endpoints_) {
    EP_TRY_ASSIGN(auto address, endpoint->address());
    description.addresses.push_back(std::move(address));
  }
  return description;
}

Status OfiTransport::insert_peers(const std::vector<EndpointDescription>& peers) {
  for (std::size_t context = 0; context < endpoints_.size(); ++context) {
    std::vector<std::span<const std::byte>> addresses;
    for (const EndpointDescription& peer : peers) addresses.push_back(peer.addresses[context]);
    EP_TRY(endpoints_[context]->insert_addresses(addresses));
  }
  return Status();
}

std::string OfiTransport::text_of_address(std::span<const std::byte> address) const {
  return endpoints_.front()->text_of_address(address);
}

void OfiTransport::forget_windows() {
  windows_.clear();
  peer_windows_.clear();
}

Result<WindowId> OfiTransport::add_window(std::span<std::byte> memory) {
  std::vector<fid_ep*> endpoints;
  for (const auto& endpoint : endpoints_) endpoints.push_back(&endpoint->endpoint());
  const RegistrationRules rules = {.mr_mode = info_->domain_attr->mr_mode,
                                   .key_bytes = info_->domain_attr->mr_key_size};
  EP_TRY_ASSIGN(Registration window,
                Registration::make(library_, *domain_, rules, endpoints, memory));
  windows_.push_back(std::move(window));
  return static_cast<WindowId>(windows_.size() - 1);
}

std::vector<std::byte> OfiTransport::describe_window(WindowId window) const {
  EP_CHECK(window >= 0 && static_cast<std::size_t>(window) < windows_.size());
  return encode(windows_[static_cast<std::size_t>(window)].describe());
}

Status OfiTransport::set_peer_window(int peer,
                                     WindowId window,
                                     std::span<const std::byte> description) {
  EP_CHECK(peer >= 0 && peer < num_ranks_);
  EP_CHECK(window >= 0 && static_cast<std::size_t>(window) < windows_.size());
  Result<WindowDescription> decoded = decode_window(description);
  if (!decoded.ok()) return decoded.status().set_peer(peer);
  const bool has_key_per_context = (info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
  const std::size_t num_keys = has_key_per_context ? endpoints_.size() : 1;
  if (decoded->keys.size() != num_keys) {
    return Status(Errc::kFabric, "ofi: window " + std::to_string(window) + " of rank " +
                                     std::to_string(peer) + " has " +
                                     std::to_string(decoded->keys.size()) + " keys, expected " +
                                     std::to_string(num_keys))
        .set_peer(peer);
  }
  const auto place = static_cast<std::size_t>(window);
  if (peer_windows_.size() <= place) peer_windows_.resize(place + 1);
  peer_windows_[place].resize(static_cast<std::size_t>(num_ranks_));
  peer_windows_[place][static_cast<std::size_t>(peer)] = std::move(*decoded);
  return Status();
}

const WindowDescription* OfiTransport::find_peer_window(int peer, WindowId window) const {
  if (window < 0 || static_cast<std::size_t>(window) >= peer_windows_.size()) return nullptr;
  const auto& by_peer = peer_windows_[static_cast<std::size_t>(window)];
  if (static_cast<std::size_t>(peer) >= by_peer.size()) return nullptr;
  const auto& description = by_peer[static_cast<std::size_t>(peer)];
  return description ? &*description : nullptr;
}

Status OfiTransport::check(const Access& access) const {
  if (access.peer < 0 || access.peer >= num_ranks_ || access.peer == rank_) {
    return Status(Errc::kInvalidArgument, "ofi: rank " + std::to_string(access.peer) +
                                              " is no peer of rank " + std::to_string(rank_));
  }
  if (access.bytes > traits_.max_write_bytes) {
    return Status(Errc::kInvalidArgument, "ofi: " + std::to_string(access.bytes) +
                                              " bytes at once, at most " +
                                              std::to_string(traits_.max_write_bytes));
  }
  const WindowId window = access.local.window;
  const bool is_window = window >= 0 && static_cast<std::size_t>(window) < windows_.size();
  if (!is_window || !lies_in(access.local.offset, access.bytes,
                             static_cast<std::int64_t>(
                                 windows_[static_cast<std::size_t>(window)].memory().size()))) {
    return out_of_window("this rank", access.local, access.bytes);
  }
  const WindowDescription* const remote = find_peer_window(access.peer, access.remote.window);
  if (remote == nullptr || !lies_in(access.remote.offset, access.bytes, remote->bytes)) {
    const std::string whose = "rank " + std::to_string(access.peer);
    return out_of_window(whose.c_str(), access.remote, access.bytes);
  }
  return Status();
}

RmaOp OfiTransport::resolve(const Access& access) const {
  const Registration& local = windows_[static_cast<std::size_t>(access.local.window)];
  const WindowDescription& remote = *find_peer_window(access.peer, access.remote.window);
  const auto context = static_cast<std::size_t>(access.context);
  return {.peer = access.peer,
          .local = local.memory().data() + access.local.offset,
          .local_descriptor = local.local_descriptor(access.context),
          .bytes = static_cast<std::size_t>(access.bytes),
          .remote = remote.base + static_cast<std::uint64_t>(access.remote.offset),
          .key = remote.keys.size() == 1 ? remote.keys.front() : remote.keys[context],
          .cookie = access.cookie};
}

Posted OfiTransport::write(const WriteOp& op) {
  const Access access = {.peer = op.peer,
                         .context = op.context,
                         .local = op.src,
                         .remote = op.dst,
                         .bytes = op.bytes,
                         .cookie = op.cookie};
  if (Status status = check(access); !status.ok()) {
    return endpoint(op.context).fail(std::move(status));
  }
  return endpoint(op.context).write(resolve(access), op.immediate);
}

Posted OfiTransport::read(const ReadOp& op) {
  const Access access = {.peer = op.peer,
                         .context = op.context,
                         .local = op.dst,
                         .remote = op.src,
                         .bytes = op.bytes,
                         .cookie = op.cookie};
  if (Status status = check(access); !status.ok()) {
    return endpoint(op.context).fail(std::move(status));
  }
  return endpoint(op.context).read(resolve(access));
}

}  // namespace ep::fabric
