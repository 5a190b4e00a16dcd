// Levers change memory and time, not the training: micro-batches change results only by rounding, recompute not at all.
#include "tests/support/memory_data.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 16;
// Summed weight gradients differ only by the order of additions. On convolutions, 8e-6 of a tensor's maximum was seen.
constexpr double kBound = 3e-5;

using Tensors = std::map<std::string, std::vector<double>>;

Tensors weights_of(const ModelRun& run) {
  Tensors tensors;
  for (const Weight& weight : run.open.model.weights()) tensors[weight.name] = run.values(weight.name);
  return tensors;
}

// Returns what one step subtracted from each weight. With SGD and a learning rate of 1 this is the gradient.
Tensors change(const Tensors& before, const Tensors& after) {
  Tensors tensors = before;
  for (auto& [name, values] : tensors)
    for (size_t i = 0; i < values.size(); ++i) values[i] -= after.at(name)[i];
  return tensors;
}

struct Case {
  int64_t micro, window;  // samples per micro-batch and per window; an epoch's last window may be smaller
  bool weights;
};

Tensors step_of(const Case& c, int64_t micro, const plimsoll::Optimizer& optimizer, double* loss) {
  RunOptions options;
  options.batch_size = kBatch;
  options.forced->micro = micro;
  options.data.samples = c.window < kBatch ? kBatch + c.window : 0;
  options.data.sample_weights = c.weights;
  const auto run = run_of(small_cnn(), optimizer, losses::SparseCategoricalCrossentropy(), options);
  MemoryData data(run->open.model, kBatch, 11, c.weights);
  const Tensors before = weights_of(*run);
  *loss = run->step(data.source(), 0, c.window);
  const Tensors gradients = change(before, weights_of(*run));
  if (micro < kBatch && optimizer.to_json() == optimizers::SGD(1.0).to_json()) {
    for (const auto& [name, values] : gradients)  // up to the rounding of weight - gradient in float32
      EXPECT_LE(relative_difference(values, run->values(accumulated_value(name))), 1e-5) << name;
  }
  if (c.window == kBatch) {
    EXPECT_EQ(run->session->arena_peak_bytes(), run->plan().arena_bytes);
  }
  return gradients;
}

class MicroBatch : public ::testing::TestWithParam<Case> {};

TEST_P(MicroBatch, GradientsAndLossAreThoseOfTheWholeBatch) {
  const Case c = GetParam();
  double whole_loss = 0, loss = 0;
  const Tensors whole = step_of(c, kBatch, optimizers::SGD(1.0), &whole_loss);
  const Tensors cut = step_of(c, c.micro, optimizers::SGD(1.0), &loss);
  EXPECT_NEAR(loss, whole_loss, 2e-6 * whole_loss);
  for (const auto& [name, values] : whole) {
    EXPECT_GT(largest(values), 1e-6) << name;  // the gradient must not be zero
    EXPECT_LE(relative_difference(cut.at(name), values), kBound) << name;
  }
}

// Clipping by the global norm and weight decay happen once per window, on the summed gradients.
TEST_P(MicroBatch, ClippingAndDecayActOnceAWindow) {
  const Case c = GetParam();
  nlohmann::json config = nlohmann::json::parse(optimizers::SGD(1.0).to_json());
  config["config"]["global_clipnorm"] = 0.05;
  config["config"]["weight_decay"] = 0.01;
  double whole_loss = 0, loss = 0;
  const Tensors whole = step_of(c, kBatch, optimizers::Custom("SGD", config["config"].dump()), &whole_loss);
  const Tensors cut = step_of(c, c.micro, optimizers::Custom("SGD", config["config"].dump()), &loss);
  for (const auto& [name, values] : whole) EXPECT_LE(relative_difference(cut.at(name), values), kBound) << name;
}

INSTANTIATE_TEST_SUITE_P(Cuts, MicroBatch,
                         ::testing::Values(Case{1, 16, false}, Case{3, 16, false}, Case{5, 16, false},
                                           Case{8, 16, false}, Case{1, 11, false}, Case{3, 11, false},
                                           Case{5, 11, false}, Case{8, 11, false}, Case{8, 3, false}, Case{1, 16, true},
                                           Case{3, 16, true}, Case{5, 16, true}, Case{8, 16, true}, Case{5, 11, true},
                                           Case{8, 3, true}),
                         [](const auto& which) {
                           return "micro_" + std::to_string(which.param.micro) + "_of_" +
                                  std::to_string(which.param.window) + (which.param.weights ? "_weighted" : "");
                         });

// Penalties count once per window, however it is split. The golden model has AdamW with a schedule, clipping and L2.
TEST(MicroBatch, PenaltiesEnterOnceAWindow) {
  RunOptions options;
  options.batch_size = 4;
  const auto whole = run_of(golden("mlp.keras"), options);
  options.forced->micro = 3;
  const auto cut = run_of(golden("mlp.keras"), options);
  const ColumnSource data = golden_data("mlp", whole->open.model);
  for (int64_t i = 0; i < 5; ++i) {
    const double want = whole->step(data, i * 4, 4);
    EXPECT_NEAR(cut->step(data, i * 4, 4), want, 1e-5 * want) << "step " << i;
  }
  const Tensors expected = weights_of(*whole);
  for (const auto& [name, values] : weights_of(*cut))
    EXPECT_LE(relative_difference(values, expected.at(name)), kBound) << name;
}

