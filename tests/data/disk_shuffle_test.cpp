#include "data/disk_shuffle.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>

#include "data/column_source.h"
#include "tests/data/files.h"

namespace plimsoll::engine {
namespace {

TEST(SampleOrder, FindsThePositionOfASample) {
  for (const int64_t samples : {1, 2, 3, 5, 7, 100, 1023, 1024, 4097, 65521})
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const SampleOrder order(samples, seed, 4);
      for (int64_t i = 0; i < samples; ++i) ASSERT_EQ(order.position_of(order(i)), i) << samples;
    }
}

// Records of 40 floats that all hold the record's number; the label is the number, the weight half of it.
class DiskShuffleTest : public DataFiles {
 protected:
  static constexpr int64_t kWidth = 40;

  DataSet data(int64_t samples) const {
    std::vector<float> x, w;
    for (int64_t i = 0; i < samples; ++i) {
      x.insert(x.end(), kWidth, static_cast<float>(i));
      w.push_back(static_cast<float>(i) / 2);
    }
    const std::string argument = npy<float>("x.npy", {samples, kWidth}, x) + "," +
                                 npy<int32_t>("y.npy", {samples}, counting<int32_t>(samples)) + "," +
                                 npy<float>("w.npy", {samples}, w);
    auto opened = open_data(argument, one_in_one_out({kWidth}, samples));
    EXPECT_TRUE(opened) << to_text(opened.error());
    return *opened;
  }

  ShuffleOptions by_disk() const {
    ShuffleOptions options;
    options.by = ShuffleOptions::By::kDisk;
    options.folder = path(".");
    return options;
  }

  ColumnSource source(const DataSet& set, uint64_t seed, bool disk, int64_t begin = 0, int64_t end = -1) const {
    SourceOptions options;
    options.begin = begin;
    options.end = end;
    options.shuffle = true;
    options.seed = seed;
    if (disk) options.plan = plan_shuffle(by_disk(), set, (end < 0 ? set.samples : end) - begin);
    EXPECT_TRUE(!disk || options.plan->by_disk);
    options.note = [this](const std::string& text) { notes_ += text; };
    auto made = ColumnSource::create(set, std::move(options));
    EXPECT_TRUE(made) << to_text(made.error());
    return std::move(*made);
  }

  // The numbers of the records at positions first .. first+count-1. Checks that the parts of a record belong together.
  static std::vector<int32_t> read(ColumnSource& source, int64_t epoch, int64_t first, int64_t count) {
    std::vector<float> x(static_cast<size_t>(count * kWidth)), w(static_cast<size_t>(count));
    std::vector<int32_t> y(static_cast<size_t>(count));
    const Status status = source.read(epoch, first, count, {{x.data()}, {y.data()}, {w.data()}});
    EXPECT_TRUE(status) << to_text(status.error());
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(x[i * kWidth], static_cast<float>(y[i]));
      EXPECT_EQ(x[i * kWidth + kWidth - 1], static_cast<float>(y[i]));
      EXPECT_EQ(w[i], static_cast<float>(y[i]) / 2);
    }
    return y;
  }

  mutable std::string notes_;
};

TEST_F(DiskShuffleTest, GivesTheEpochsThatReadingByIndexGives) {
  const DataSet set = data(5000);
  ColumnSource index = source(set, 3, false), disk = source(set, 3, true);
  for (int64_t epoch = 0; epoch < 3; ++epoch)
    for (int64_t first = 0; first < 5000; first += 700) {
      const int64_t count = std::min<int64_t>(700, 5000 - first);
      ASSERT_EQ(read(disk, epoch, first, count), read(index, epoch, first, count));
    }
}

TEST_F(DiskShuffleTest, ShufflesAPartOfTheData) {
  const DataSet set = data(3000);
  ColumnSource index = source(set, 1, false, 500, 2100), disk = source(set, 1, true, 500, 2100);
  ASSERT_EQ(read(disk, 2, 0, 1600), read(index, 2, 0, 1600));
}

