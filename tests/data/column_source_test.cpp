#include "data/column_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/data/files.h"

namespace plimsoll::engine {
namespace {

struct Batch {
  std::vector<float> x, weights;
  std::vector<int32_t> y;
};

// N samples: x is {10 i, 10 i + 1} and the label is i % 3, so that a test can check that the parts of a sample belong
// together.
class ColumnSourceTest : public DataFiles {
 protected:
  static constexpr int64_t kSamples = 100;

  void SetUp() override {
    DataFiles::SetUp();
    for (int64_t i = 0; i < kSamples; ++i) {
      x_.insert(x_.end(), {static_cast<float>(10 * i), static_cast<float>(10 * i + 1)});
      y_.push_back(static_cast<int32_t>(i % 3));
      w_.push_back(static_cast<double>(i) / 4);
    }
  }

  DataSet files(bool weights = false) const {
    std::string argument = npy<float>("x.npy", {kSamples, 2}, x_) + "," + npy<int32_t>("y.npy", {kSamples}, y_);
    if (weights) argument += "," + npy<double>("w.npy", {kSamples}, w_);
    auto data = open_data(argument, one_in_one_out({2}, 3));
    EXPECT_TRUE(data) << to_text(data.error());
    return *data;
  }

  static ColumnSource source(DataSet data, SourceOptions options) {
    auto made = ColumnSource::create(std::move(data), std::move(options));
    EXPECT_TRUE(made) << to_text(made.error());
    return std::move(*made);
  }

  static Result<Batch> read(BatchSource& source, int64_t epoch, int64_t first, int64_t count) {
    Batch batch;
    batch.x.resize(static_cast<size_t>(2 * count));
    batch.y.resize(static_cast<size_t>(count));
    BatchBuffers into{{batch.x.data()}, {batch.y.data()}, {}};
    if (source.has_weights()) {
      batch.weights.resize(static_cast<size_t>(count));
      into.weights = {batch.weights.data()};
    }
    PLIMSOLL_TRY(source.read(epoch, first, count, into));
    return batch;
  }

  static std::vector<int64_t> order(BatchSource& source, int64_t epoch) {
    const auto batch = read(source, epoch, 0, source.samples());
    EXPECT_TRUE(batch) << to_text(batch.error());
    std::vector<int64_t> samples;
    for (size_t i = 0; i < batch->y.size(); ++i) {
      const auto sample = static_cast<int64_t>(batch->x[2 * i]) / 10;
      EXPECT_EQ(batch->x[2 * i + 1], batch->x[2 * i] + 1);
      EXPECT_EQ(batch->y[i], sample % 3);
      samples.push_back(sample);
    }
    return samples;
  }

  static SourceOptions shuffled(uint64_t seed) {
    SourceOptions options;
    options.shuffle = true;
    options.seed = seed;
    return options;
  }

