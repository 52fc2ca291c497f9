// SPDX-License-Identifier: Apache-2.0
// Row kernels against memcpy and against loops that the compiler vectorises; docs/adr/0002 has
// figures.

#include "layout/numeric.h"
#include "primitives/row_math.h"

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace ep::bench {
namespace {

using primitives::ReduceRow;
using primitives::RowStore;
using primitives::RowTerm;

constexpr std::int64_t kHidden = 7168;
constexpr std::size_t kRowBytes = kHidden * sizeof(std::uint16_t);
/// Per thread and pool: far more than a core's share of any last-level cache.
constexpr std::size_t kNumRows = 16384;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kScatterStep = 5;

/// bf16 rows of small numbers, in memory of this thread. Rows follow each other without gaps.
class RowPool {
 public:
  explicit RowPool(std::size_t num_rows)
      : num_rows_(num_rows),
        bytes_(static_cast<std::byte*>(
            ::operator new (num_rows* kRowBytes, std::align_val_t{kPageBytes}))) {
    constexpr std::uint16_t kOne = 0x3F80;
    auto* elems = reinterpret_cast<std::uint16_t*>(bytes_.get());
    for (std::size_t i = 0; i < num_rows * kHidden; ++i) {
      elems[i] = static_cast<std::uint16_t>(kOne + i % 97);
    }
  }

  /// Rows of one token lie far from each other, as those of several experts do.
  std::byte* row(std::size_t token, std::size_t term = 0) const {
    constexpr std::size_t kStride = 2053;
    return bytes_.get() + (token + term * kStride) % num_rows_ * kRowBytes;
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const {
      ::operator delete (bytes, std::align_val_t{kPageBytes});
    }
  };
  std::size_t num_rows_;
  std::unique_ptr<std::byte, Free> bytes_;
};

/// What a benchmark of one thread works on; kept from one benchmark to the next.
struct Pools {
  RowPool inputs{kNumRows};
  RowPool outputs{kNumRows};
};

Pools& thread_pools() {
  thread_local Pools pools;
  return pools;
}

/// Counts `rows_per_call` rows as moved: read or written.
void report(benchmark::State& state, std::size_t rows_per_call) {
  state.SetBytesProcessed(
      static_cast<std::int64_t>(state.iterations() * rows_per_call * kRowBytes));
}

void copy_with_memcpy(benchmark::State& state) {
  const Pools& pools = thread_pools();
  std::size_t token = 0;
  for ([[maybe_unused]] auto _ : state) {
    std::memcpy(pools.outputs.row(token), pools.inputs.row(token), kRowBytes);
    ++token;
  }
  report(state, 1);
}

void copy_with_stream_row(benchmark::State& state) {
  const Pools& pools = thread_pools();
  std::size_t token = 0;
  for ([[maybe_unused]] auto _ : state) {
    primitives::stream_row(pools.outputs.row(token), pools.inputs.row(token), kRowBytes);
    ++token;
  }
  primitives::stream_fence();
  report(state, 1);
}

/// A call with few rows, repeated in the same place. Argument: rows.
void copy_few_rows(benchmark::State& state, RowStore store) {
  const Pools& pools = thread_pools();
  const auto num_rows = static_cast<std::size_t>(state.range(0));
  for ([[maybe_unused]] auto _ : state) {
    for (std::size_t token = 0; token < num_rows; ++token) {
      primitives::copy_row(pools.outputs.row(token), pools.inputs.row(token), kRowBytes, store);
    }
    primitives::stream_fence();
  }
  report(state, num_rows);
}

void copy_few_rows_cached(benchmark::State& state) { copy_few_rows(state, RowStore::kCached); }

void copy_few_rows_streamed(benchmark::State& state) { copy_few_rows(state, RowStore::kStream); }

/// `num_hops` hops of equal length.
std::vector<RowTerm> make_terms(int num_terms, int num_hops) {
  std::vector<RowTerm> terms(static_cast<std::size_t>(num_terms));
  const std::size_t hop_length = terms.size() / static_cast<std::size_t>(num_hops);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    terms[i].weight = 0.125F + 0.01F * static_cast<float>(i);
    terms[i].ends_hop = (i + 1) % hop_length == 0;
  }
  return terms;
}

using ReduceFunction = void (*)(std::byte* out, const ReduceRow& reduce);

/// Where the rows of the next token lie.
enum class Order : std::uint8_t {
  kFollowing,            ///< behind those of this token
  kScattered,            ///< elsewhere
  kScatteredPrefetched,  ///< elsewhere, and prefetch_row is told
};

/// Arguments: terms, hops, weighted.
void reduce_with(benchmark::State& state, ReduceFunction reduce_function, Order order) {
  const Pools& pools = thread_pools();
  std::vector<RowTerm> terms =
      make_terms(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const ReduceRow reduce{
      .terms = terms, .dtype = DType::kBf16, .num_elems = kHidden, .weighted = state.range(2) != 0};
  const std::size_t step = order == Order::kFollowing ? 1 : kScatterStep;
  std::size_t token = 0;
  for ([[maybe_unused]] auto _ : state) {
    for (std::size_t i = 0; i < terms.size(); ++i) {
      terms[i].row = pools.inputs.row(token * step, i);
      if (order != Order::kScatteredPrefetched) continue;
      primitives::prefetch_row(pools.inputs.row((token + 1) * step, i));
    }
    reduce_function(pools.outputs.row(token), reduce);
    ++token;
  }
  primitives::stream_fence();
  report(state, terms.size() + 1);
}

void reduce_row_streamed(std::byte* out, const ReduceRow& reduce) {
  primitives::reduce_row(out, reduce, RowStore::kStream);
}

void reduce_row_cached(std::byte* out, const ReduceRow& reduce) {
  primitives::reduce_row(out, reduce, RowStore::kCached);
}

void reduce_streamed(benchmark::State& state) {
  reduce_with(state, reduce_row_streamed, Order::kFollowing);
}

void reduce_cached(benchmark::State& state) {
  reduce_with(state, reduce_row_cached, Order::kFollowing);
}

void reduce_scattered(benchmark::State& state) {
  reduce_with(state, reduce_row_streamed, Order::kScattered);
}

void reduce_scattered_prefetched(benchmark::State& state) {
  reduce_with(state, reduce_row_streamed, Order::kScatteredPrefetched);
}

/// The rounding of numeric.h without its branch, which would keep the compiler from vectorising.
inline std::uint16_t round_to_bf16(float value) {
  const std::uint32_t bits = layout::bits_of_float(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>(layout::is_float_nan(bits) ? layout::kBf16Nan : rounded);
}

/// Elements that the loop version keeps in fp32 between two passes over its terms: fits the L1
/// cache.
constexpr std::size_t kBlockElems = 512;

using Block = std::array<float, kBlockElems>;

[[gnu::target_clones("default", "avx2", "arch=skylake-avx512")]] void add_term(
    Block& sum, const std::uint16_t* __restrict row, float weight, bool is_first) {
  if (is_first) {
    for (std::size_t i = 0; i < kBlockElems; ++i) sum[i] = weight * layout::bf16_to_float(row[i]);
  } else {
    for (std::size_t i = 0; i < kBlockElems; ++i) {
      sum[i] = sum[i] + weight * layout::bf16_to_float(row[i]);
    }
  }
}

[[gnu::target_clones("default", "avx2", "arch=skylake-avx512")]] void add_hop(Block& total,
                                                                              const Block& partial,
                                                                              bool is_first) {
  for (std::size_t i = 0; i < kBlockElems; ++i) {
    const float rounded = layout::bf16_to_float(round_to_bf16(partial[i]));
    total[i] = is_first ? rounded : total[i] + rounded;
  }
}

[[gnu::target_clones("default", "avx2", "arch=skylake-avx512")]] void store_block(
    std::uint16_t* __restrict out, const Block& total) {
  for (std::size_t i = 0; i < kBlockElems; ++i) out[i] = round_to_bf16(total[i]);
}

[[gnu::target_clones("default", "avx2", "arch=skylake-avx512")]] void add_two(
    std::uint16_t* __restrict out,
    const std::uint16_t* __restrict a,
    const std::uint16_t* __restrict b) {
  for (std::size_t i = 0; i < kHidden; ++i) {
    out[i] = round_to_bf16(layout::bf16_to_float(a[i]) + layout::bf16_to_float(b[i]));
  }
}

/// The best loops that were found for the two common cases: one pass for two rows that are added,
/// blocks otherwise.
void reduce_by_loops(std::byte* out, const ReduceRow& reduce) {
  auto* elems = reinterpret_cast<std::uint16_t*>(out);
  const auto row_of = [&](std::size_t i) {
    return reinterpret_cast<const std::uint16_t*>(reduce.terms[i].row);
  };
  if (!reduce.weighted && reduce.terms.size() == 2) return add_two(elems, row_of(0), row_of(1));
  for (std::size_t at = 0; at < kHidden; at += kBlockElems) {
    Block total;
    Block partial;
    bool is_first_hop = true;
    bool is_first_term = true;
    for (std::size_t i = 0; i < reduce.terms.size(); ++i) {
      add_term(partial, row_of(i) + at, reduce.terms[i].weight, is_first_term);
      is_first_term = reduce.terms[i].ends_hop;
      if (!reduce.terms[i].ends_hop) continue;
      add_hop(total, partial, is_first_hop);
      is_first_hop = false;
    }
    store_block(elems + at, total);
  }
}

void reduce_loops(benchmark::State& state) {
  reduce_with(state, reduce_by_loops, Order::kFollowing);
}

void dot(benchmark::State& state) {
  const Pools& pools = thread_pools();
  std::size_t token = 0;
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(primitives::dot_rows(pools.inputs.row(token), pools.outputs.row(token),
                                                  DType::kBf16, kHidden));
    ++token;
  }
  report(state, 2);
}

/// What one call costs besides its bytes.
void reduce_one_granule(benchmark::State& state) {
  std::array<std::byte, primitives::kRowGranuleBytes> row{};
  std::array<std::byte, primitives::kRowGranuleBytes> out;
  const std::array<RowTerm, 2> terms{RowTerm{.row = row.data()}, RowTerm{.row = row.data()}};
  const ReduceRow reduce{.terms = terms, .dtype = DType::kFp32, .num_elems = 4};
  for ([[maybe_unused]] auto _ : state)
    primitives::reduce_row(out.data(), reduce, RowStore::kCached);
}

/// Arguments are terms, hops, weighted: flat combine of two ranks, expert-major combine of top-8.
void reduce_cases(benchmark::internal::Benchmark* bench) {
  bench->Args({2, 2, 0})
      ->Args({8, 2, 1})
      ->ArgNames({"terms", "hops", "weighted"})
      ->Threads(1)
      ->Threads(2)
      ->UseRealTime();
}

BENCHMARK(copy_with_memcpy)->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK(copy_with_stream_row)->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK(copy_few_rows_cached)->RangeMultiplier(4)->Range(8, 2048);
BENCHMARK(copy_few_rows_streamed)->RangeMultiplier(4)->Range(8, 2048);
BENCHMARK(reduce_streamed)->Apply(reduce_cases);
BENCHMARK(reduce_cached)->Apply(reduce_cases);
BENCHMARK(reduce_loops)->Apply(reduce_cases);
BENCHMARK(reduce_scattered)->Apply(reduce_cases);
BENCHMARK(reduce_scattered_prefetched)->Apply(reduce_cases);
BENCHMARK(reduce_one_granule);
BENCHMARK(dot)->Threads(1)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace ep::bench

BENCHMARK_MAIN();
