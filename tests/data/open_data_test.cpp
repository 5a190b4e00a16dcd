#include <gtest/gtest.h>

#include <cmath>

#include "data/dataset.h"
#include "tests/data/files.h"

namespace plimsoll::engine {
namespace {

class OpenData : public DataFiles {
 protected:
  const DataSpec spec_ = one_in_one_out({4, 4, 1}, 10);
  const std::string x_ = "x.npy", y_ = "y.npy";

  void write_pair(const std::vector<int64_t>& x_dims = {3, 4, 4, 1}, const std::vector<int64_t>& y_dims = {3}) const {
    const auto size = [](const auto& dims) { return ArraySource{"", "", 0, DType::kUInt8, dims}.bytes(); };
    npy<float>(x_, x_dims, counting<float>(size(x_dims)));
    npy<int64_t>(y_, y_dims, counting<int64_t>(size(y_dims)));
  }
  std::string pair() const { return path(x_) + "," + path(y_); }
  static PortSpec port(const char* name) { return {name, {}, false, 0, {}}; }
  Error error_of(const std::string& argument, const DataSpec& spec) const {
    const auto data = open_data(argument, spec);
    EXPECT_FALSE(data) << argument;
    return data ? Error{} : data.error();
  }
};

TEST_F(OpenData, TakesAPairOfNpyFiles) {
  write_pair();
  const auto data = open_data(pair(), spec_);
  ASSERT_TRUE(data) << to_text(data.error());
  EXPECT_EQ(data->samples, 3);
  EXPECT_EQ(data->inputs[0].type, (TensorType{DType::kFloat32, {4, 4, 1}}));
  EXPECT_EQ(data->targets[0].type, (TensorType{DType::kInt64, {}}));
  EXPECT_EQ(data->targets[0].role, Role::kLabels);
  EXPECT_TRUE(data->weights.empty());
  float row[16];
  ASSERT_TRUE(data->inputs[0].read(2, 1, row));
  EXPECT_EQ(row[0], 32);
  EXPECT_EQ(row[15], 47);
}

TEST_F(OpenData, TakesAThirdFileAsSampleWeights) {
  write_pair();
  const auto weights = npy<double>("w.npy", {3, 1}, {1, 2, 3});
  const auto data = open_data(pair() + "," + weights, spec_);
  ASSERT_TRUE(data) << to_text(data.error());
  ASSERT_EQ(data->weights.size(), 1u);
  EXPECT_EQ(data->weights[0].type.dtype, DType::kFloat64);
}

// Keras adds or drops one trailing dimension of 1 (Functional._adjust_input_rank, squeeze_or_expand_to_same_rank).
TEST_F(OpenData, AllowsOneTrailingDimensionOfOneMoreOrLess) {
  write_pair({3, 4, 4}, {3, 1});
  EXPECT_TRUE(open_data(pair(), spec_));
  write_pair({3, 4, 4, 1, 1}, {3});
  EXPECT_TRUE(open_data(pair(), spec_));
  write_pair({3, 1, 4, 4}, {3});
  EXPECT_EQ(error_of(pair(), spec_).code, ErrorCode::kDataShape);
  write_pair({3, 4, 4}, {3, 1, 1});
  EXPECT_EQ(error_of(pair(), spec_).code, ErrorCode::kDataShape);
}

TEST_F(OpenData, TakesIdxPairsPlainAndGzipped) {
  for (const std::string suffix : {"", ".gz"}) {
    const auto images = idx("images-idx3-ubyte" + suffix, {3, 4, 4}, counting<uint8_t>(48));
    const auto labels = idx("labels-idx1-ubyte" + suffix, {3}, {7, 8, 9});
    const auto data = open_data(images + "," + labels, spec_);
    ASSERT_TRUE(data) << to_text(data.error());
    EXPECT_EQ(data->inputs[0].type, (TensorType{DType::kUInt8, {4, 4, 1}}));
    uint8_t row[16], label[3];
    ASSERT_TRUE(data->inputs[0].read(1, 1, row));
    EXPECT_EQ(row[15], 31);
    ASSERT_TRUE(data->targets[0].read(0, 3, label));
    EXPECT_EQ(label[2], 9);
  }
}

TEST_F(OpenData, TellsFormatsApartByTheirFirstBytesWhereTheNameSaysNothing) {
  const auto images = idx("images", {3, 4, 4}, counting<uint8_t>(48));
  const auto labels = npy<uint8_t>("labels", {3}, {7, 8, 9});
  EXPECT_TRUE(open_data(images + "," + labels, spec_));
  const auto text = write("notes.txt", "no data");
  const auto error = error_of(text + "," + labels, spec_);
  EXPECT_EQ(error.code, ErrorCode::kBadDataFile);
  EXPECT_EQ(error.what, text + " is not a supported data file");
}

TEST_F(OpenData, TakesAFileWhoseNameHasAComma) {
  const auto file = npy<float>("x,1.npy", {3, 4, 4, 1}, counting<float>(48));
  DataSpec spec = spec_;
  spec.needs_targets = false;
  EXPECT_TRUE(open_data(file, spec));
}

TEST_F(OpenData, TakesAnNpzByShortNamesAndByPortNames) {
  const auto x = npy_text<float>({3, 4, 4, 1}, counting<float>(48));
  const auto y = npy_text<int32_t>({3}, {1, 2, 3});
  const auto w = npy_text<float>({3}, {1, 1, 2});
  for (const auto& [x_name, y_name] : {std::pair{"x", "y"}, std::pair{"image", "digit"}}) {
    const auto data = open_data(npz("data.npz", {{x_name, x}, {y_name, y}, {"sample_weight", w}}), spec_);
    ASSERT_TRUE(data) << to_text(data.error());
    EXPECT_EQ(data->weights.size(), 1u);
    EXPECT_EQ(data->inputs[0].label, path("data.npz") + ": " + x_name);
    EXPECT_EQ(data->inputs[0].file, data->targets[0].file);  // they share one descriptor
    int32_t labels[3];
    ASSERT_TRUE(data->targets[0].read(0, 3, labels));
    EXPECT_EQ(labels[2], 3);
  }
}

TEST_F(OpenData, MatchesSeveralInputsAndOutputsByName) {
  DataSpec spec;
  spec.inputs = {{"left", {2}, false, 0, {}}, {"right", {3}, false, 0, {}}};
  spec.outputs = {{"a", {1}, false, 0, {1}}, {"b", {5}, true, 5, {}}};
  std::vector<std::pair<std::string, std::string>> arrays = {{"b", npy_text<uint8_t>({2}, {4, 0})},
                                                             {"right", npy_text<float>({2, 3}, counting<float>(6))},
                                                             {"a", npy_text<float>({2}, {0, 1})},
                                                             {"left", npy_text<float>({2, 2}, counting<float>(4))},
                                                             {"sample_weight_b", npy_text<float>({2}, {3, 4})}};
  const auto data = open_data(npz("data.npz", arrays), spec);
  ASSERT_TRUE(data) << to_text(data.error());
  EXPECT_EQ(data->inputs[1].type.shape, (Shape{3}));
  EXPECT_EQ(data->targets[0].type.shape, (Shape{1}));
  EXPECT_EQ(data->targets[0].role, Role::kTarget);
  ASSERT_EQ(data->weights.size(), 2u);
  EXPECT_EQ(data->weights[0].file, nullptr);  // every sample has weight 1
  EXPECT_NE(data->weights[1].file, nullptr);

  arrays.erase(arrays.begin() + 3);
  const auto error = error_of(npz("data.npz", arrays), spec);
  EXPECT_EQ(error.code, ErrorCode::kBadDataFile);
  EXPECT_EQ(error.what, path("data.npz") + ": there is no array 'left' for the model's input 'left'");
  EXPECT_EQ(error.facts[0], "it holds: b (2,), right (2, 3), a (2,), sample_weight_b (2,)");
}

// A reshape of channels-first images would scramble every picture, and training would not report an error.
TEST_F(OpenData, SaysTransposeWhereDimensionsAreInAnotherOrder) {
  const DataSpec spec = one_in_one_out({6, 5, 3}, 10);
  const auto remedy = [&](const std::vector<int64_t>& dims) {
    write_pair(dims);
    const Error error = error_of(pair(), spec);
    EXPECT_EQ(error.code, ErrorCode::kDataShape);
    return error.remedies.empty() ? "" : error.remedies[0];
  };
  EXPECT_EQ(remedy({3, 3, 6, 5}), "np.transpose(x, (0, 2, 3, 1))");
  EXPECT_EQ(remedy({3, 5, 6, 3}), "np.transpose(x, (0, 2, 1, 3))");
  EXPECT_EQ(remedy({3, 3, 5, 6}), "np.transpose(x, (0, 3, 2, 1))");
  EXPECT_EQ(remedy({3, 90}), "np.reshape(x, (3, 6, 5, 3))   keeps the order of the elements");
  EXPECT_EQ(remedy({3, 1, 6, 5, 3}), "np.reshape(x, (3, 6, 5, 3))   keeps the order of the elements");
  // The same number of elements, but other pictures.
  EXPECT_EQ(remedy({3, 10, 9}), "an array of shape (N, 6, 5, 3), with the samples first");
  const DataSpec square = one_in_one_out({4, 4, 3}, 10);
  write_pair({3, 3, 4, 4});
  EXPECT_EQ(error_of(pair(), square).remedies[0],
            "np.transpose(x, (0, 2, 3, 1))   some sizes are equal: check which axis is which");
}

TEST_F(OpenData, TakesTheNamesThatKerasAndNumpyGive) {
  const auto x = npy_text<float>({3, 4, 4, 1}, counting<float>(48));
  const auto y = npy_text<int32_t>({3}, {1, 2, 3}), other = npy_text<int32_t>({3}, {4, 5, 6});
  const auto labels = [&](const std::vector<std::pair<std::string, std::string>>& arrays, Split split) {
    DataSpec spec = spec_;
    spec.split = split;
    const auto data = open_data(npz("data.npz", arrays), spec);
    EXPECT_TRUE(data) << to_text(data.error());
    int32_t first = 0;
    if (data) {
      EXPECT_TRUE(data->targets[0].read(0, 1, &first));
    }
    return first;
  };
  const std::vector<std::pair<std::string, std::string>> mnist = {
      {"x_test", x}, {"x_train", x}, {"y_train", y}, {"y_test", other}};
  EXPECT_EQ(labels(mnist, Split::kTrain), 1);
  EXPECT_EQ(labels(mnist, Split::kTest), 4);
  EXPECT_EQ(labels(mnist, Split::kValidation), 4);
  auto three = mnist;
  three.push_back({"x_val", x});
  three.push_back({"y_val", npy_text<int32_t>({3}, {7, 8, 9})});
  EXPECT_EQ(labels(three, Split::kValidation), 7);
  EXPECT_EQ(labels(three, Split::kTest), 4);
  EXPECT_EQ(labels({{"arr_0", x}, {"arr_1", other}}, Split::kTrain), 4);
  EXPECT_EQ(labels({{"X", x}, {"y", other}}, Split::kTrain), 4);
  EXPECT_EQ(labels({{"images", x}, {"labels", other}}, Split::kTest), 4);
  EXPECT_EQ(labels({{"x", x}, {"y", y}, {"x_train", x}, {"y_train", other}}, Split::kTrain), 1);
  const auto weighted =
      open_data(npz("w.npz", {{"arr_0", x}, {"arr_1", y}, {"arr_2", npy_text<float>({3}, {1, 1, 2})}}), spec_);
  ASSERT_TRUE(weighted) << to_text(weighted.error());
  EXPECT_EQ(weighted->weights.size(), 1u);
}

TEST_F(OpenData, ListsTheArraysWhereNamesSayTooLittle) {
  const auto x = npy_text<float>({3, 4, 4, 1}, counting<float>(48));
  const auto y = npy_text<int32_t>({3}, {1, 2, 3});
  const Error both = error_of(npz("both.npz", {{"X", x}, {"Y", y}, {"arr_0", x}, {"arr_1", y}}), spec_);
  EXPECT_EQ(both.code, ErrorCode::kBadDataFile);
  EXPECT_NE(both.what.find("both 'X' and 'arr_0'"), std::string::npos) << to_text(both);
  const Error four = error_of(npz("four.npz", {{"arr_0", x}, {"arr_1", y}, {"arr_2", x}, {"arr_3", y}}), spec_);
  EXPECT_EQ(four.facts[0], "it holds: arr_0 (3, 4, 4, 1), arr_1 (3,), arr_2 (3, 4, 4, 1), arr_3 (3,)") << to_text(four);
  EXPECT_EQ(four.remedies[0], "np.savez(file, x=inputs, y=targets)");
}

TEST_F(OpenData, SaysHowToMakeDataOfWhatIsNot) {
  const auto y = npy<int64_t>(y_, {3}, {1, 2, 3});
  for (const auto& [name, text, remedy] :
       {std::tuple{"x.txt", "1,2", "np.loadtxt"}, std::tuple{"x.csv", "1,2", "x.csv   alone"},
        std::tuple{"x.tfrecord", "1234", "x.tfrecord   alone"}, std::tuple{"x.jpg", "\xff\xd8", "--data FOLDER"},
        std::tuple{"x.bin", "1234", "np.save"}}) {
    const Error error = error_of(write(name, text) + "," + y, spec_);
    EXPECT_EQ(error.code, ErrorCode::kBadDataFile);
    ASSERT_FALSE(error.remedies.empty()) << to_text(error);
    EXPECT_NE(error.remedies[0].find(remedy), std::string::npos) << to_text(error);
  }
  std::filesystem::create_directory(path("images"));
  const Error folder = error_of(path("images"), spec_);
  EXPECT_EQ(folder.code, ErrorCode::kBadDataFile);
  EXPECT_NE(to_text(folder).find("a folder without pictures"), std::string::npos) << to_text(folder);
  EXPECT_NE(to_text(folder).find("one folder per class"), std::string::npos) << to_text(folder);
}

TEST_F(OpenData, TellsTheShapeOfASampleBeforeTheModelIsKnown) {
  write_pair({3, 4, 5, 1});
  EXPECT_EQ(*sample_shape(pair(), port("image"), true, DataSpec()), (std::vector<int64_t>{4, 5, 1}));
  const auto file = npz("two.npz", {{"left", npy_text<float>({2, 2}, counting<float>(4))},
                                    {"right", npy_text<float>({2, 3}, counting<float>(6))}});
  EXPECT_EQ(*sample_shape(file, port("right"), false, DataSpec()), (std::vector<int64_t>{3}));
  EXPECT_EQ(sample_shape(file, port("middle"), false, DataSpec()).error().code, ErrorCode::kBadDataFile);
  EXPECT_EQ(sample_shape(path("none.npy"), port("x"), true, DataSpec()).error().code, ErrorCode::kFileUnreadable);
}

TEST_F(OpenData, NeedsNoTargetsForPrediction) {
  write_pair();
  DataSpec spec = spec_;
  spec.needs_targets = false;
  for (const auto& argument :
       {path(x_), pair(), npz("x.npz", {{"x", npy_text<float>({1, 4, 4, 1}, counting<float>(16))}})}) {
    const auto data = open_data(argument, spec);
    ASSERT_TRUE(data) << to_text(data.error());
    EXPECT_TRUE(data->targets.empty());
  }
  const auto error = error_of(path(x_), spec_);
  EXPECT_EQ(error.code, ErrorCode::kUsage);
  EXPECT_EQ(error.what, "--data " + path(x_) + ": has no targets");
}

TEST_F(OpenData, NamesAMissingFile) {
  write_pair();
  for (const std::string missing : {"no.npy", "no.npz", "no-idx3-ubyte.gz", "no"}) {
    const auto error = error_of(path(missing) + (missing == "no.npz" ? "" : "," + path(y_)), spec_);
    EXPECT_EQ(error.code, ErrorCode::kFileUnreadable);
    EXPECT_NE(error.what.find(path(missing)), std::string::npos) << error.what;
  }
}

TEST_F(OpenData, NamesABadFile) {
  write_pair();
  std::filesystem::resize_file(path(x_), std::filesystem::file_size(path(x_)) - 1);
  const auto error = error_of(pair(), spec_);
  EXPECT_EQ(error.code, ErrorCode::kBadDataFile);
  EXPECT_NE(error.what.find(path(x_)), std::string::npos) << error.what;
}

TEST_F(OpenData, NamesBothShapesThatDoNotMatch) {
  write_pair({3, 16}, {3});
  auto error = error_of(pair(), spec_);
  EXPECT_EQ(error.code, ErrorCode::kDataShape);
  EXPECT_EQ(error.what, path(x_) + ": a sample is (16,), the model's input 'image' takes (4, 4, 1)");
  EXPECT_EQ(error.facts[0], path(x_) + " has the shape (3, 16) of float32");
  EXPECT_EQ(error.remedies[0], "np.reshape(x, (3, 4, 4, 1))   keeps the order of the elements");

  write_pair({3, 4, 4, 3}, {3});
  error = error_of(pair(), spec_);
  EXPECT_EQ(error.what, path(x_) + ": a sample is (4, 4, 3), the model's input 'image' takes (4, 4, 1)");
  EXPECT_EQ(error.remedies, std::vector<std::string>{"an array of shape (N, 4, 4, 1), with the samples first"});

  write_pair({3, 4, 4, 1}, {3, 10});
  error = error_of(pair(), spec_);
  EXPECT_EQ(error.what, path(y_) + ": a sample is (10,), the model's output 'digit' as target takes one number");
  EXPECT_EQ(error.remedies[0], "the targets look one-hot: --loss categorical_crossentropy");

  npy<float>(x_, {}, {1});
  EXPECT_EQ(error_of(pair(), spec_).what, path(x_) + ": a single number, not an array of samples");
}

TEST_F(OpenData, NamesBothLengthsThatDiffer) {
  write_pair({3, 4, 4, 1}, {4});
  auto error = error_of(pair(), spec_);
  EXPECT_EQ(error.code, ErrorCode::kDataLengths);
  EXPECT_EQ(error.what, path(x_) + " holds 3 samples, " + path(y_) + " holds 4");
  write_pair();
  error = error_of(pair() + "," + npy<float>("w.npy", {2}, {1, 1}), spec_);
  EXPECT_EQ(error.what, path(x_) + " holds 3 samples, " + path("w.npy") + " holds 2");
}

TEST_F(OpenData, RefusesAnEmptyArray) {
  write_pair({0, 4, 4, 1}, {0});
  const auto error = error_of(pair(), spec_);
  EXPECT_EQ(error.code, ErrorCode::kDataEmpty);
  EXPECT_EQ(error.what, path(x_) + " holds no samples: its shape is (0, 4, 4, 1)");
}

TEST_F(OpenData, RefusesArgumentsThatMakeNoSense) {
  write_pair();
  DataSpec two = spec_;
  two.inputs.push_back(two.inputs[0]);
  two.inputs[1].name = "mask";
  auto error = error_of(pair(), two);
  EXPECT_EQ(error.code, ErrorCode::kUsage);
  EXPECT_EQ(error.facts[0], "inputs: 'image', 'mask'; outputs: 'digit'");
  EXPECT_EQ(error_of(path(x_) + ",," + path(y_), spec_).code, ErrorCode::kUsage);
  EXPECT_EQ(error_of("", spec_).code, ErrorCode::kUsage);
  EXPECT_EQ(error_of(pair() + "," + path(y_) + "," + path(y_), spec_).code, ErrorCode::kUsage);
  EXPECT_EQ(error_of(npz("a.npz", {}) + "," + path(y_), spec_).code, ErrorCode::kUsage);
}

TEST(WrapData, ChecksArraysInMemoryTheSameWay) {
  const auto spec = one_in_one_out({2, 2, 1}, 3);
  const auto x = counting<float>(12);
  const std::vector<int32_t> y = {0, 1, 2};
  const std::vector<float> w = {1, 2, 3};
  MemoryArrays arrays;
  arrays.inputs = {{"x", x.data(), DType::kFloat32, {3, 2, 2}}};
  arrays.targets = {{"y", y.data(), DType::kInt32, {3}}};
  arrays.weights = {{"w", w.data(), DType::kFloat32, {3}}};
  const auto data = wrap_data(arrays, spec);
  ASSERT_TRUE(data) << to_text(data.error());
  EXPECT_EQ(data->samples, 3);
  EXPECT_EQ(data->weights.size(), 1u);
  arrays.weights.push_back(arrays.weights[0]);
  EXPECT_EQ(wrap_data(arrays, spec).error().what,
            "wrong number of arrays for the model's sample weights: expected 1, got 2");
  arrays.weights.pop_back();
  arrays.targets[0].dims = {2};
  EXPECT_EQ(wrap_data(arrays, spec).error().what, "x holds 3 samples, y holds 2");
  arrays.targets.clear();
  EXPECT_EQ(wrap_data(arrays, spec).error().what, "wrong number of arrays for the model's outputs: expected 1, got 0");
}

// The numbers are from keras.src.trainers.data_adapters.array_slicing.train_validation_split, Keras 3.15.1. They
// include the binary rounding of 1 - 0.9: 60000 samples at 0.9 leave 5999.
TEST(ValidationSplit, CutsWhereKerasCuts) {
  struct Case {
    int64_t samples;
    double fraction;
    int64_t at;
  };
  for (const Case& c :
       {Case{2, 0.1, 1}, Case{3, 0.5, 1}, Case{10, 0.1, 9}, Case{10, 0.2, 8}, Case{10, 0.3, 7}, Case{7, 0.3, 4},
        Case{100, 0.9, 9}, Case{100, 0.99, 1}, Case{101, 0.01, 99}, Case{60000, 0.1, 54000}, Case{60000, 0.9, 5999}}) {
    const auto at = validation_split_at(c.samples, c.fraction);
    ASSERT_TRUE(at) << c.samples << " " << c.fraction;
    EXPECT_EQ(*at, c.at) << c.samples << " " << c.fraction;
  }
  for (const auto& [samples, fraction] : {std::pair<int64_t, double>{1, 0.5}, {10, 0.9}, {2, 0.99}}) {
    const auto at = validation_split_at(samples, fraction);
    ASSERT_FALSE(at);
    EXPECT_EQ(at.error().code, ErrorCode::kDataEmpty);
  }
  EXPECT_EQ(validation_split_at(1, 0.5).error().what, "--validation-split 0.5 of 1 samples leaves none to train on");
  for (double fraction : {0.0, 1.0, -0.1, 2.0, std::nan("")})
    EXPECT_EQ(validation_split_at(100, fraction).error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace plimsoll::engine
