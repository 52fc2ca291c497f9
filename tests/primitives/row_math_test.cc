// SPDX-License-Identifier: Apache-2.0
// Row kernels of every CPU target, bit for bit against scalar code written from their contract.

// Comes first: it says which targets the library has.
#include "primitives/row_math.h"

#include "primitives/row_targets.h"
#include "tests/support/number_formats.h"
#include "tests/support/property.h"
#include "tests/support/test_scale.h"

#include <ep/dtype.h>

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace ep::test {
namespace {

using primitives::ReduceRow;
using primitives::RowStore;
using primitives::RowTerm;
using Bytes = std::vector<std::byte>;

constexpr DType kReducible[] = {DType::kBf16, DType::kFp16, DType::kFp32};
constexpr RowStore kStores[] = {RowStore::kStream, RowStore::kCached};
constexpr std::size_t kGranule = primitives::kRowGranuleBytes;
constexpr std::size_t kLine = 64;

/// Targets that are compiled in and that this CPU has.
std::vector<std::int64_t> runnable_targets() {
  std::vector<std::int64_t> targets;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    targets.push_back(left & -left);
  }
  return targets;
}

/// Runs each test with the kernels of one target.
class RowMath : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { choose(GetParam()); }
  void TearDown() override { choose(0); }

 private:
  /// 0 is what the CPU has.
  static void choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

/// A row at a chosen distance from a cache line, poisoned, between guards.
class GuardedRow {
 public:
  GuardedRow(std::size_t bytes, std::size_t offset)
      : block_(kGuard + kLine + offset + bytes + kGuard, kPoison), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(block_.data() + kGuard);
    begin_ = kGuard + (kLine - address % kLine) % kLine + offset;
  }

  std::byte* row() { return block_.data() + begin_; }
  Bytes contents() const { return Bytes(at(begin_), at(begin_ + bytes_)); }
  bool is_guard_intact() const {
    const auto is_poison = [](std::byte byte) { return byte == kPoison; };
    return std::all_of(block_.begin(), at(begin_), is_poison) &&
           std::all_of(at(begin_ + bytes_), block_.end(), is_poison);
  }

 private:
  static constexpr std::size_t kGuard = 96;
  static constexpr std::byte kPoison{0xA5};

  Bytes::const_iterator at(std::size_t index) const {
    return block_.begin() + static_cast<std::ptrdiff_t>(index);
  }

  Bytes block_;
  std::size_t bytes_;
  std::size_t begin_ = 0;
};

/// Bit patterns that rounding and NaN rules turn on: zeros, subnormals, largest, infinity, NaNs.
std::uint32_t special_bits(DType dtype, std::mt19937_64& random) {
  constexpr std::uint32_t kBf16[] = {0, 1, 0x7F, 0x80, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0, 0x7FFF};
  constexpr std::uint32_t kFp16[] = {0, 1, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7FFF};
  constexpr std::uint32_t kFp32[] = {0,          1,          0x7FFFFF,   0x800000,  0x7F7FFFFF,
                                     0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF};
  const std::size_t which = random() % std::size(kBf16);
  const std::uint32_t sign = random() % 2 == 0 ? 0U : 1U;
  if (dtype == DType::kBf16) return kBf16[which] | (sign << 15);
  if (dtype == DType::kFp16) return kFp16[which] | (sign << 15);
  return kFp32[which] | (sign << 31);
}

enum class Content : std::uint8_t {
  kOrdinary,  ///< magnitudes from 2^-4 to 2^3, both signs: sums round and cancel
  kSpecial,   ///< one in four is special
  kAnyBits,
};

float ordinary_value(std::mt19937_64& random) {
  const float magnitude = std::ldexp(1.0F + static_cast<float>(random() % (1U << 23)) * 0x1p-23F,
                                     static_cast<int>(random() % 7) - 4);
  return random() % 2 == 0 ? magnitude : -magnitude;
}

