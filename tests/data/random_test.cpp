#include "data/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace plimsoll::engine {
namespace {

TEST(Random, UniformNumbersFillTheirRangeEvenly) {
  const auto numbers = random_uniform({1000, 7}, 3, -2, 6);
  ASSERT_EQ(numbers.size(), 7000u);
  std::vector<int> cells(8);
  for (float number : numbers) {
    ASSERT_TRUE(number >= -2 && number < 6);
    ++cells[static_cast<size_t>(std::floor(number + 2))];
  }
  for (int n : cells) EXPECT_NEAR(n, 875, 4.5 * std::sqrt(875));
}

TEST(Random, StaysBelowTheUpperEndWhereRoundingWouldReachIt) {
  for (float number : random_uniform({100'000}, 1, 16777214, 16777216)) ASSERT_LT(number, 16777216);
}

TEST(Random, IntegersComeEquallyOften) {
  const auto labels = random_integers(10, 10'003, 4);
  ASSERT_EQ(labels.size(), 10'003u);
  std::vector<int> counts(10);
  for (int32_t label : labels) ++counts.at(static_cast<size_t>(label));
  for (int n : counts) EXPECT_NEAR(n, 1000, 4.5 * std::sqrt(1000));
}

TEST(Random, DependsOnTheSeedAlone) {
  EXPECT_EQ(random_uniform({50}, 1), random_uniform({5, 10}, 1));
  EXPECT_NE(random_uniform({50}, 1), random_uniform({50}, 2));
  EXPECT_EQ(random_integers(9, 50, 1), random_integers(9, 50, 1));
  EXPECT_NE(random_integers(9, 50, 1), random_integers(9, 50, 2));
  const auto longer = random_uniform({53}, 1);
  EXPECT_TRUE(std::equal(longer.begin(), longer.begin() + 50, random_uniform({50}, 1).begin()));
}

}  // namespace
}  // namespace plimsoll::engine