  std::vector<float> x_;
  std::vector<int32_t> y_;
  std::vector<double> w_;
};

TEST_F(ColumnSourceTest, ReadsInTheOrderOfTheFileWithoutShuffling) {
  auto made = source(files(), {});
  EXPECT_EQ(made.samples(), kSamples);
  EXPECT_FALSE(made.has_weights());
  for (int64_t epoch : {0, 1}) EXPECT_EQ(order(made, epoch), counting<int64_t>(kSamples));
}

TEST_F(ColumnSourceTest, ShufflesWholeSamplesAnewEachEpoch) {
  auto made = source(files(), shuffled(7));
  const auto first = order(made, 0), second = order(made, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, order(made, 0));
  for (auto samples : {first, second}) {
    EXPECT_NE(samples, counting<int64_t>(kSamples));
    std::sort(samples.begin(), samples.end());
    EXPECT_EQ(samples, counting<int64_t>(kSamples));
  }
  auto other = source(files(), shuffled(8));
  EXPECT_NE(first, order(other, 0));
}

TEST_F(ColumnSourceTest, YieldsTheSameSamplesHoweverAnEpochIsCut) {
  for (const bool shuffle : {false, true}) {
    auto options = shuffled(3);
    options.shuffle = shuffle;
    options.class_weights = *ClassWeights::parse("1:2");
    auto made = source(files(true), options);
    const auto whole = *read(made, 5, 0, kSamples);
    for (const int64_t cut : {1, 7, 32, 96, 99}) {
      Batch joined;
      for (int64_t first = 0; first < kSamples; first += cut) {
        const auto part = *read(made, 5, first, std::min(cut, kSamples - first));
        joined.x.insert(joined.x.end(), part.x.begin(), part.x.end());
        joined.y.insert(joined.y.end(), part.y.begin(), part.y.end());
        joined.weights.insert(joined.weights.end(), part.weights.begin(), part.weights.end());
      }
      EXPECT_EQ(joined.x, whole.x);
      EXPECT_EQ(joined.y, whole.y);
      EXPECT_EQ(joined.weights, whole.weights);
    }
  }
}

TEST_F(ColumnSourceTest, KeepsToItsRange) {
  const int64_t at = *validation_split_at(kSamples, 0.3);
  auto train_options = shuffled(1);
  train_options.end = at;
  SourceOptions rest;
  rest.begin = at;
  auto train = source(files(), train_options), validate = source(files(), rest);
  EXPECT_EQ(train.samples(), 70);
  auto seen = order(train, 0);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, counting<int64_t>(70));
  std::vector<int64_t> last(30);
  std::iota(last.begin(), last.end(), 70);
  EXPECT_EQ(order(validate, 0), last);
}

TEST_F(ColumnSourceTest, ReadsMemoryAsItReadsFiles) {
  MemoryArrays arrays;
  arrays.inputs = {{"x", x_.data(), DType::kFloat32, {kSamples, 2}}};
  arrays.targets = {{"y", y_.data(), DType::kInt32, {kSamples}}};
  arrays.weights = {{"w", w_.data(), DType::kFloat64, {kSamples}}};
  auto in_memory = source(*wrap_data(arrays, one_in_one_out({2}, 3)), shuffled(9));
  auto in_files = source(files(true), shuffled(9));
  const auto a = *read(in_memory, 2, 10, 77), b = *read(in_files, 2, 10, 77);
  EXPECT_EQ(a.x, b.x);
  EXPECT_EQ(a.y, b.y);
  EXPECT_EQ(a.weights, b.weights);
}

TEST_F(ColumnSourceTest, ConvertsWeightsAndFoldsClassWeightsIn) {
  SourceOptions options;
  options.class_weights = *ClassWeights::parse("1:5,2:0.5");
  auto both = source(files(true), options), classes = source(files(), options), plain = source(files(true), {});
  const auto a = *read(both, 0, 0, kSamples), b = *read(classes, 0, 0, kSamples), c = *read(plain, 0, 0, kSamples);
  const float by_class[] = {1, 5, 0.5f};
  for (size_t i = 0; i < kSamples; ++i) {
    EXPECT_EQ(c.weights[i], static_cast<float>(i) / 4);
    EXPECT_EQ(b.weights[i], by_class[i % 3]);
    EXPECT_EQ(a.weights[i], static_cast<float>(i) / 4 * by_class[i % 3]);
  }
}

TEST_F(ColumnSourceTest, ConvertsMoreWeightsThanOnePieceHolds) {
  constexpr int64_t kMany = 1500;  // 12000 bytes of float64
  w_ = counting<double>(kMany);
  const std::vector<float> x(2 * kMany);
  const std::vector<int32_t> y(kMany);
  MemoryArrays arrays{{{"x", x.data(), DType::kFloat32, {kMany, 2}}},
                      {{"y", y.data(), DType::kInt32, {kMany}}},
                      {{"w", w_.data(), DType::kFloat64, {kMany}}}};
  auto made = source(*wrap_data(arrays, one_in_one_out({2}, 3)), {});
  EXPECT_EQ(read(made, 0, 0, kMany)->weights, counting<float>(kMany));
}

TEST_F(ColumnSourceTest, GivesOnesToAnOutputWithoutWeights) {
  DataSpec spec = one_in_one_out({2}, 3);
  spec.outputs.push_back(spec.outputs[0]);
  spec.outputs[1].name = "again";
  const auto y = npy_text<int32_t>({kSamples}, y_);
  auto made = source(*open_data(npz("d.npz", {{"x", npy_text<float>({kSamples, 2}, x_)},
                                              {"digit", y},
                                              {"again", y},
                                              {"sample_weight_again", npy_text<double>({kSamples}, w_)}}),
                                spec),
                     shuffled(1));
  std::vector<float> x(2 * 4), ones(4), weights(4);
  std::vector<int32_t> a(4), b(4);
  ASSERT_TRUE(made.read(0, 0, 4, {{x.data()}, {a.data(), b.data()}, {ones.data(), weights.data()}}));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(ones[i], 1);
    EXPECT_EQ(weights[i], x[2 * i] / 40);
  }
}

TEST_F(ColumnSourceTest, LeavesOutWhatTheCallerHasNoBufferFor) {
  auto made = source(files(true), shuffled(2));
  std::vector<float> x(2 * 5);
  ASSERT_TRUE(made.read(0, 3, 5, {{x.data()}, {}, {}}));
  EXPECT_EQ(x, read(made, 0, 3, 5)->x);
}

