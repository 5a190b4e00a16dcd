// Compared with keras.src.trainers.data_adapters.data_adapter_utils.class_weight_to_sample_weights of Keras 3.15.1,
// which gives the following with class_weight={0: 0.5, 1: 5, 2: 7}:
//   [0.5, 1.5, 2.5, -0.5]               -> [0.5, 7, 7, 0.5]    rounds half to even
//   [[0.5], [1.5], [2.5]]               -> [0.5, 7, 7]         the same after dropping the axis
//   [[0,1,1], [2,2,2], [0,0,0]]         -> [5, 0.5, 0.5]       argmax, the first of ties
//   [True, False]                       -> [5, 0.5]
// With {0: 1, 1: 5}, labels [0, 1, 2, 1] -> [1, 5, 1, 5]; with {0: 2, 1: 5}, [-1, 0, 1, 2] -> [1, 2, 5, 1]: a class
// that is not named has weight 1. Two outputs: ValueError. A target with two axes: TypeError. The part of
// validation_split gets no class weights (val_loss equals that of the run without them). class_weight together with
// sample_weight is a ValueError in 3.15.1; we multiply them, as Keras 2 did.
#include "data/class_weights.h"

#include <gtest/gtest.h>

namespace plimsoll::engine {
namespace {

ClassWeights parsed(std::string_view text) {
  auto weights = ClassWeights::parse(text);
  EXPECT_TRUE(weights) << text;
  return weights ? *weights : ClassWeights();
}

template <typename T>
std::vector<float> applied(std::string_view text, DType dtype, std::vector<T> targets, int64_t elements = 1) {
  const auto count = static_cast<int64_t>(targets.size()) / elements;
  std::vector<float> weights(static_cast<size_t>(count), 1);
  parsed(text).apply(dtype, targets.data(), elements, count, weights.data());
  return weights;
}

using Floats = std::vector<float>;

TEST(ClassWeights, WeighLabelsAsKerasDoes) {
  EXPECT_EQ(applied<int64_t>("0:1,1:5", DType::kInt64, {0, 1, 2, 1}), (Floats{1, 5, 1, 5}));
  EXPECT_EQ(applied<int32_t>("0:2,1:5", DType::kInt32, {-1, 0, 1, 2}), (Floats{1, 2, 5, 1}));
  EXPECT_EQ(applied<float>("0:0.5,1:5,2:7", DType::kFloat32, {0.5f, 1.5f, 2.5f, -0.5f}), (Floats{0.5f, 7, 7, 0.5f}));
  EXPECT_EQ(applied<uint8_t>("0:0.5,1:5", DType::kBool, {1, 0}), (Floats{5, 0.5f}));
}

TEST(ClassWeights, WeighOneHotTargetsAsKerasDoes) {
  EXPECT_EQ(applied<float>("0:0.5,1:5,2:7", DType::kFloat32, {0, 1, 1, 2, 2, 2, 0, 0, 0}, 3), (Floats{5, 0.5f, 0.5f}));
  EXPECT_EQ(applied<double>("0:1,1:5,2:7", DType::kFloat64, {.5, .5, 0, 0, .4, .6, .1, .2, .3, 1, 1, 1}, 3),
            (Floats{1, 7, 7, 1}));
}

TEST(ClassWeights, MultiplyWhatIsThere) {
  const int32_t labels[] = {0, 1, 2};
  Floats weights = {2, 3, 4};
  parsed("1:5,2:0").apply(DType::kInt32, labels, 1, 3, weights.data());
  EXPECT_EQ(weights, (Floats{2, 15, 0}));
}

TEST(ClassWeights, IgnoreNumbersThatCanBeNoClass) {
  EXPECT_EQ(applied<double>("0:5", DType::kFloat64, {1e300, -1e300}), (Floats{1, 1}));
}

TEST(ClassWeights, SayWhatIsWrongWithTheirText) {
  const auto what = [](std::string_view text) {
    const auto weights = ClassWeights::parse(text);
    EXPECT_FALSE(weights) << text;
    return weights ? "" : weights.error().what;
  };
  EXPECT_EQ(what("0:1,5"), "--class-weight 0:1,5: '5' is not CLASS:WEIGHT");
  EXPECT_EQ(what(""), "--class-weight : '' is not CLASS:WEIGHT");
  EXPECT_EQ(what("0:1,"), "--class-weight 0:1,: '' is not CLASS:WEIGHT");
  EXPECT_EQ(what("a:1"), "--class-weight a:1: 'a:1' is not CLASS:WEIGHT");
  EXPECT_EQ(what("0:1x"), "--class-weight 0:1x: '0:1x' is not CLASS:WEIGHT");
  EXPECT_EQ(what("-1:1"), "--class-weight -1:1: '-1:1' names a negative class");
  EXPECT_EQ(what("0:nan"), "--class-weight 0:nan: '0:nan' needs a finite weight of at least 0");
  EXPECT_EQ(what("0:-2"), "--class-weight 0:-2: '0:-2' needs a finite weight of at least 0");
  EXPECT_EQ(what("0:1e39"), "--class-weight 0:1e39: '0:1e39' needs a finite weight of at least 0");
  EXPECT_EQ(what("1:1,0:2,1:3"), "--class-weight 1:1,0:2,1:3: '1' is given two weights");
}

}  // namespace
}  // namespace plimsoll::engine
