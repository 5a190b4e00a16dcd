// The training phases of models, cut into pieces: what they update must be what the whole batch updates. The ops'
// references compute both in float64.
#include <random>

#include "levers/relu_pooling.h"
#include "levers/split_batch.h"
#include "search/compile.h"
#include "tests/support/described_cases.h"
#include "tests/support/problem.h"
#include "tests/support/same_numbers.h"

namespace plimsoll::engine::testing {
namespace {

namespace layers = plimsoll::layers;

// Variances and second moments must not be negative.
Tensor drawn_for(const Value& value, std::mt19937_64& random) {
  if (value.type.dtype == DType::kInt64) return draw(value.type, "step:3,2", random);
  if (!is_floating(value.type.dtype)) return draw(value.type, "labels:3", random);
  Tensor tensor = draw(value.type, value.persistent ? "positive" : "normal", random);
  if (value.persistent && value.type.shape.rank() > 1)
    for (double& v : tensor.values) v -= 0.6;
  return tensor;
}

// Returns how many pieces the batch was cut into; 0: the graph was left alone.
int64_t check(const std::string& what, const plimsoll::Description& model, int64_t batch, int64_t pieces) {
  const auto compiled = require(model.compile({.optimizer = optimizers::SGD(1.0), .loss = losses::MeanSquaredError()}));
  const Problem problem(require(open_description(described(compiled).description, "", {})), batch, "reference");
  const Graph whole =
      mask_relu_after_pooling(require(train_phase(problem.open.model, batch, problem.request.graph)).graph).graph;
  const Rewritten cut = split_batch(whole, pieces);
  if (cut.count == 0) return 0;
  require(verify(cut.graph));
  std::mt19937_64 random(std::hash<std::string>{}(what));
  std::vector<Tensor> inputs;
  for (ValueId id : whole.inputs) inputs.push_back(drawn_for(whole.value(id), random));
  expect_same_numbers(what + " in " + std::to_string(pieces) + " pieces", whole, cut.graph, inputs, 1e-9);
  return cut.count;
}

// Each layer class, between layers that train.
TEST(SplitModels, EveryLayerTrainsAsInTheWholeBatch) {
  std::set<std::string> left;
  int cut = 0;
  for (const auto& one : cases::layer_cases()) {
    std::vector<plimsoll::Tensor> normalised;
    for (const auto& input : one.inputs) normalised.push_back(layers::BatchNormalization()(input));
    const auto model = plimsoll::functional(one.inputs, {layers::Dense(3)(layers::Flatten()(one.layer(normalised)))});
    if (!model) continue;
    if (check(one.keras, *model, 5, 2) == 0)
      left.insert(one.keras);
    else
      ++cut;
  }
  EXPECT_GT(cut, 60);
  EXPECT_EQ(left, std::set<std::string>());
}

// A random network of images: layers in a row, with sums and concatenations of earlier values.
plimsoll::Description random_model(std::mt19937& random) {
  const auto pick = [&](size_t count) { return random() % count; };
  const int64_t filters = 3 + static_cast<int64_t>(pick(3));
  const plimsoll::Tensor input = layers::Input({8, 8, 3});
  std::vector<plimsoll::Tensor> values = {
      layers::Conv2D(filters, {3, 3}, {.padding = "same", .use_bias = false})(input)};
  const size_t steps = 4 + pick(9);
  for (size_t i = 0; i < steps; ++i) {
    const plimsoll::Tensor& x = values[values.size() - 1 - pick(std::min<size_t>(2, values.size()))];
    switch (pick(9)) {
      case 0:
        values.push_back(layers::Conv2D(filters, {3, 3}, {.padding = "same", .activation = "tanh"})(x));
        break;
      case 1:
      case 2:
        values.push_back(layers::Activation("relu")(layers::BatchNormalization()(x)));
        break;
      case 3:
        values.push_back(layers::Add()({x, values[pick(values.size())]}));
        break;
      case 4:
        values.push_back(layers::Dropout(0.3)(x));
        break;
      case 5:
        values.push_back(layers::DepthwiseConv2D({3, 3}, {.padding = "same"})(x));
        break;
      case 6:
        values.push_back(layers::LayerNormalization()(layers::UpSampling2D()(layers::MaxPooling2D()(x))));
        break;
      case 7:
        values.push_back(layers::Conv2D(filters, {1, 1})(layers::Concatenate()({x, values[pick(values.size())]})));
        break;
      default:
        values.push_back(layers::BatchNormalization({.momentum = 0.8})(layers::GaussianNoise(0.2)(x)));
    }
  }
  const plimsoll::Tensor pooled = layers::GlobalAveragePooling2D()(layers::Add()({values.back(), values.front()}));
  return require(plimsoll::functional({input}, {layers::Dense(3)(layers::BatchNormalization()(pooled))}));
}

TEST(SplitModels, RandomModelsTrainAsInTheWholeBatch) {
  std::mt19937 random(20261118);
  for (int i = 0; i < 12; ++i) {
    const auto model = random_model(random);
    for (const int64_t pieces : {2, 3})
      EXPECT_EQ(check("model " + std::to_string(i), model, 7, pieces), pieces) << "model " << i;
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
