#include "data/cached_rows.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "data/reader_team.h"
#include "tests/data/files.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kElements = 3000;

// Row r holds r + i % 7 for each i, or half more.
class CountedRows final : public RowSource {
 public:
  explicit CountedRows(bool whole) : whole_(whole) {}
  Bytes bytes() const override { return 100; }
  Status read(size_t field, int64_t record, void* into) override {
    ++reads;
    if (field == 1) {
      *static_cast<int32_t*>(into) = static_cast<int32_t>(record);
      return {};
    }
    for (int64_t i = 0; i < kElements; ++i) static_cast<float*>(into)[i] = want(record, i);
    return {};
  }
  float want(int64_t record, int64_t i) const {
    return static_cast<float>(record % 200 + i % 7) + (whole_ ? 0.0F : 0.375F);
  }
  Result<std::string> digest(size_t) override { return std::string("digest"); }
  std::optional<Decoding> decoding(size_t field) const override {
    return field == 0 ? std::optional(Decoding{"test", 1e-3, whole_}) : std::nullopt;
  }

  std::atomic<int> reads = 0;

 private:
  const bool whole_;
};

class CachedRowsTest : public DataFiles {
 protected:
  static constexpr int64_t kRecords = 50;

  CacheOptions options(Bytes most = 0) const {
    CacheOptions options;
    options.when = CacheOptions::When::kAlways;
    options.most = most;
    options.folder = path(".");
    options.epochs = 3;
    return options;
  }
  CachedRows cached(const std::shared_ptr<CountedRows>& rows, const CacheOptions& with) {
    return {rows, 0, kRecords, kElements, with, [this](const std::string& text) { notes_ += text; }};
  }
  static void expect_epoch(CachedRows& cached, const CountedRows& rows, bool rounded = false) {
    std::vector<float> row(kElements);
    for (int64_t record = 0; record < kRecords; ++record) {
      const Status status = cached.read(0, record, row.data());
      ASSERT_TRUE(status) << to_text(status.error());
      for (int64_t i = 0; i < kElements; ++i)
        ASSERT_EQ(row[static_cast<size_t>(i)], rounded ? std::nearbyint(rows.want(record, i)) : rows.want(record, i));
    }
  }

  std::string notes_;
};

TEST_F(CachedRowsTest, DecodesEachRecordOnce) {
  for (const bool whole : {true, false})
    for (const bool rounds : {true, false}) {
      const auto rows = std::make_shared<CountedRows>(whole);
      CacheOptions with = options();
      with.round_pixels = rounds;
      CachedRows cache = cached(rows, with);
      for (int epoch = 0; epoch < 3; ++epoch) expect_epoch(cache, *rows, rounds);
      EXPECT_EQ(rows->reads, kRecords);
      EXPECT_EQ(cache.times().cached, 2 * kRecords);
      EXPECT_EQ(cache.plan().row_bytes, kElements * (whole || rounds ? 1 : 4));
      EXPECT_EQ(cache.plan().rounds, rounds && !whole);
    }
}

TEST_F(CachedRowsTest, PassesOtherFieldsOn) {
  const auto rows = std::make_shared<CountedRows>(true);
  CachedRows cache = cached(rows, options());
  int32_t label = 0;
  ASSERT_TRUE(cache.read(1, 17, &label));
  EXPECT_EQ(label, 17);
}

TEST_F(CachedRowsTest, TakesNoMoreThanItsLimit) {
  const auto rows = std::make_shared<CountedRows>(false);
  CachedRows cache = cached(rows, options(10 * kElements * 4 + 5));
  for (int epoch = 0; epoch < 3; ++epoch) expect_epoch(cache, *rows);
  EXPECT_EQ(rows->reads, 10 + 3 * (kRecords - 10));
  EXPECT_EQ(cache.plan().disk_bytes(), 10 * kElements * 4);
}

TEST_F(CachedRowsTest, LeavesNothingInItsFolder) {
  const auto rows = std::make_shared<CountedRows>(false);
  CachedRows cache = cached(rows, options());
  expect_epoch(cache, *rows);
  EXPECT_TRUE(names_in(path(".")).empty());
}

TEST_F(CachedRowsTest, GoesOnWithoutARoomOnTheDisk) {
  const auto rows = std::make_shared<CountedRows>(false);
  CachedRows cache = cached(rows, options());
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{20 * kElements * 4 + 100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  for (int epoch = 0; epoch < 3; ++epoch) expect_epoch(cache, *rows);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(rows->reads, 20 + 3 * (kRecords - 20));
  EXPECT_NE(notes_.find("with 20 of 50 decoded pictures in the cache"), std::string::npos) << notes_;
  EXPECT_EQ(notes_.find("note:"), notes_.rfind("note:"));  // said once
}

TEST_F(CachedRowsTest, ServesSeveralThreads) {
  const auto rows = std::make_shared<CountedRows>(false);
  CachedRows cache = cached(rows, options());
  ReaderTeam team(4);
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::vector<std::vector<float>> got(kRecords, std::vector<float>(kElements));
    ASSERT_TRUE(
        team.for_each(kRecords, [&](int64_t i) { return cache.read(0, i, got[static_cast<size_t>(i)].data()); }));
    for (int64_t r = 0; r < kRecords; ++r)
      for (int64_t i = 0; i < kElements; ++i)
        ASSERT_EQ(got[static_cast<size_t>(r)][static_cast<size_t>(i)], rows->want(r, i));
  }
  EXPECT_EQ(rows->reads, kRecords);
}

TEST_F(CachedRowsTest, HoldsTheSameMemoryWhetherItIsUsedOrNot) {
  const auto rows = std::make_shared<CountedRows>(true);
  CacheOptions unused = options();
  unused.when = CacheOptions::When::kAuto;
  unused.epochs = 1;
  EXPECT_EQ(cached(rows, unused).bytes(), cached(rows, options()).bytes());
  EXPECT_FALSE(cached(rows, unused).plan().used);
}

TEST_F(CachedRowsTest, PaysForCostlyPicturesAndSeveralEpochs) {
  CacheOptions with = options();
  with.when = CacheOptions::When::kAuto;
  with.epochs = 2;
  const Bytes room = 100 * kGiB;
  const Decoding photo{"JPEG decode", 50e-3, false}, small{"PNG decode", 20e-6, true};
  EXPECT_TRUE(plan_cache(with, photo, 1000, 224 * 224 * 3, room).used);
  EXPECT_FALSE(plan_cache(with, small, 1000, 224 * 224 * 3, room).used);
  with.epochs = 1;
  EXPECT_FALSE(plan_cache(with, photo, 1000, 224 * 224 * 3, room).used);
}

TEST(ReaderTeam, ReturnsTheErrorOfTheFirstThatFailed) {
  ReaderTeam team(3);
  for (int round = 0; round < 200; ++round) {
    const Status status = team.for_each(40, [&](int64_t i) -> Status {
      if (i >= 11) return fail(ErrorCode::kInternal, std::to_string(i));
      return {};
    });
    ASSERT_FALSE(status);
    ASSERT_EQ(status.error().what, "11");
  }
  EXPECT_TRUE(team.for_each(0, [](int64_t) { return Status(); }));
}

}  // namespace
}  // namespace plimsoll::engine