void fill_element(DType dtype, Content content, std::mt19937_64& random, std::byte* element) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  if (content == Content::kOrdinary || (content == Content::kSpecial && random() % 4 != 0)) {
    return narrow(dtype, ordinary_value(random), element);
  }
  const std::uint32_t bits = content == Content::kAnyBits ? static_cast<std::uint32_t>(random())
                                                          : special_bits(dtype, random);
  std::memcpy(element, &bits, size);
}

Bytes random_row(DType dtype, std::size_t bytes, Content content, std::mt19937_64& random) {
  Bytes row(bytes);
  const auto size = static_cast<std::size_t>(size_of(dtype));
  for (std::size_t at = 0; at < bytes; at += size) fill_element(dtype, content, random, &row[at]);
  return row;
}

float random_weight(Content content, std::mt19937_64& random) {
  std::array<std::byte, sizeof(float)> bits;
  fill_element(DType::kFp32, content, random, bits.data());
  return std::bit_cast<float>(bits);
}

/// One call of reduce_row with the rows that it reads.
struct Sum {
  DType dtype = DType::kBf16;
  std::vector<Bytes> rows{};
  std::vector<RowTerm> terms{};
  Bytes bias{};  ///< empty: none
  std::size_t bytes = 0;
  bool is_weighted = false;

  ReduceRow call() const {
    return {.terms = terms,
            .bias = bias.empty() ? nullptr : bias.data(),
            .dtype = dtype,
            .num_elems = static_cast<std::int64_t>(bytes) / size_of(dtype),
            .weighted = is_weighted};
  }
};

Sum random_sum(DType dtype,
               std::size_t bytes,
               const std::vector<int>& hop_lengths,
               Content content,
               std::mt19937_64& random) {
  Sum sum{.dtype = dtype, .bytes = bytes};
  for (const int length : hop_lengths) {
    for (int i = 0; i < length; ++i) {
      sum.rows.push_back(random_row(dtype, bytes, content, random));
      sum.terms.push_back({.weight = random_weight(content, random), .ends_hop = i + 1 == length});
    }
  }
  for (std::size_t i = 0; i < sum.rows.size(); ++i) sum.terms[i].row = sum.rows[i].data();
  return sum;
}

float rounded(DType dtype, float value) {
  std::array<std::byte, sizeof(float)> element;
  narrow(dtype, value, element.data());
  return widen(dtype, element.data());
}

/// The contract of ReduceRow for the element at byte `at`.
float expected_total(const Sum& sum, std::size_t at) {
  float total = 0.0F;
  float partial = 0.0F;
  bool is_first_hop = true;
  bool is_first_of_hop = true;
  for (std::size_t i = 0; i < sum.terms.size(); ++i) {
    const float element = widen(sum.dtype, &sum.rows[i][at]);
    const float value = sum.is_weighted ? sum.terms[i].weight * element : element;
    partial = is_first_of_hop ? value : partial + value;
    is_first_of_hop = sum.terms[i].ends_hop || i + 1 == sum.terms.size();
    if (!is_first_of_hop) continue;
    const float crossed = rounded(sum.dtype, partial);
    total = is_first_hop ? crossed : total + crossed;
    is_first_hop = false;
  }
  return sum.bias.empty() ? total : total + widen(sum.dtype, &sum.bias[at]);
}

Bytes expected_row(const Sum& sum) {
  if (sum.rows.size() == 1 && !sum.is_weighted && sum.bias.empty()) return sum.rows[0];
  Bytes row(sum.bytes);
  const auto size = static_cast<std::size_t>(size_of(sum.dtype));
  for (std::size_t at = 0; at < sum.bytes; at += size) {
    narrow(sum.dtype, expected_total(sum, at), &row[at]);
  }
  return row;
}

/// "" or the first byte that differs.
std::string difference(const Bytes& got, const Bytes& expected) {
  if (got == expected) return "";
  const auto at =
      std::mismatch(got.begin(), got.end(), expected.begin(), expected.end()).first - got.begin();
  return "first wrong byte " + std::to_string(at) + " of " + std::to_string(expected.size());
}

