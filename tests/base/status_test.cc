// SPDX-License-Identifier: Apache-2.0
// Status, Result, and the macros that pass them on.
#include "base/check.h"
#include "base/errno_status.h"

#include <ep/status.h>
#include <ep/version.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

namespace ep {
namespace {

TEST(Status, DefaultsToSuccess) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.to_string(), "kOk");
  EXPECT_EQ(status.peer(), Status::kNoPeer);
}

TEST(Status, PrintsCodeAndMessage) {
  const Status status(Errc::kPeerTimeout, "dispatch, epoch 17");
  EXPECT_EQ(status.to_string(), "kPeerTimeout: dispatch, epoch 17");
}

TEST(Status, NamesEveryCode) {
  for (int code = 0; code <= static_cast<int>(Errc::kInternal); ++code) {
    EXPECT_EQ(name_of(static_cast<Errc>(code)).substr(0, 1), "k") << code;
  }
  EXPECT_EQ(name_of(static_cast<Errc>(200)), "unknown");
}

TEST(Status, OfErrnoCarriesNumberAndText) {
  const Status status = base::errno_status("bind to port 80", EACCES);
  EXPECT_EQ(status.code(), Errc::kFabric);
  EXPECT_EQ(status.native_code(), EACCES);
  EXPECT_EQ(status.message(), "bind to port 80: Permission denied (errno 13)");
  EXPECT_EQ(base::errno_status("mmap", ENOMEM).code(), Errc::kOutOfMemory);
}

Result<std::unique_ptr<int>> half_of(int number) {
  if (number % 2 != 0) return Status(Errc::kInvalidArgument, std::to_string(number) + " is odd");
  return std::make_unique<int>(number / 2);
}

Result<int> quarter_of(int number, int* num_steps) {
  EP_TRY_ASSIGN(const std::unique_ptr<int> half, half_of(number));
  ++*num_steps;
  EP_TRY(half_of(*half));
  ++*num_steps;
  EP_TRY(half_of(*half).status());
  return *half / 2;
}

TEST(Try, GoesOnAfterSuccess) {
  int num_steps = 0;
  const Result<int> quarter = quarter_of(8, &num_steps);
  ASSERT_TRUE(quarter.ok());
  EXPECT_EQ(*quarter, 2);
  EXPECT_EQ(num_steps, 2);
}

TEST(Try, ReturnsTheFirstFailure) {
  int num_steps = 0;
  EXPECT_EQ(quarter_of(7, &num_steps).status().message(), "7 is odd");
  EXPECT_EQ(num_steps, 0);
  EXPECT_EQ(quarter_of(6, &num_steps).status().message(), "3 is odd");
  EXPECT_EQ(num_steps, 1);
}

TEST(Version, IsThatOfTheBuild) {
  EXPECT_EQ(std::count(version().begin(), version().end(), '.'), 2) << version();
  EXPECT_FALSE(git_commit().empty());
}

}  // namespace
}  // namespace ep