// The weighted mean over the effective batch is defined as in Keras: the sum of the weighted losses divided by the
// number of samples.
TEST(MicroBatch, SampleWeightsOfTwoDoubleTheGradients) {
  double loss = 0, doubled_loss = 0;
  RunOptions options;
  options.batch_size = kBatch;
  options.forced->micro = 5;
  const auto plain = run_of(small_cnn(), optimizers::SGD(1.0), losses::SparseCategoricalCrossentropy(), options);
  options.data.sample_weights = true;
  const auto weighted = run_of(small_cnn(), optimizers::SGD(1.0), losses::SparseCategoricalCrossentropy(), options);
  MemoryData data(plain->open.model, kBatch, 11);
  const auto step = [&](ModelRun& run, bool with) {
    require(run.session->begin({kBatch, 0, 1.0, 3}));
    for (int64_t done = 0; done < kBatch;) {
      const int64_t piece = std::min<int64_t>(5, kBatch - done);
      require(run.session->accumulate(piece, [&](const BatchBuffers& into) -> Status {
        if (with) std::fill_n(into.weights[0], piece, 2.0F);
        BatchBuffers without = into;
        without.weights.clear();
        return data.source().read(0, done, piece, without);
      }));
      done += piece;
    }
    require(run.session->apply());
    return run.session->tally("loss");
  };
  loss = step(*plain, false);
  doubled_loss = step(*weighted, true);
  EXPECT_DOUBLE_EQ(doubled_loss, 2 * loss);
  for (const Weight& weight : plain->open.model.weights()) {
    std::vector<double> twice = plain->values(accumulated_value(weight.name));
    for (double& v : twice) v *= 2;
    EXPECT_EQ(weighted->values(accumulated_value(weight.name)), twice) << weight.name;  // powers of two are exact
  }
}

void expect_bitwise(const std::string& what, const std::function<std::unique_ptr<ModelRun>(const RunOptions&)>& make,
                    RunOptions options, int recompute = 10) {
  const auto kept = make(options);
  options.forced->recompute = recompute;
  const auto again = make(options);
  ASSERT_EQ(again->plan().levers.empty(), false) << what;
  EXPECT_EQ(again->plan().levers[0].name, "recompute") << what;
  EXPECT_GT(again->plan().levers[0].count, 0) << what;
  MemoryData data(kept->open.model, 3 * options.batch_size, 5);
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(again->step(data.source(), i * options.batch_size, options.batch_size),
              kept->step(data.source(), i * options.batch_size, options.batch_size))
        << what;
  EXPECT_EQ(again->session->arena_peak_bytes(), again->plan().arena_bytes) << what;
  for (const PersistentSlot& slot : kept->plan().persistent) {
    if (slot.type.dtype != kept->request.graph.precision.variables) continue;
    EXPECT_EQ(again->values(slot.name), kept->values(slot.name)) << what << ": " << slot.name;
  }
}

TEST(Recompute, LeavesEveryBitAsItWas) {
  const auto activations =
      require(sequential({layers::Input({8, 8, 2}), layers::Conv2D(4, {3, 3}, {.activation = "silu"}),
                          layers::Conv2D(6, {3, 3}, {.activation = "gelu"}), layers::BatchNormalization(),
                          layers::Activation("relu"), layers::Flatten(), layers::Dropout(0.4),
                          layers::Dense(5, {.activation = "elu"}), layers::Dense(4, {.activation = "softmax"})}));
  for (const std::string& device : host_devices()) {
    RunOptions options;
    options.device = device;
    options.batch_size = 6;
    expect_bitwise(
        "resnet on " + device, [](const RunOptions& o) { return run_of(golden("resnet.keras"), o); }, options);
    expect_bitwise(
        "activations on " + device,
        [&](const RunOptions& o) {
          return run_of(activations, optimizers::Adam(), losses::SparseCategoricalCrossentropy(), o);
        },
        options);
    options.forced->micro = 4;
    options.per_micro_batch_norm = true;
    expect_bitwise(
        "micro-batched on " + device,
        [&](const RunOptions& o) {
          return run_of(activations, optimizers::Adam(), losses::SparseCategoricalCrossentropy(), o);
        },
        options);
  }
}

// Recomputes convolutions, products and pooling, the more the higher the percentage. The measured arena must be the
// planned one.
TEST(Recompute, OfCostlyNodesLeavesEveryBitAsItWas) {
  const auto deep = require(sequential(
      {layers::Input({12, 12, 3}), layers::Conv2D(8, {3, 3}, {.padding = "same", .activation = "relu"}),
       layers::Conv2D(8, {3, 3}, {.padding = "same"}), layers::BatchNormalization(), layers::Activation("relu"),
       layers::MaxPooling2D(), layers::Conv2D(16, {3, 3}, {.padding = "same", .activation = "gelu"}),
       layers::Conv2D(16, {3, 3}, {.padding = "same", .activation = "relu"}), layers::Conv2D(16, {1, 1}),
       layers::BatchNormalization(), layers::Activation("relu"), layers::Flatten(), layers::Dropout(0.4),
       layers::Dense(24, {.activation = "relu"}), layers::Dense(4, {.activation = "softmax"})}));
  for (const std::string& device : host_devices())
    for (const int percent : {5, 20, 30}) {
      if (device == "reference" && percent != 20) continue;  // slow, and it runs the same graphs
      RunOptions options;
      options.device = device;
      options.batch_size = 6;
      const std::string what = " on " + device + ", " + std::to_string(percent) + " %";
      expect_bitwise(
          "resnet" + what, [](const RunOptions& o) { return run_of(golden("resnet.keras"), o); }, options, percent);
      expect_bitwise(
          "deep" + what,
          [&](const RunOptions& o) {
            return run_of(deep, optimizers::Adam(), losses::SparseCategoricalCrossentropy(), o);
          },
          options, percent);
    }
}

}  // namespace
}  // namespace plimsoll::engine::testing