std::string run(const Sum& sum, RowStore store, std::size_t offset) {
  GuardedRow out(sum.bytes, offset);
  primitives::reduce_row(out.row(), sum.call(), store);
  primitives::stream_fence();
  if (!out.is_guard_intact()) return "wrote outside of the row";
  return difference(out.contents(), expected_row(sum));
}

/// "" or what went wrong first with the output at any distance from a line.
std::string run_at_every_distance(const Sum& sum) {
  for (const std::size_t offset : {0, 16, 32, 48, 1, 63}) {
    for (const RowStore store : kStores) {
      const std::string wrong = run(sum, store, offset);
      if (!wrong.empty()) return wrong + ", " + std::to_string(offset) + " bytes behind a line";
    }
  }
  return "";
}

TEST_P(RowMath, ReducesEverySizeAtEveryDistanceFromALine) {
  std::mt19937_64 random(1);
  for (const DType dtype : kReducible) {
    for (std::size_t bytes = 0; bytes <= 21 * kGranule; bytes += kGranule) {
      const Sum sum = random_sum(dtype, bytes, {1, 1}, Content::kOrdinary, random);
      ASSERT_EQ(run_at_every_distance(sum), "") << name_of(dtype);
    }
  }
}

TEST_P(RowMath, ReducesAnyTermsInTheirOrder) {
  check_property(scaled_rounds(400, 20'000), 7, [] {
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    const DType dtype = *rc::gen::elementOf(std::vector<DType>(kReducible, std::end(kReducible)));
    const auto granules = *rc::gen::inRange<std::size_t>(1, 40);
    const auto hops = *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 5));
    const auto content =
        *rc::gen::element(Content::kOrdinary, Content::kSpecial, Content::kAnyBits);
    Sum sum = random_sum(dtype, granules * kGranule, hops, content, random);
    sum.is_weighted = *rc::gen::arbitrary<bool>();
    if (*rc::gen::arbitrary<bool>()) sum.bias = random_row(dtype, sum.bytes, content, random);
    const RowStore store = *rc::gen::element(RowStore::kStream, RowStore::kCached);
    const std::size_t offset = *rc::gen::inRange<std::size_t>(0, 4) * kGranule;
    RC_ASSERT(run(sum, store, offset) == "");
  });
}

/// Every element of the 16-bit types, weighted: all of widening, and all of rounding that 1.0
/// reaches.
TEST_P(RowMath, WidensAndRoundsEveryPatternOfTheNarrowTypes) {
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    for (const float weight : {1.0F, 0.7F, 0x1p-9F, 0x1p12F}) {
      Sum sum{.dtype = dtype, .bytes = 2 << 16, .is_weighted = true};
      sum.rows.emplace_back(sum.bytes);
      for (std::uint32_t bits = 0; bits < (1U << 16); ++bits) {
        std::memcpy(&sum.rows[0][std::size_t{bits} * 2], &bits, 2);
      }
      sum.terms.push_back({.row = sum.rows[0].data(), .weight = weight});
      ASSERT_EQ(run(sum, RowStore::kCached, 0), "") << name_of(dtype) << " * " << weight;
    }
  }
}

TEST_P(RowMath, RoundsAProductBeforeItIsAdded) {
  const float factor = 1.0F + 0x1p-12F;  // its square needs 25 bits
  const float square = factor * factor;
  Sum sum{.dtype = DType::kFp32, .bytes = 4 * kGranule, .is_weighted = true};
  for (const float value : {-square, factor}) {
    Bytes row(sum.bytes);
    for (std::size_t at = 0; at < sum.bytes; at += sizeof(float))
      narrow(DType::kFp32, value, &row[at]);
    sum.rows.push_back(row);
  }
  sum.terms = {{.row = sum.rows[0].data(), .weight = 1.0F, .ends_hop = false},
               {.row = sum.rows[1].data(), .weight = factor}};
  GuardedRow out(sum.bytes, 0);
  primitives::reduce_row(out.row(), sum.call(), RowStore::kCached);
  EXPECT_EQ(out.contents(), Bytes(sum.bytes)) << "a fused multiply-add leaves 2^-24";
}

