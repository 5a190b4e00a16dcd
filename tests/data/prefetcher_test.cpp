#include "data/prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "data/column_source.h"
#include "data/random.h"
#include "tests/data/allocations.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kSamples = 100, kBatch = 32;

class PrefetcherTest : public testing::Test {
 protected:
  ColumnSource source() const {
    DataSpec spec;
    spec.inputs = {{"x", {3}, false, 0, {}}};
    spec.outputs = {{"y", {4}, true, 4, {}}};
    MemoryArrays arrays;
    arrays.inputs = {{"x", x_.data(), DType::kFloat32, {kSamples, 3}}};
    arrays.targets = {{"y", y_.data(), DType::kInt32, {kSamples}}};
    SourceOptions options;
    options.shuffle = true;
    options.seed = 5;
    options.class_weights = *ClassWeights::parse("0:3,2:0.5");
    return *ColumnSource::create(*wrap_data(arrays, spec), options);
  }

  // Three epochs; each ends with a batch of 4.
  static Schedule three_epochs() {
    return [epoch = int64_t{0}, first = int64_t{0}]() mutable -> std::optional<BatchRequest> {
      if (epoch == 3) return std::nullopt;
      const BatchRequest request{epoch, first, std::min(kBatch, kSamples - first)};
      first += request.count;
      if (first == kSamples) ++epoch, first = 0;
      return request;
    };
  }

  std::unique_ptr<Prefetcher> start(BatchSource& source, int depth, Schedule schedule) {
    const Bytes bytes = Prefetcher::staging_bytes(source, depth, kBatch);
    staging_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(bytes + kAlignment))));
    std::memset(staging_.get() + bytes, 0x5A, kAlignment);
    auto started =
        Prefetcher::start(source, std::move(schedule), depth, kBatch, {staging_.get(), static_cast<size_t>(bytes)});
    EXPECT_TRUE(started) << to_text(started.error());
    return std::move(*started);
  }

  struct Destination {
    std::vector<float> x = std::vector<float>(3 * kBatch), weights = std::vector<float>(kBatch);
    std::vector<int32_t> y = std::vector<int32_t>(kBatch);
    BatchBuffers buffers{{x.data()}, {y.data()}, {weights.data()}};

    std::string bytes(int64_t count) const {
      std::string text(reinterpret_cast<const char*>(x.data()), static_cast<size_t>(count) * 12);
      text.append(reinterpret_cast<const char*>(y.data()), static_cast<size_t>(count) * 4);
      return text.append(reinterpret_cast<const char*>(weights.data()), static_cast<size_t>(count) * 4);
    }
  };

  std::vector<float> x_ = random_uniform({kSamples, 3}, 1);
  std::vector<int32_t> y_ = random_integers(4, kSamples, 2);
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> staging_;
};

TEST_F(PrefetcherTest, YieldsTheSameBytesAtEveryDepth) {
  auto from = source();
  Destination expected, got;
  for (const int depth : {0, 1, 2, 5}) {
    auto prefetcher = start(from, depth, three_epochs());
    auto schedule = three_epochs();
    while (const auto request = schedule()) {
      ASSERT_TRUE(from.read(request->epoch, request->first, request->count, expected.buffers));
      const auto served = prefetcher->next(got.buffers);
      ASSERT_TRUE(served);
      EXPECT_EQ(*served, *request) << depth;
      ASSERT_EQ(got.bytes(request->count), expected.bytes(request->count)) << depth;
    }
  }
}

TEST_F(PrefetcherTest, HandsBatchesOverInPlace) {
  auto from = source();
  Destination expected;
  auto prefetcher = start(from, 2, three_epochs());
  auto schedule = three_epochs();
  while (const auto request = schedule()) {
    ASSERT_TRUE(from.read(request->epoch, request->first, request->count, expected.buffers));
    const auto batch = prefetcher->acquire();
    ASSERT_TRUE(batch);
    ASSERT_NE(*batch, nullptr);
    EXPECT_EQ((*batch)->request.first, request->first);
    EXPECT_EQ((*batch)->request.epoch, request->epoch);
    const auto count = static_cast<size_t>(request->count);
    EXPECT_EQ(std::memcmp((*batch)->buffers.inputs[0], expected.x.data(), count * 12), 0);
    EXPECT_EQ(std::memcmp((*batch)->buffers.targets[0], expected.y.data(), count * 4), 0);
    EXPECT_EQ(std::memcmp((*batch)->buffers.weights[0], expected.weights.data(), count * 4), 0);
    prefetcher->release();
  }
  const auto after = prefetcher->acquire();
  ASSERT_TRUE(after);
  EXPECT_EQ(*after, nullptr);
}

