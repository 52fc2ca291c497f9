// SPDX-License-Identifier: Apache-2.0
// How ranks and groups share the SMs of a device, and what is suggested from measured curves.
#include "core/device_budget.h"

#include "core/sm_curve.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ep::test {
namespace {

using core::BudgetClaim;
using core::DeviceShare;

constexpr int kDeviceSms = 132;
constexpr int kMostSms = 16;

fabric::DeviceUuid device(int number) {
  fabric::DeviceUuid uuid{};
  uuid.back() = static_cast<std::byte>(number);
  return uuid;
}

BudgetClaim claim(int device_number, int wanted_sms, int taken_sms = 0) {
  return {.device = device(device_number),
          .process = 1,
          .device_sms = kDeviceSms,
          .wanted_sms = wanted_sms,
          .taken_sms = taken_sms};
}

std::vector<int> divided(const std::vector<BudgetClaim>& claims) {
  const auto result = core::divide_devices(claims, kMostSms);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  std::vector<int> budgets;
  if (!result.ok()) return budgets;
  for (const BudgetClaim& each : *result) budgets.push_back(each.wanted_sms);
  return budgets;
}

TEST(DeviceBudget, ARankGetsWhatItAsksForUpToTheWholeDevice) {
  EXPECT_EQ(divided({claim(0, 132), claim(1, 132)}), (std::vector{132, 132}));
  EXPECT_EQ(divided({claim(0, 44), claim(0, 44), claim(0, 44)}), (std::vector{44, 44, 44}));
}

TEST(DeviceBudget, RanksThatDoNotAskShareWhatIsLeft) {
  EXPECT_EQ(divided({claim(0, 0), claim(1, 0)}), (std::vector{16, 16}));
  EXPECT_EQ(divided({claim(0, 120), claim(0, 0), claim(0, 0)}), (std::vector{120, 6, 6}));
  EXPECT_EQ(divided({claim(0, 0, 125), claim(0, 0, 125), claim(1, 0)}), (std::vector{3, 3, 16}));
}

TEST(DeviceBudget, MoreThanADeviceHasIsAnErrorWithTheNumbers) {
  const auto refused =
      core::divide_devices({claim(0, 64, 10), claim(1, 132), claim(0, 64, 10)}, kMostSms);
  EXPECT_EQ(refused.status().code(), Errc::kInvalidArgument);
  for (const char* part :
       {"rank(s) 0, 2 ", "64 + 64", "10 are promised", "138 in all", "has 132"}) {
    EXPECT_NE(refused.status().message().find(part), std::string::npos)
        << part << " in: " << refused.status().message();
  }
}

TEST(DeviceBudget, ARankThatDoesNotAskNeedsOneSm) {
  EXPECT_EQ(divided({claim(0, 131), claim(0, 0)}), (std::vector{131, 1}));
  const auto refused = core::divide_devices({claim(0, 132), claim(0, 0)}, kMostSms);
  EXPECT_EQ(refused.status().code(), Errc::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("132 + 1"), std::string::npos)
      << refused.status().message();
}

TEST(DeviceBudget, ACallMayUseWhatOtherGroupsLeave) {
  const auto first = DeviceShare::reserve({claim(7, 16), claim(8, 16)}, 0);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->num_sms(), 16);
  EXPECT_EQ((*first)->limit(), 132);
  {
    const auto second = DeviceShare::reserve({claim(7, 100)}, 0);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ((*first)->limit(), 32);
    EXPECT_EQ((*second)->limit(), 116);
    EXPECT_NE((*first)->describe().find("other groups of the process hold 100"), std::string::npos)
        << (*first)->describe();
    const auto third = DeviceShare::reserve({claim(7, 17)}, 0);
    EXPECT_EQ(third.status().code(), Errc::kInvalidArgument);
    EXPECT_NE(third.status().message().find("hold 116"), std::string::npos)
        << third.status().message();
    EXPECT_NE(third.status().message().find("num_sms = 17"), std::string::npos)
        << third.status().message();
  }
  EXPECT_EQ((*first)->limit(), 132) << "a share is not given back, or a refused one was";
}

TEST(DeviceBudget, RanksOfAGroupShareADeviceEqually) {
  const std::vector<BudgetClaim> claims = {claim(9, 16), claim(9, 16), claim(9, 16)};
  std::vector<std::unique_ptr<DeviceShare>> shares;
  for (int rank = 0; rank < 3; ++rank) {
    auto share = DeviceShare::reserve(claims, rank);
    ASSERT_TRUE(share.ok());
    shares.push_back(std::move(*share));
  }
  for (const auto& share : shares) EXPECT_EQ(share->limit(), 44);
}

TEST(SmCurve, TheNearestCurveOfTheSameMovementAndLayoutDecides) {
  const std::vector<core::MeasuredBudget> curves = {
      {Movement::kDispatch, Layout::kFlat, 14'336, 8192, 14},
      {Movement::kDispatch, Layout::kFlat, 7168, 8192, 12},
      {Movement::kDispatch, Layout::kFlat, 14'336, 256, 24},
      {Movement::kCombine, Layout::kFlat, 14'336, 8192, 10},
  };
  OpShape shape{.num_ranks = 2, .num_tokens = 4096, .hidden_bytes = 14'336, .topk = 8};
  EXPECT_EQ(core::nearest_budget(curves, shape, 5), 14);
  shape.hidden_bytes = 8192;
  EXPECT_EQ(core::nearest_budget(curves, shape, 5), 12);
  shape.num_tokens = 100;
  EXPECT_EQ(core::nearest_budget(curves, shape, 5), 24);
  shape.movement = Movement::kCombine;
  EXPECT_EQ(core::nearest_budget(curves, shape, 5), 10);
  shape.layout = Layout::kExpertMajor;
  EXPECT_EQ(core::nearest_budget(curves, shape, 5), 5) << "nothing was measured";
}

TEST(SmCurve, RowsFollowFromTheShape) {
  OpShape shape{.num_ranks = 2, .num_tokens = 100, .topk = 8};
  EXPECT_EQ(shape.num_rows(), 200);
  shape.num_ranks = 16;
  EXPECT_EQ(shape.num_rows(), 800);
  shape.num_ranks = 2;
  shape.layout = Layout::kExpertMajor;
  EXPECT_EQ(shape.num_rows(), 800);
}

TEST(SmCurve, SuggestionsForGpusComeFromTheTable) {
  const OpShape shape{.num_ranks = 2,
                      .num_tokens = 4096,
                      .hidden_bytes = 14'336,
                      .topk = 8,
                      .backend = Backend::kCuda};
  EXPECT_EQ(suggest_num_sms(shape), core::measured_budget(shape));
  EXPECT_GT(suggest_num_sms(shape), 1);
  EXPECT_LE(suggest_num_sms(shape), core::largest_measured_budget());
}

}  // namespace
}  // namespace ep::test
