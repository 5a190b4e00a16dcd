#include "data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

namespace plimsoll::engine {
namespace {

std::vector<int64_t> all_of(int64_t samples, uint64_t seed, int64_t epoch) {
  const SampleOrder order(samples, seed, epoch);
  std::vector<int64_t> result(static_cast<size_t>(samples));
  for (int64_t i = 0; i < samples; ++i) result[static_cast<size_t>(i)] = order(i);
  return result;
}

void expect_each_once(int64_t samples, uint64_t seed, int64_t epoch) {
  std::vector<bool> seen(static_cast<size_t>(samples));
  for (int64_t sample : all_of(samples, seed, epoch)) {
    ASSERT_TRUE(sample >= 0 && sample < samples) << samples;
    ASSERT_FALSE(seen[static_cast<size_t>(sample)]) << sample << " twice in " << samples;
    seen[static_cast<size_t>(sample)] = true;
  }
}

// Returns the chi-square of counts that should be equal, as a number of standard deviations from its mean.
double deviations(const std::vector<int64_t>& counts) {
  double total = 0;
  for (int64_t n : counts) total += static_cast<double>(n);
  const double expected = total / static_cast<double>(counts.size());
  double chi = 0;
  for (int64_t n : counts) chi += (static_cast<double>(n) - expected) * (static_cast<double>(n) - expected) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (chi - freedom) / std::sqrt(2 * freedom);
}

TEST(SampleOrder, HoldsEverySampleExactlyOnce) {
  for (int64_t samples = 1; samples <= 200; ++samples)
    for (uint64_t seed = 0; seed < 3; ++seed) expect_each_once(samples, seed, static_cast<int64_t>(seed) * 7);
  for (int64_t samples : {211, 1009, 4095, 4096, 4097, 65521}) expect_each_once(samples, 1, 0);
  for (int power = 8; power <= 17; ++power) expect_each_once(int64_t{1} << power, 2, 3);
  expect_each_once(1'000'003, 5, 1);
}

TEST(SampleOrder, StaysInRangeForTheLargestDataSets) {
  for (const int64_t samples : {(int64_t{1} << 46) - 1, (int64_t{1} << 53) + 1, int64_t{1} << 62}) {
    const SampleOrder order(samples, 3, 0);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 500; ++i) {
      const int64_t sample = order(samples - 1 - i);
      ASSERT_TRUE(sample >= 0 && sample < samples);
      ASSERT_TRUE(seen.insert(sample).second);
    }
  }
}

TEST(SampleOrder, DiffersByEpochAndBySeed) {
  const auto reference = all_of(1000, 42, 0);
  EXPECT_EQ(reference, all_of(1000, 42, 0));
  for (const auto& other : {all_of(1000, 42, 1), all_of(1000, 43, 0), all_of(1000, 42, int64_t{1} << 32)}) {
    int64_t same = 0;
    for (size_t i = 0; i < other.size(); ++i) same += other[i] == reference[i];
    EXPECT_LE(same, 8);  // two random orders agree at one position on average, and at more than 8 once in a million
  }
}

// A plain shuffle is uniform. 2^15 draws detect a distribution that is 0.025 away from uniform (total variation).
TEST(SampleOrder, GivesEveryPermutationOfAFewSamplesEquallyOften) {
  for (int64_t samples = 2; samples <= 5; ++samples) {
    std::map<std::vector<int64_t>, int64_t> times;
    for (uint64_t seed = 0; seed < 1 << 15; ++seed) ++times[all_of(samples, seed, static_cast<int64_t>(seed % 5))];
    const std::vector<int64_t> factorial = {1, 1, 2, 6, 24, 120};
    ASSERT_EQ(static_cast<int64_t>(times.size()), factorial[static_cast<size_t>(samples)]);
    std::vector<int64_t> counts;
    for (const auto& [order, n] : times) counts.push_back(n);
    EXPECT_LT(std::abs(deviations(counts)), 4) << samples;
  }
}

TEST(SampleOrder, SendsEveryPositionToEverySampleEquallyOften) {
  for (const int64_t samples : {10, 37, 64, 100}) {
    std::vector<int64_t> counts(static_cast<size_t>(samples * samples));
    std::vector<double> sums(static_cast<size_t>(samples));
    constexpr int kSeeds = 4000;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const auto order = all_of(samples, seed, 0);
      for (size_t i = 0; i < order.size(); ++i) {
        ++counts[i * static_cast<size_t>(samples) + static_cast<size_t>(order[i])];
        sums[i] += static_cast<double>(order[i]);
      }
    }
    EXPECT_LT(std::abs(deviations(counts)), 4) << samples;
    // The mean of kSeeds uniform draws has this standard deviation; the worst of 100 stays within 4.5 of them.
    const double n = static_cast<double>(samples), sigma = std::sqrt((n * n - 1) / 12 / kSeeds);
    for (double sum : sums) EXPECT_NEAR(sum / kSeeds, (n - 1) / 2, 4.5 * sigma) << samples;
  }
}

// A batch must be a random sample: neighbours in the order are not neighbours in the file, and batches draw from the
// whole file.
TEST(SampleOrder, LeavesNoTraceOfTheFilesOrderInLargeDataSets) {
  constexpr int64_t kSamples = 100'000, kCells = 20;
  const auto order = all_of(kSamples, 11, 2);
  std::vector<int64_t> pairs(kCells * kCells), steps(kCells);
  double product = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const int64_t a = order[static_cast<size_t>(i)], b = order[static_cast<size_t>((i + 1) % kSamples)];
    ++pairs[static_cast<size_t>(a * kCells / kSamples * kCells + b * kCells / kSamples)];
    ++steps[static_cast<size_t>(((b - a + kSamples) % kSamples) * kCells / kSamples)];
    product += (static_cast<double>(a) / kSamples - 0.5) * (static_cast<double>(i) / kSamples - 0.5);
  }
  EXPECT_LT(std::abs(deviations(pairs)), 4);
  EXPECT_LT(std::abs(deviations(steps)), 4);
  EXPECT_LT(std::abs(product / kSamples * 12), 4 / std::sqrt(kSamples));  // correlation between position and sample
}

}  // namespace
}  // namespace plimsoll::engine
