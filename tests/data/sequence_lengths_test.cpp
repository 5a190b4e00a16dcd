#include "data/sequence_lengths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

namespace plimsoll::engine {
namespace {

std::vector<int32_t> some_lengths(int64_t samples, int64_t longest) {
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < samples; ++i) lengths.push_back(static_cast<int32_t>(1 + (i * i * 7 + i) % longest));
  return lengths;
}

// The steps that the samples take if each is as long as the first limit that holds it.
int64_t steps_of(const std::vector<int32_t>& lengths, std::vector<int64_t> limits) {
  std::sort(limits.begin(), limits.end());
  int64_t steps = 0;
  for (const int32_t length : lengths) steps += *std::lower_bound(limits.begin(), limits.end(), length);
  return steps;
}

TEST(LengthGroups, AnEpochHasEverySampleOnceAndWindowsOfOneGroup) {
  const auto lengths = some_lengths(101, 40);
  for (const bool shuffle : {false, true}) {
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      LengthGroups groups(lengths, {10, 40, 25}, 1000, 8);
      groups.order(epoch, shuffle, 5);
      std::map<int64_t, int> seen;
      for (int64_t window = 0; window < groups.windows(); ++window) {
        const auto place = groups.place(window);
        ASSERT_GE(place.count, 1);
        ASSERT_LE(place.count, 8);
        for (int64_t i = 0; i < place.count; ++i) {
          const int64_t sample = groups.sample(place.group, place.first + i);
          ++seen[sample];
          ASSERT_LE(lengths[static_cast<size_t>(sample - 1000)], groups.groups()[place.group].steps);
        }
      }
      ASSERT_EQ(seen.size(), lengths.size());
      for (const auto& [sample, times] : seen) ASSERT_EQ(times, 1) << sample;
    }
  }
}

TEST(LengthGroups, TheLongestComesFirstAndAnEmptyGroupHasNoWindow) {
  const std::vector<int32_t> lengths = {3, 9, 2, 9, 1};
  LengthGroups groups(lengths, {3, 6, 9}, 0, 2);
  groups.order(0, false, 0);
  ASSERT_EQ(groups.groups().size(), 3u);
  EXPECT_EQ(groups.groups()[0].steps, 9);
  EXPECT_EQ(groups.groups()[1].samples, 0);
  EXPECT_EQ(groups.windows(), 3);
  EXPECT_EQ(groups.place(0).group, 0u);
  EXPECT_EQ(groups.place(1).group, 2u);
  EXPECT_EQ(groups.place(2).count, 1);
  EXPECT_EQ(groups.sample(2, 2), 4);
}

TEST(LengthGroups, EpochsHaveDifferentOrders) {
  LengthGroups groups(some_lengths(200, 40), {10, 40}, 0, 8);
  std::vector<std::vector<int64_t>> orders;
  for (const int64_t epoch : {0, 1, 0}) {
    groups.order(epoch, true, 1);
    std::vector<int64_t>& order = orders.emplace_back();
    for (int64_t window = 0; window < groups.windows(); ++window)
      order.push_back(groups.sample(groups.place(window).group, groups.place(window).first));
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_EQ(orders[0], orders[2]);
}

// Tries all sets of limits.
TEST(ChooseLimits, LeaveTheFewestStepsOfPadding) {
  for (const int64_t longest : {60, 100}) {
    const auto lengths = some_lengths(97, longest);
    int64_t fewest = std::numeric_limits<int64_t>::max();
    for (int64_t a = 16; a <= longest; a += 8)
      for (int64_t b = 16; b <= longest; b += 8) fewest = std::min(fewest, steps_of(lengths, {a, b, longest}));
    const auto chosen = choose_limits(lengths, longest, 3);
    EXPECT_LE(chosen.size(), 3u);
    EXPECT_EQ(chosen.back(), longest);
    EXPECT_EQ(steps_of(lengths, chosen), fewest);
  }
}

TEST(ChooseLimits, OneLengthNeedsOneLimit) {
  EXPECT_EQ(choose_limits(std::vector<int32_t>(9, 32), 32, 4), std::vector<int64_t>{32});
  EXPECT_EQ(choose_limits(std::vector<int32_t>(9, 3), 5, 4), std::vector<int64_t>{5});
  EXPECT_EQ(choose_limits(some_lengths(50, 16384), 16384, 1), std::vector<int64_t>{16384});
}

TEST(SequenceLengths, CountStepsUpToTheLastThatIsNoPadding) {
  const std::vector<int32_t> ids = {1, 0, 2, 0, 0, 0, 0, 0, 3, 3, 3, 3};
  const std::vector<float> pairs = {5, 5, 5, 5, 0, 5, 5, 5, 5, 5, 5, 5};  // 3 samples of 2 steps of 2 numbers
  DataSet data;
  data.samples = 3;
  Column a, b;
  a.type = {DType::kInt32, Shape{4}};
  a.memory = reinterpret_cast<const std::byte*>(ids.data());
  b.type = {DType::kFloat32, Shape{2, 2}};
  b.memory = reinterpret_cast<const std::byte*>(pairs.data());
  data.inputs = {a, b};
  const size_t first[] = {0}, second[] = {1};
  EXPECT_EQ(*sequence_lengths(data, first, 0, 0, 3), (std::vector<int32_t>{3, 1, 4}));
  EXPECT_EQ(*sequence_lengths(data, second, 5, 0, 3), (std::vector<int32_t>{1, 1, 1}));
  EXPECT_EQ(*sequence_lengths(data, second, 0, 1, 3), (std::vector<int32_t>{2, 2}));
}

}  // namespace
}  // namespace plimsoll::engine