TEST_F(DiskShuffleTest, GoesOnInTheMiddleOfAnEpoch) {
  const DataSet set = data(4000);
  ColumnSource whole = source(set, 7, true);
  const auto all = read(whole, 5, 0, 4000);
  for (const int64_t from : {1, 1234, 3999}) {
    ColumnSource resumed = source(set, 7, true);
    const auto rest = read(resumed, 5, from, 4000 - from);
    ASSERT_TRUE(std::equal(rest.begin(), rest.end(), all.begin() + from));
    ASSERT_EQ(read(resumed, 5, 0, 10), std::vector<int32_t>(all.begin(), all.begin() + 10));  // and back
  }
}

// Each record's position, over many seeds, is uniform: the mean and the spread of a uniform distribution, and no more
// neighbours than chance gives.
TEST_F(DiskShuffleTest, IsUniformOverTheWholeSet) {
  constexpr int64_t kSamples = 600, kSeeds = 400;
  const DataSet set = data(kSamples);
  std::vector<double> of_first, of_last;
  int64_t neighbours = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    ColumnSource disk = source(set, seed, true);
    const auto order = read(disk, 0, 0, kSamples);
    auto sorted = order;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(sorted, counting<int32_t>(kSamples));  // each exactly once
    for (int64_t i = 0; i < kSamples; ++i) {
      if (order[static_cast<size_t>(i)] == 0) of_first.push_back(static_cast<double>(i));
      if (order[static_cast<size_t>(i)] == kSamples - 1) of_last.push_back(static_cast<double>(i));
      if (i > 0 && order[static_cast<size_t>(i)] == order[static_cast<size_t>(i - 1)] + 1) ++neighbours;
    }
  }
  for (const auto& positions : {of_first, of_last}) {
    double mean = 0, square = 0;
    for (const double p : positions) mean += p / kSeeds;
    for (const double p : positions) square += (p - mean) * (p - mean) / kSeeds;
    const double spread = kSamples / std::sqrt(12.0);
    EXPECT_NEAR(mean, (kSamples - 1) / 2.0, 4 * spread / std::sqrt(kSeeds));
    EXPECT_NEAR(std::sqrt(square), spread, 0.15 * spread);
  }
  EXPECT_NEAR(static_cast<double>(neighbours) / kSeeds, 1, 4 / std::sqrt(static_cast<double>(kSeeds)));
}

TEST_F(DiskShuffleTest, HoldsTheMemoryThatItsPlanSays) {
  const ShufflePlan plan = plan_shuffle(by_disk(), 5'000'000, 1000, 2);
  EXPECT_LT(plan.memory_bytes(), 64 * kMiB);  // of 5 GB
  EXPECT_GE(plan.disk_bytes(), int64_t{5'000'000} * 1004);
  EXPECT_LT(plan.disk_bytes(), int64_t{5'100'000} * 1004);
}

TEST_F(DiskShuffleTest, IsChosenWhereItIsFasterAndTheDataDoNotStayInMemory) {
  ShuffleOptions options = by_disk();
  options.by = ShuffleOptions::By::kAuto;
  EXPECT_TRUE(plan_shuffle(options, 5'000'000, 1000, 2).by_disk);
  EXPECT_FALSE(plan_shuffle(options, 5'000, 1'000'000, 2).by_disk);  // large records
  options.page_room = 6 * kGiB;
  EXPECT_FALSE(plan_shuffle(options, 5'000'000, 1000, 2).by_disk);
}

TEST_F(DiskShuffleTest, ReadsByIndexIfTheDiskIsFull) {
  const DataSet set = data(5000);
  ColumnSource index = source(set, 3, false), disk = source(set, 3, true);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{100'000, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const auto got = read(disk, 0, 0, 5000);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(got, read(index, 0, 0, 5000));
  EXPECT_NE(notes_.find("read by index, in the same order"), std::string::npos) << notes_;
}

}  // namespace
}  // namespace plimsoll::engine