TEST_F(ColumnSourceTest, NamesTheSampleThatIsNotFinite) {
  x_[2 * 61 + 1] = std::numeric_limits<float>::quiet_NaN();
  for (const bool shuffle : {false, true}) {
    auto options = shuffled(4);
    options.shuffle = shuffle;
    auto made = source(files(), options);
    const auto batch = read(made, 0, 0, kSamples);
    ASSERT_FALSE(batch);
    EXPECT_EQ(batch.error().code, ErrorCode::kDataNotFinite);
    EXPECT_EQ(batch.error().what, path("x.npy") + ": sample 61 holds nan at (1,)");
  }
  SourceOptions behind;
  behind.begin = 50;  // still counted from the beginning of the file
  auto made = source(files(), behind);
  EXPECT_TRUE(read(made, 0, 0, 11));
  EXPECT_EQ(read(made, 0, 10, 5).error().what, path("x.npy") + ": sample 61 holds nan at (1,)");
}

TEST_F(ColumnSourceTest, NamesTargetsAndWeightsThatAreNotFinite) {
  w_[99] = -std::numeric_limits<double>::infinity();
  auto made = source(files(true), {});
  EXPECT_TRUE(read(made, 0, 0, 99));
  EXPECT_EQ(read(made, 0, 90, 10).error().what, path("w.npy") + ": sample 99 holds -inf");

  DataSpec spec = one_in_one_out({2}, 3);
  spec.outputs[0].sparse_labels = false;
  spec.outputs[0].target = {2, 3};
  std::vector<float> y(6 * kSamples);
  y[6 * 5 + 4] = std::numeric_limits<float>::infinity();
  auto regression = source(*open_data(path("x.npy") + "," + npy<float>("y.npy", {kSamples, 2, 3}, y), spec), {});
  std::vector<float> x(2 * kSamples), targets(6 * kSamples);
  const auto status = regression.read(0, 0, kSamples, {{x.data()}, {targets.data()}, {}});
  EXPECT_EQ(status.error().what, path("y.npy") + ": sample 5 holds inf at (1, 1)");
}

TEST_F(ColumnSourceTest, NamesTheLabelThatIsOutOfRange) {
  y_[17] = 3;
  auto made = source(files(), shuffled(6));
  const auto error = read(made, 0, 0, kSamples).error();
  EXPECT_EQ(error.code, ErrorCode::kLabelOutOfRange);
  EXPECT_EQ(error.what, path("y.npy") + ": sample 17 has the label 3");
  EXPECT_EQ(error.facts[0], "the output has 3 classes: labels are whole numbers from 0 to 2");
  EXPECT_EQ(error.remedies[0], "if the labels count from 1, subtract 1");
  y_[17] = -1;
  made = source(files(), {});
  EXPECT_EQ(read(made, 0, 16, 4).error().what, path("y.npy") + ": sample 17 has the label -1");
}

TEST_F(ColumnSourceTest, TakesFloatingLabelsThatAreWhole) {
  npy<float>("x.npy", {kSamples, 2}, x_);
  std::vector<float> labels(kSamples, 2);
  const auto with_labels = [&] {
    return source(*open_data(path("x.npy") + "," + npy<float>("y.npy", {kSamples, 1}, labels), one_in_one_out({2}, 3)),
                  {});
  };
  auto made = with_labels();
  EXPECT_TRUE(read(made, 0, 0, kSamples));
  labels[40] = 1.5f;
  made = with_labels();
  EXPECT_EQ(read(made, 0, 0, kSamples).error().what, path("y.npy") + ": sample 40 has the label 1.5");
  labels[40] = std::numeric_limits<float>::quiet_NaN();
  made = with_labels();
  EXPECT_EQ(read(made, 0, 0, kSamples).error().code, ErrorCode::kDataNotFinite);
}

TEST_F(ColumnSourceTest, ReportsAFileThatShrankMeanwhile) {
  auto made = source(files(), {});
  std::filesystem::resize_file(path("x.npy"), std::filesystem::file_size(path("x.npy")) - 8);
  EXPECT_TRUE(read(made, 0, 0, kSamples - 1));
  const auto batch = read(made, 0, kSamples - 1, 1);
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ErrorCode::kFileUnreadable);
}

TEST_F(ColumnSourceTest, RefusesClassWeightsWithoutOneClassASample) {
  SourceOptions options;
  options.class_weights = *ClassWeights::parse("0:2");
  const auto refusal = [&](DataSet data) { return ColumnSource::create(std::move(data), options).error(); };
  DataSet two = files();
  two.targets.push_back(two.targets[0]);
  EXPECT_EQ(refusal(two).code, ErrorCode::kUsage);
  EXPECT_EQ(refusal(two).what, "--class-weight is for models with one output; this one has 2");
  DataSet none = files();
  none.targets.clear();
  EXPECT_EQ(refusal(none).what, "--class-weight needs data with targets");
  DataSet sequence = files();
  sequence.targets[0].type.shape = {5};
  EXPECT_EQ(refusal(sequence).what,
            "--class-weight needs one class per sample; a target of " + path("y.npy") + " has the shape 5");
  sequence.targets[0].role = Role::kTarget;
  EXPECT_TRUE(ColumnSource::create(sequence, options));
}

}  // namespace
}  // namespace plimsoll::engine