TEST_P(RowMath, RoundsAfterEachHop) {
  // 1 + 2^-8 + 2^-8 is 1 + 2^-7 in one hop; alone, 1 + 2^-8 goes back to 1 in bf16.
  const auto sum_of = [](bool is_split) {
    Sum sum{.dtype = DType::kBf16, .bytes = kGranule};
    for (const float value : {1.0F, 0x1p-8F, 0x1p-8F}) {
      Bytes row(kGranule);
      for (std::size_t at = 0; at < kGranule; at += 2) narrow(DType::kBf16, value, &row[at]);
      sum.rows.push_back(row);
    }
    for (const Bytes& row : sum.rows) sum.terms.push_back({.row = row.data(), .ends_hop = false});
    sum.terms[1].ends_hop = is_split;
    GuardedRow out(kGranule, 0);
    primitives::reduce_row(out.row(), sum.call(), RowStore::kCached);
    return widen(DType::kBf16, out.row());
  };
  EXPECT_EQ(sum_of(false), 1.0F + 0x1p-7F);
  EXPECT_EQ(sum_of(true), 1.0F);
}

TEST_P(RowMath, CopiesASingleUnweightedRow) {
  std::mt19937_64 random(5);
  for (const DType dtype : kReducible) {
    const Sum sum = random_sum(dtype, 9 * kGranule, {1}, Content::kAnyBits, random);
    GuardedRow out(sum.bytes, 0);
    primitives::reduce_row(out.row(), sum.call(), RowStore::kStream);
    EXPECT_EQ(out.contents(), sum.rows[0]) << name_of(dtype);
  }
}

TEST_P(RowMath, WritesPositiveZeroForNoTerms) {
  for (const DType dtype : kReducible) {
    const Sum sum{.dtype = dtype, .bytes = 9 * kGranule};
    GuardedRow out(sum.bytes, kGranule);
    primitives::reduce_row(out.row(), sum.call(), RowStore::kStream);
    EXPECT_EQ(out.contents(), Bytes(sum.bytes)) << name_of(dtype);
  }
}

TEST_P(RowMath, ScalesRowsAlsoInPlace) {
  std::mt19937_64 random(11);
  for (const DType dtype : kReducible) {
    for (const std::size_t granules : {1, 4, 7, 32, 45}) {
      Sum sum = random_sum(dtype, granules * kGranule, {1}, Content::kSpecial, random);
      sum.is_weighted = true;
      GuardedRow row(sum.bytes, kGranule);
      std::memcpy(row.row(), sum.rows[0].data(), sum.bytes);
      primitives::scale_row(row.row(), row.row(), sum.terms[0].weight, dtype, sum.call().num_elems,
                            RowStore::kStream);
      ASSERT_EQ(difference(row.contents(), expected_row(sum)), "") << name_of(dtype);
      ASSERT_TRUE(row.is_guard_intact());
    }
  }
}

/// The contract of dot_rows.
std::uint32_t expected_dot_bits(DType dtype, const Bytes& a, const Bytes& b) {
  std::array<float, 256> acc{};
  const auto size = static_cast<std::size_t>(size_of(dtype));
  for (std::size_t i = 0; i * size < a.size(); ++i) {
    const float product = widen(dtype, &a[i * size]) * widen(dtype, &b[i * size]);
    acc[i % acc.size()] = acc[i % acc.size()] + product;
  }
  for (std::size_t width = acc.size() / 2; width >= 1; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) acc[i] = acc[i] + acc[i + width];
  }
  return std::isnan(acc[0]) ? 0x7FFFFFFFU : std::bit_cast<std::uint32_t>(acc[0]);
}

