// SPDX-License-Identifier: Apache-2.0
// Pinned blocks and the list of those that wait to be used again.
#include "fabric/cuda/pinned.h"

#include "base/check.h"
#include "fabric/cuda/status.h"

#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace ep::fabric {
namespace {

struct FreeList {
  std::mutex mutex;
  /// By size: an arena of as many ranks needs the same again.
  std::multimap<std::size_t, std::byte*> blocks;
};

/// Never destroyed: an arena that outlives main() still finds it.
FreeList& free_list() {
  static FreeList* const kInstance = new FreeList;
  return *kInstance;
}

std::byte* take_free(std::size_t bytes) {
  const std::lock_guard lock(free_list().mutex);
  const auto found = free_list().blocks.find(bytes);
  if (found == free_list().blocks.end()) return nullptr;
  std::byte* const block = found->second;
  free_list().blocks.erase(found);
  return block;
}

}  // namespace

Result<PinnedBlock> PinnedBlock::allocate(std::size_t bytes) {
  std::byte* base = take_free(bytes);
  if (base == nullptr) {
    void* memory = nullptr;
    EP_TRY(cuda_status(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                       "cudaHostAlloc of " + std::to_string(bytes) + " bytes"));
    base = static_cast<std::byte*>(memory);
  }
  std::memset(base, 0, bytes);
  return PinnedBlock(base, bytes);
}

PinnedBlock::~PinnedBlock() {
  if (base_ == nullptr) return;
  const std::lock_guard lock(free_list().mutex);
  free_list().blocks.emplace(bytes_, base_);
}

}  // namespace ep::fabric
