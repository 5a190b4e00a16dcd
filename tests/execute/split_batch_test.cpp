// Cutting the batch into pieces inside one phase changes the training by rounding only, also where samples are coupled:
// statistics of BatchNormalization, its gradients, losses, metrics.
#include "levers/split_batch.h"

#include "tests/support/memory_data.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 11, kWindows = 3;

using plimsoll::Tensor;

// Adam divides a gradient by its own magnitude. So where the terms of a gradient cancel, the rounding of float32 can
// become a step of any size, and float32 is tested with SGD.
plimsoll::Optimizer optimizer_for(const std::string& device) {
  if (device == "reference") return optimizers::Adam(0.01);
  return optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
}
double bound_of(const std::string& device) {
  return device == "reference" ? 1e-9 : 1e-4;
}

struct Example {
  std::string name;
  std::function<plimsoll::Description()> model;
  plimsoll::Loss loss = losses::SparseCategoricalCrossentropy();
  bool sample_weights = false;
};

plimsoll::Description described_by(const Tensor& input, const Tensor& output) {
  return require(functional({input}, {output}));
}

plimsoll::Description convolutions() {
  return require(sequential(
      {layers::Input({8, 8, 3}), layers::Conv2D(6, {3, 3}, {.padding = "same", .use_bias = false}),
       layers::BatchNormalization(), layers::Activation("relu"), layers::MaxPooling2D(),
       layers::Conv2D(8, {3, 3}, {.use_bias = false}), layers::BatchNormalization({.momentum = 0.7}),
       layers::Activation("silu"), layers::GlobalAveragePooling2D(), layers::Dense(4, {.activation = "softmax"})}));
}

plimsoll::Description residual() {
  const Tensor x = layers::Input({6, 6, 3});
  const auto unit = [](const Tensor& in, int64_t filters) {
    const Tensor a = layers::Activation("relu")(
        layers::BatchNormalization()(layers::Conv2D(filters, {3, 3}, {.padding = "same", .use_bias = false})(in)));
    return layers::BatchNormalization()(layers::Conv2D(filters, {3, 3}, {.padding = "same", .use_bias = false})(a));
  };
  const Tensor first = layers::Activation("relu")(unit(x, 6));
  const Tensor second = layers::Activation("relu")(layers::Add()({first, unit(first, 6)}));
  const Tensor shortcut = layers::BatchNormalization()(layers::Conv2D(8, {1, 1}, {.use_bias = false})(second));
  const Tensor third = layers::Activation("relu")(layers::Add()({shortcut, unit(second, 8)}));
  return described_by(x, layers::Dense(4, {.activation = "softmax"})(layers::GlobalAveragePooling2D()(third)));
}

plimsoll::Description dense_with_dropout() {
  return require(
      sequential({layers::Input({7}), layers::GaussianNoise(0.1), layers::Dense(9, {.use_bias = false}),
                  layers::BatchNormalization({.center = false}), layers::Activation("tanh"), layers::Dropout(0.4),
                  layers::Dense(8, {.use_bias = false}), layers::BatchNormalization({.scale = false}),
                  layers::Activation("gelu"), layers::Dropout(0.2), layers::Dense(4, {.activation = "softmax"})}));
}

plimsoll::Description penalised() {
  return require(sequential(
      {layers::Input({6, 6, 2}),
       layers::Conv2D(5, {3, 3}, {.use_bias = false, .kernel_regularizer = regularizers::L2(0.05)}),
       layers::BatchNormalization(), layers::Activation("relu"), layers::SpatialDropout2D(0.3), layers::Flatten(),
       layers::Dense(4, {.activation = "softmax", .kernel_regularizer = regularizers::L2(0.02)})}));
}

// The second call computes statistics of its own; the moving averages follow both, and the weights get two gradients.
plimsoll::Description shared_normalisation() {
  const Tensor x = layers::Input({5});
  const auto norm = layers::BatchNormalization();
  const auto dense = layers::Dense(6, {.use_bias = false});
  const Tensor h = layers::Activation("tanh")(norm(dense(x)));
  const Tensor g = layers::Activation("tanh")(norm(layers::Dense(6, {.use_bias = false})(h)));
  return described_by(x, layers::Dense(4, {.activation = "softmax"})(layers::Add()({h, g})));
}

plimsoll::Description other_layers() {
  const Tensor x = layers::Input({8, 8, 4});
  const Tensor a =
      layers::BatchNormalization()(layers::DepthwiseConv2D({3, 3}, {.padding = "same", .use_bias = false})(x));
  const Tensor b = layers::AveragePooling2D()(layers::Conv2DTranspose(3, {2, 2}, {.strides = {2, 2}})(x));
  const Tensor joined = layers::PReLU()(layers::Concatenate()({a, b}));
  const Tensor shrunk = layers::LayerNormalization({.center = false})(layers::MaxPooling2D()(joined));
  const Tensor sequence = layers::BatchNormalization()(layers::Reshape({16, 7})(shrunk));
  const Tensor out = layers::Dense(4, {.activation = "softmax"})(layers::Flatten()(sequence));
  return described_by(x, out);
}

plimsoll::Description regression() {
  return require(sequential({layers::Input({7}), layers::Dense(6, {.use_bias = false}), layers::BatchNormalization(),
                             layers::Activation("elu"), layers::Dense(3)}));
}

const std::vector<Example>& examples() {
  static const std::vector<Example> list = {
      {"convolutions", convolutions},
      {"residual", residual},
      {"dense_with_dropout", dense_with_dropout},
      {"penalised", penalised},
      {"shared_normalisation", shared_normalisation},
      {"other_layers", other_layers},
      {"weighted", convolutions, losses::SparseCategoricalCrossentropy(), true},
      {"regression", regression, losses::MeanSquaredError(), true},
  };
  return list;
}

