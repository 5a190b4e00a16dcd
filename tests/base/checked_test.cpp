#include "base/checked.h"

#include <gtest/gtest.h>

#include <limits>

namespace plimsoll::engine {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();

TEST(Checked, SumsAndProductsThatDoNotFitAreNothing) {
  EXPECT_EQ(checked_add<int64_t>(2, 3), 5);
  EXPECT_EQ(checked_add(kMost, int64_t{1}), std::nullopt);
  EXPECT_EQ(checked_add(kLeast, int64_t{-1}), std::nullopt);
  EXPECT_EQ(checked_add<uint64_t>(~uint64_t{0}, 1), std::nullopt);
  EXPECT_EQ(checked_multiply<int64_t>(-4, 5), -20);
  EXPECT_EQ(checked_multiply<int64_t>(int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(checked_multiply(kLeast, int64_t{-1}), std::nullopt);
}

TEST(Checked, AligningUpDoesNotWrap) {
  EXPECT_EQ(checked_align_up(0, 256), 0);
  EXPECT_EQ(checked_align_up(257, 256), 512);
  EXPECT_EQ(checked_align_up(kMost, 256), std::nullopt);
  EXPECT_EQ(checked_align_up(-1, 256), std::nullopt);
}

TEST(Checked, ARangeLiesWithinASizeOrNot) {
  EXPECT_TRUE(lies_within(0, 0, 0));
  EXPECT_TRUE(lies_within(8, 8, 16));
  EXPECT_FALSE(lies_within(9, 8, 16));
  EXPECT_FALSE(lies_within(-256, 8, 16));
  EXPECT_FALSE(lies_within(kMost - 255, 256, 16));
  EXPECT_FALSE(lies_within(0, kMost, kMost - 1));
  EXPECT_FALSE(lies_within(0, -1, 16));
}

TEST(Checked, ASumRemembersThatItOverflowed) {
  CheckedSum sum;
  sum += kMost;
  EXPECT_EQ(sum.value(), kMost);
  sum += 1;
  EXPECT_EQ(sum.value(), std::nullopt);
  sum += kLeast;
  EXPECT_EQ(sum.value(), std::nullopt);
}

}  // namespace
}  // namespace plimsoll::engine
