// SPDX-License-Identifier: Apache-2.0
// Runs operations on threads of this process.
#include "core/host_engine.h"

#include "core/rails.h"
#include "internode/host.h"
#include "intranode/host.h"
#include "primitives/memory.h"

#include <cstring>

namespace ep::core {
namespace {

template <class Word>
void read_word(void* dst, const void* src) {
  const Word word = primitives::HostMemory::load_acquire_sys(
      static_cast<const Word*>(src));  // [sync:fault] acquire: the record
  std::memcpy(dst, &word, sizeof(word));
}

}  // namespace

Status HostEngine::begin(Stream stream) {
  if (stream.handle == nullptr) return {};
  return Status(Errc::kInvalidArgument, "stream: must be empty: this is a host group");
}

Status HostEngine::launch(const intranode::DispatchParams& params, int num_sms, Stream /*stream*/) {
  if (rails_ == nullptr) {
    intranode::launch_dispatch(launcher_, params, num_sms);
    return {};
  }
  internode::launch_dispatch(launcher_, rails_->host_rail(), params, num_sms);
  rails_->spread_failure();
  return {};
}

Status HostEngine::launch(const intranode::CombineParams& params, int num_sms, Stream /*stream*/) {
  if (rails_ == nullptr) {
    intranode::launch_combine(launcher_, params, num_sms);
    return {};
  }
  internode::launch_combine(launcher_, rails_->host_rail(), params, num_sms);
  rails_->spread_failure();
  return {};
}

Status HostEngine::fill_zero(void* dst, std::int64_t bytes, Stream /*stream*/) {
  std::memset(dst, 0, static_cast<std::size_t>(bytes));
  return {};
}

Status HostEngine::upload(void* dst, const void* src, std::int64_t bytes, Stream /*stream*/) {
  return write(dst, src, bytes);
}

Status HostEngine::read(void* dst, const void* src, std::int64_t bytes) {
  if (bytes == sizeof(std::uint32_t)) {
    read_word<std::uint32_t>(dst, src);
  } else if (bytes == sizeof(std::uint64_t)) {
    read_word<std::uint64_t>(dst, src);
  } else {
    std::memcpy(dst, src, static_cast<std::size_t>(bytes));
  }
  return {};
}

Status HostEngine::write(void* dst, const void* src, std::int64_t bytes) {
  std::memcpy(dst, src, static_cast<std::size_t>(bytes));
  return {};
}

}  // namespace ep::core
