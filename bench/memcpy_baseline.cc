// SPDX-License-Identifier: Apache-2.0
// Copies with the threads that an operation would use.
#include "bench/memcpy_baseline.h"

#include "base/check.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ep::bench {

Crew::Crew(int num_threads) {
  for (int member = 1; member < num_threads; ++member) {
    threads_.emplace_back([this, member] { serve(member); });
  }
}

Crew::~Crew() {
  work_ = nullptr;
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Crew::run(const std::function<void(int)>& work) {
  work_ = &work;
  num_busy_.store(static_cast<int>(threads_.size()));
  round_.fetch_add(1);
  round_.notify_all();
  work(0);
  for (int busy = num_busy_.load(); busy != 0; busy = num_busy_.load()) num_busy_.wait(busy);
}

void Crew::serve(int member) {
  std::uint32_t seen = 0;
  while (true) {
    round_.wait(seen);
    ++seen;
    if (work_ == nullptr) return;
    (*work_)(member);
    if (num_busy_.fetch_sub(1) == 1) num_busy_.notify_one();
  }
}

Result<std::unique_ptr<MemcpyBaseline>> MemcpyBaseline::create(Group& group, const Config& config) {
  auto baseline = std::unique_ptr<MemcpyBaseline>(new MemcpyBaseline(config.num_threads));
  for (int i = 0; i < config.num_sets; ++i) {
    Set set;
    set.ordinary = HostBuffer(static_cast<std::size_t>(config.max_bytes));
    EP_TRY_ASSIGN(set.arena, group.allocate(DType::kUInt8, {config.max_bytes}));
    std::memset(set.arena.view().data, HostBuffer::kPoison, set.ordinary.size());
    baseline->sets_.push_back(std::move(set));
  }
  return baseline;
}

void MemcpyBaseline::run(const Copy& copy, int iteration) {
  const Set& set = sets_[static_cast<std::size_t>(iteration) % sets_.size()];
  std::byte* dst = set.arena.data<std::byte>();
  std::byte* src = set.ordinary.get();
  if (copy.direction == CopyDirection::kFromArena) std::swap(dst, src);
  const int num_threads = crew_.size();
  crew_.run([&](int member) {
    const std::int64_t first = copy.num_rows * member / num_threads;
    const std::int64_t end = copy.num_rows * (member + 1) / num_threads;
    const std::int64_t step =
        copy.pieces == CopyPieces::kRows ? 1 : std::max<std::int64_t>(end - first, 1);
    for (std::int64_t row = first; row < end; row += step) {
      const std::int64_t offset = row * copy.row_bytes;
      std::memcpy(dst + offset, src + offset, static_cast<std::size_t>(step * copy.row_bytes));
    }
  });
}

}  // namespace ep::bench