TEST_P(RowMath, DotProductsHaveOneOrderOnEveryTarget) {
  std::mt19937_64 random(13);
  for (const DType dtype : kReducible) {
    for (std::size_t bytes = 0; bytes <= 150 * kGranule; bytes += kGranule) {
      for (const Content content : {Content::kOrdinary, Content::kSpecial, Content::kAnyBits}) {
        const Bytes a = random_row(dtype, bytes, content, random);
        const Bytes b = random_row(dtype, bytes, content, random);
        const auto num_elems = static_cast<std::int64_t>(bytes) / size_of(dtype);
        const float dot = primitives::dot_rows(a.data(), b.data(), dtype, num_elems);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(dot), expected_dot_bits(dtype, a, b))
            << name_of(dtype) << ", " << num_elems << " elements";
      }
    }
  }
}

TEST_P(RowMath, ADotProductOfNegativeZerosIsPositiveZero) {
  const Bytes zeros(kGranule);
  Bytes negative(kGranule);
  for (std::size_t at = 1; at < kGranule; at += 2) negative[at] = std::byte{0x80};
  const float dot = primitives::dot_rows(zeros.data(), negative.data(), DType::kBf16, kGranule / 2);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(dot), 0U);
}

TEST_P(RowMath, StreamsRowsOfAnySizeAndAlignment) {
  std::mt19937_64 random(17);
  for (std::size_t bytes = 0; bytes <= 300; ++bytes) {
    for (const std::size_t offset : {0, 1, 15, 16, 32, 48, 63}) {
      const Bytes src = random_row(DType::kInt8, bytes + 1, Content::kAnyBits, random);
      GuardedRow dst(bytes, offset);
      primitives::stream_row(dst.row(), src.data() + 1, bytes);
      primitives::stream_fence();
      ASSERT_EQ(difference(dst.contents(), Bytes(src.begin() + 1, src.end())), "") << offset;
      ASSERT_TRUE(dst.is_guard_intact()) << bytes << " bytes, offset " << offset;
    }
  }
}

/// A streamed row is complete once a flag that was released after stream_fence() is seen.
TEST_P(RowMath, AFencedRowIsSeenBehindItsFlag) {
  const int num_rounds = scaled_rounds(2'000, 200'000);
  constexpr std::size_t kBytes = 64 * kLine;
  GuardedRow shared(kBytes, 0);
  std::atomic<int> num_written{0};
  std::atomic<int> num_read{0};
  std::thread writer([&] {
    for (int round = 1; round <= num_rounds; ++round) {
      const Bytes row(kBytes, static_cast<std::byte>(round));
      primitives::stream_row(shared.row(), row.data(), kBytes);
      primitives::stream_fence();
      num_written.store(round, std::memory_order_release);
      while (num_read.load(std::memory_order_acquire) < round) std::this_thread::yield();
    }
  });
  int num_torn = 0;
  for (int round = 1; round <= num_rounds; ++round) {
    while (num_written.load(std::memory_order_acquire) < round) std::this_thread::yield();
    num_torn += shared.contents() == Bytes(kBytes, static_cast<std::byte>(round)) ? 0 : 1;
    num_read.store(round, std::memory_order_release);
  }
  writer.join();
  EXPECT_EQ(num_torn, 0);
}

std::string target_name(const ::testing::TestParamInfo<std::int64_t>& target) {
  return hwy::TargetName(target.param);
}

INSTANTIATE_TEST_SUITE_P(Targets, RowMath, ::testing::ValuesIn(runnable_targets()), target_name);

TEST(RowMathDeath, RefusesTypesAndSizesThatItCannotReduce) {
  std::array<std::byte, 32> row{};
  EXPECT_DEATH(primitives::dot_rows(row.data(), row.data(), DType::kInt8, 16), "int8");
  EXPECT_DEATH(primitives::dot_rows(row.data(), row.data(), DType::kBf16, 7), "16 bytes");
}

}  // namespace
}  // namespace ep::test