TEST_F(PrefetcherTest, StaysInsideTheStagingItAskedFor) {
  auto from = source();
  for (const int depth : {1, 3}) {
    const Bytes bytes = Prefetcher::staging_bytes(from, depth, kBatch);
    // x, y and weights, each aligned to kAlignment.
    EXPECT_EQ(bytes, depth * (align_up(kBatch * 12) + align_up(kBatch * 4) + align_up(kBatch * 4)));
    EXPECT_EQ(Prefetcher::buffer_bytes(from, depth, kBatch), bytes + 256 * kKiB);
    Destination got;
    auto prefetcher = start(from, depth, three_epochs());
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(prefetcher->next(got.buffers));
    prefetcher.reset();
    for (int i = 0; i < kAlignment; ++i) ASSERT_EQ(staging_.get()[bytes + i], std::byte{0x5A});
  }
  EXPECT_EQ(Prefetcher::buffer_bytes(from, 0, kBatch), 0);
}

TEST_F(PrefetcherTest, ReportsAnErrorInItsPlaceAndFromThenOn) {
  x_[3 * 50] = std::numeric_limits<float>::infinity();
  auto from = source();
  Destination got;
  for (const int depth : {0, 1, 4}) {
    auto prefetcher = start(from, depth, three_epochs());
    auto schedule = three_epochs();
    bool failed = false;
    for (int i = 0; i < 6; ++i) {
      const auto request = schedule();
      const bool good = from.read(request->epoch, request->first, request->count, got.buffers).has_value();
      failed = failed || !good;
      const auto status = prefetcher->next(got.buffers);
      ASSERT_EQ(status.has_value(), !failed) << depth << " " << i;
      if (failed) {
        EXPECT_EQ(status.error().what, "x: sample 50 holds inf at (0,)");
      }
    }
    EXPECT_TRUE(failed);
  }
}

TEST_F(PrefetcherTest, AllocatesNothingAfterItsStart) {
  auto from = source();
  for (const int depth : {0, 1, 3}) {
    Destination got;
    auto prefetcher = start(from, depth, three_epochs());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(prefetcher->next(got.buffers));
    const int64_t before = allocations_so_far();
    for (int i = 2; i < 12; ++i)
      if (!prefetcher->next(got.buffers)) break;
    EXPECT_EQ(allocations_so_far(), before) << depth;
  }
}

TEST_F(PrefetcherTest, ReadsAheadAsFarAsItsDepthAndNoFurther) {
  auto from = source();
  std::atomic<int> asked{0};
  auto prefetcher = start(from, 2, [&, inner = three_epochs()]() mutable {
    ++asked;
    return inner();
  });
  const auto settles_at = [&](int expected) {
    for (int i = 0; i < 2000 && asked < expected; ++i) std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return asked == expected;
  };
  EXPECT_TRUE(settles_at(2));
  Destination got;
  ASSERT_TRUE(prefetcher->next(got.buffers));
  EXPECT_TRUE(settles_at(3));
}

TEST_F(PrefetcherTest, StopsWhenNobodyWantsTheRest) {
  auto from = source();
  for (int taken = 0; taken < 4; ++taken) {
    auto prefetcher = start(from, 2, three_epochs());
    Destination got;
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(prefetcher->next(got.buffers));
  }
}

// A number from a checkpoint reaches the source unchanged, so a bad one must be an error in a release build too.
TEST_F(PrefetcherTest, SamplesThatAreNotThereAreAnError) {
  constexpr int64_t kFar = int64_t{1} << 62;
  const std::vector<BatchRequest> requests = {{0, -1, 4},   {0, -kFar, 4},  {0, kSamples, 1},  {0, 97, 4},
                                              {0, 0, 0},    {0, 0, -8},     {0, kFar, kBatch}, {0, 0, kBatch + 1},
                                              {0, 0, kFar}, {0, kFar, kFar}};
  for (const int depth : {0, 1, 2})
    for (const BatchRequest& request : requests) {
      auto from = source();
      const auto prefetcher = start(from, depth, [&] { return std::optional(request); });
      Destination destination;
      const auto status = prefetcher->next(destination.buffers);
      ASSERT_FALSE(status) << depth << ": " << request.first << ", " << request.count;
      EXPECT_EQ(status.error().code, ErrorCode::kInternal);
    }
}

TEST_F(PrefetcherTest, ABatchAfterTheLastIsAnError) {
  for (const int depth : {0, 1}) {
    auto from = source();
    const auto prefetcher = start(from, depth, [] { return std::optional<BatchRequest>(); });
    Destination destination;
    EXPECT_FALSE(prefetcher->next(destination.buffers));
  }
}

TEST_F(PrefetcherTest, RoomThatIsTooSmallIsAnError) {
  auto from = source();
  std::vector<std::byte> little(64);
  EXPECT_FALSE(Prefetcher::start(from, three_epochs(), 2, kBatch, little));
}

}  // namespace
}  // namespace plimsoll::engine