std::unique_ptr<ModelRun> run_in_pieces(const Example& example, RunOptions options, int64_t pieces,
                                        const plimsoll::Optimizer& optimizer) {
  options.forced->split = pieces;
  options.data.sample_weights = example.sample_weights;
  const auto compiled = require(example.model().compile({.optimizer = optimizer, .loss = example.loss}));
  auto run = std::make_unique<ModelRun>(require(open_description(described(compiled).description, "", {})), options);
  const auto& levers = run->plan().levers;
  const auto split =
      std::find_if(levers.begin(), levers.end(), [](const LeverUse& lever) { return lever.name == kSplit; });
  if (pieces > 0) {
    EXPECT_TRUE(split != levers.end() && split->count == pieces) << "the batch is not cut";
  }
  return run;
}

// Three whole windows and a smaller one. Losses, weights, moving statistics and moments must agree.
void expect_same_training(const std::string& what, ModelRun& whole, ModelRun& cut, double bound, bool weights = false) {
  MemoryData data(whole.open.model, kWindows * kBatch + 5, 5, weights);
  const auto step = [&](ModelRun& run, int64_t i) {
    return run.step(data.source(), i * kBatch, i < kWindows ? kBatch : 5);
  };
  for (int64_t i = 0; i <= kWindows; ++i) {
    const double want = step(whole, i);
    EXPECT_NEAR(step(cut, i), want, bound * std::abs(want)) << what << ", step " << i;
  }
  EXPECT_EQ(cut.session->arena_peak_bytes(), cut.plan().arena_bytes) << what;
  for (const PersistentSlot& slot : whole.plan().persistent) {
    if (slot.type.dtype != whole.request.graph.precision.variables) continue;
    EXPECT_LE(relative_difference(cut.values(slot.name), whole.values(slot.name)), bound) << what << ": " << slot.name;
  }
}

class SplitTraining : public ::testing::TestWithParam<std::tuple<size_t, std::string>> {
 protected:
  const Example& example() const { return examples()[std::get<0>(GetParam())]; }
  std::string device() const { return std::get<1>(GetParam()); }
  RunOptions options() const {
    RunOptions options;
    options.device = device();
    options.batch_size = kBatch;
    options.data.samples = kWindows * kBatch + 5;
    return options;
  }
};

TEST_P(SplitTraining, TrainsAsTheWholeBatchDoes) {
  for (const int64_t pieces : {2, 3, 4}) {  // the batch cannot be divided by any of them
    const auto optimizer = optimizer_for(device());
    const auto whole = run_in_pieces(example(), options(), 0, optimizer);
    const auto cut = run_in_pieces(example(), options(), pieces, optimizer);
    expect_same_training(std::to_string(pieces) + " pieces", *whole, *cut, bound_of(device()),
                         example().sample_weights);
  }
}

TEST_P(SplitTraining, TrainsAsTheWholeBatchDoesWhenRecomputed) {
  RunOptions again = options();
  again.forced->recompute = 3;
  const auto whole = run_in_pieces(example(), options(), 0, optimizer_for(device()));
  const auto cut = run_in_pieces(example(), again, 4, optimizer_for(device()));
  expect_same_training("recomputed", *whole, *cut, bound_of(device()), example().sample_weights);
}

INSTANTIATE_TEST_SUITE_P(Models, SplitTraining,
                         ::testing::Combine(::testing::Range(size_t{0}, examples().size()),
                                            ::testing::ValuesIn(devices())),
                         [](const auto& which) {
                           return examples()[std::get<0>(which.param)].name + "_" + std::get<1>(which.param);
                         });

// Micro-batches that are cut themselves: dropout counts samples from the first one of the window.
TEST(SplitTrainingOf, PiecesOfMicroBatches) {
  RunOptions options;
  options.device = "reference";
  options.batch_size = kBatch;
  options.data.samples = kWindows * kBatch + 5;
  const Example cnn{"small_cnn", small_cnn};
  const auto whole = run_in_pieces(cnn, options, 0, optimizers::Adam());
  options.forced->micro = 4;
  const auto cut = run_in_pieces(cnn, options, 2, optimizers::Adam());
  expect_same_training("micro-batches of 4 in 2 pieces", *whole, *cut, 1e-9);
}

// Keras ran whole batches of four samples (tests/golden/make_golden.py).
TEST(SplitTrainingOf, FiveStepsInPiecesGiveTheLossesAndWeightsOfKeras) {
  for (const std::string& device : devices())
    for (const int64_t pieces : {2, 3, 4}) {
      RunOptions options;
      options.device = device;
      options.batch_size = 4;
      options.forced->split = pieces;
      const auto run = run_of(golden("resnet.keras"), options);
      ASSERT_EQ(run->plan().levers.size(), 1U);
      const ColumnSource data = golden_data("resnet", run->open.model);
      const std::string expected = golden("resnet_expected.npz");
      const std::vector<double> losses = read_npz(expected, "losses");
      for (int64_t i = 0; i < static_cast<int64_t>(losses.size()); ++i) {
        const double want = losses[static_cast<size_t>(i)];
        EXPECT_NEAR(run->step(data, i * 4, 4), want, 1e-5 * std::abs(want)) << "step " << i;
      }
      const auto& weights = run->open.model.weights();
      for (size_t k = 0; k < weights.size(); ++k)
        EXPECT_LE(relative_difference(run->values(weights[k].name), read_npz(expected, "after/" + std::to_string(k))),
                  3e-5)
            << weights[k].name << " on " << device << ", " << pieces << " pieces";
    }
}

}  // namespace
}  // namespace plimsoll::engine::testing
