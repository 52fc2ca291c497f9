// SPDX-License-Identifier: Apache-2.0
// Words of a text.
#include "bench/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace ep::bench {
namespace {

std::vector<int> words_of(const Text& text, std::int64_t count) {
  std::vector<int> words;
  for (std::int64_t at = 0; at < count; ++at) words.push_back(text.word_at(at));
  return words;
}

TEST(BenchText, SplitsAtWhatIsNoLetter) {
  const Result<Text> text = Text::from_string("t", "  The cat -- the CAT's\nhat, a2z!  ");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->num_words(), 6);
  EXPECT_EQ(text->num_distinct(), 5);
  EXPECT_EQ(words_of(*text, 6), (std::vector<int>{0, 1, 0, 2, 3, 4}));
}

TEST(BenchText, StartsAgainBehindItsEnd) {
  const Result<Text> text = Text::from_string("t", "one two three");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(words_of(*text, 7), (std::vector<int>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(BenchText, AWordHasItsHashInEveryText) {
  const Result<Text> first = Text::from_string("a", "sea and land");
  const Result<Text> second = Text::from_string("b", "LAND");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->hash_of(2), second->hash_of(0));
  EXPECT_NE(first->hash_of(0), first->hash_of(2));
}

TEST(BenchText, KeepsWordsOfOtherAlphabets) {
  const Result<Text> text = Text::from_string("t", "\xc3\xa9t\xc3\xa9 \xd0\xb8");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->num_words(), 2);
}

TEST(BenchText, RefusesATextWithoutWords) {
  const Result<Text> text = Text::from_string("dots.txt", "... --- ...");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().code(), Errc::kInvalidArgument);
  EXPECT_NE(text.status().message().find("dots.txt"), std::string::npos);
}

TEST(BenchText, NamesAFileThatCannotBeRead) {
  const Result<Text> missing = Text::read("/nonexistent/novel.txt");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), Errc::kInvalidArgument);
  EXPECT_NE(missing.status().message().find("/nonexistent/novel.txt"), std::string::npos);
  EXPECT_FALSE(Text::read("/").ok());
}

TEST(BenchText, TheDefaultTextIsLongEnoughToBeSkewed) {
  const Result<Text> text = Text::read_default();
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_GT(text->num_words(), 1000);
  EXPECT_LT(text->num_distinct(), text->num_words() / 2);
}

}  // namespace
}  // namespace ep::bench
