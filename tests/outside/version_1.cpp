// A program against version 1 of the interface. It is compiled and linked by tests/cli/test_install.py and never
// changed: as long as the first number of the version is 1, it must keep compiling. New calls go into main.cpp.
#include <plimsoll/plimsoll.h>

#include <cstdio>

using namespace plimsoll;

static_assert(PLIMSOLL_VERSION_MAJOR == 1);

namespace {

class Watcher final : public Callback {
 public:
  Result<void> on_train_begin(Training& training) override { return training.set_learning_rate(0.1); }
  Result<void> on_epoch_begin(Training& training) override {
    if (training.epoch() > 3) training.stop();
    return {};
  }
  Result<void> on_step_end(Training& training, const Logs& logs) override {
    std::printf("%lld %g %g\n", static_cast<long long>(training.steps()), logs.loss(), training.learning_rate());
    return {};
  }
  Result<void> on_epoch_end(Training& training, const Logs& logs) override {
    for (const MetricValue& metric : logs.metrics()) std::printf("%s %g\n", metric.name.c_str(), metric.value);
    return training.model().save("epoch.keras");
  }
  Result<void> on_train_end(Training&) override { return {}; }
  bool needs_every_step() const override { return true; }
};

class Source final : public DataSource {
 public:
  Result<void> begin_epoch(int64_t) override { return {}; }
  Result<bool> next(Batch& batch) override {
    batch.x = x_;
    batch.y = {{"out", y_}};
    batch.sample_weight = {};
    return false;
  }

 private:
  std::vector<float> x_ = std::vector<float>(4);
  Array y_;
};

Result<Description> describe() {
  const Tensor in = layers::Input({32, 32, 3}, {.name = "in", .dtype = "float32"});
  Tensor x = layers::Rescaling(1.0 / 255, 0)(in);
  x = layers::Conv2D(8, {3, 3}, {.strides = 2, .padding = "same", .activation = "relu", .use_bias = false})(x);
  x = layers::BatchNormalization()(x);
  x = layers::DepthwiseConv2D(3)(layers::ZeroPadding2D()(x));
  x = layers::SeparableConv2D(8, 3)(x);
  x = layers::Conv2DTranspose(8, 3)(layers::UpSampling2D(2)(x));
  x = layers::MaxPooling2D()(layers::Cropping2D()(x));
  x = layers::Add()({x, layers::LayerNormalization()(x)});
  x = layers::Multiply()({x, layers::ReLU()(x), layers::LeakyReLU()(x), layers::ELU()(x)});
  x = layers::Concatenate({.axis = -1})({x, layers::AveragePooling2D({3, 3}, {.strides = 1, .padding = "same"})(x)});
  x = layers::Dropout(0.5)(layers::GlobalAveragePooling2D()(x));
  x = layers::Activation("gelu")(layers::Reshape({-1})(x));
  x = layers::Dense(
      4, {.kernel_initializer = "he_normal", .kernel_regularizer = regularizers::L2(1e-4), .name = "out"})(x);
  PLIMSOLL_ASSIGN(const Description model, functional({in}, {layers::Softmax()(x)}, "version_1"));
  PLIMSOLL_ASSIGN(const Description nested, sequential({layers::Input({32, 32, 3}), model, layers::Flatten()}));
  PLIMSOLL_ASSIGN(const Description frozen, nested.set_trainable("version_1/*", false));
  std::printf("%s %s %s %zu\n", frozen.name().c_str(), frozen.to_json().c_str(), frozen.compile_json().c_str(),
              frozen.layer_names().size());
  return frozen.compile(
      {.optimizer = optimizers::SGD({.learning_rate = schedules::CosineDecay(0.1, 100), .momentum = 0.9}),
       .loss = losses::CategoricalCrossentropy({.from_logits = false, .label_smoothing = 0.1}),
       .loss_weights = 1.0,
       .metrics = {"accuracy"}});
}

Result<void> run(const Description& description, const Options& options) {
  PLIMSOLL_ASSIGN(const Plan planned, plan(description, options));
  for (const PlanCategory& one : planned.categories)
    std::printf("%s %lld\n", one.name.c_str(), static_cast<long long>(one.bytes));
  PLIMSOLL_ASSIGN(Model model, Model::create(description, options));
  const Array x = random_uniform({32, 32, 32, 3}, 0), y = random_integers(4, {32}, 1);
  Source source;
  PLIMSOLL_ASSIGN(const History history,
                  model.fit(Data::arrays(x, y), {.epochs = 2,
                                                 .steps_per_epoch = 4,
                                                 .shuffle = true,
                                                 .validation = Data::from(source),
                                                 .callbacks = {std::make_shared<Watcher>()},
                                                 .early_stopping = EarlyStopping{.monitor = "val_loss", .patience = 2},
                                                 .reduce_lr_on_plateau = ReduceLROnPlateau{.factor = 0.5},
                                                 .save_best = SaveBest{.path = "best.keras"},
                                                 .checkpoint = "run"}));
  PLIMSOLL_TRY(model.step({.x = x.rows(0, 8), .y = y.rows(0, 8)}));
  PLIMSOLL_TRY(model.begin(8));
  PLIMSOLL_TRY(model.accumulate({.x = x, .y = y}));
  PLIMSOLL_TRY(model.apply());
  PLIMSOLL_ASSIGN(const Logs logs, model.evaluate(Data::arrays(x, y)));
  PLIMSOLL_ASSIGN(const std::vector<Array> predicted, model.predict(Data::arrays(x)));
  for (const WeightInfo& weight : model.weights()) {
    PLIMSOLL_ASSIGN(const Array values, model.weight(weight.name));
    PLIMSOLL_TRY(model.set_weight(weight.name, values));
  }
  PLIMSOLL_ASSIGN(const double rate, model.learning_rate());
  PLIMSOLL_TRY(model.set_learning_rate(rate));
  PLIMSOLL_TRY(model.save("model.keras"));
  PLIMSOLL_TRY(model.save_checkpoint("state"));
  PLIMSOLL_TRY(model.load_checkpoint("state"));
  std::printf("%lld %zu %g %zu\n", static_cast<long long>(model.iterations()), history.epochs.size(),
              logs.find("loss").value_or(0), predicted.size());
  return {};
}

}  // namespace

int main(int argc, char**) {
  if (argc < 2) return 0;  // it is compiled and linked; tests/outside/main.cpp is what runs
  const Options options{.batch_size = 8,
                        .gradient_accumulation_steps = 2,
                        .micro_batch = 4,
                        .budget = "1GiB",
                        .host_budget = "1GiB",
                        .device = "auto",
                        .precision = "float32",
                        .float32_layers = {"out"},
                        .forbid = {"offload"},
                        .allow = {},
                        .batchnorm = "exact",
                        .memory_growth = false,
                        .tf32 = true,
                        .input_shape = {},
                        .sample_weights = false,
                        .trains = true,
                        .inference_batch_size = 0,
                        .threads = 1,
                        .seed = 1};
  const auto done = run(require(describe()), options);
  if (!done) std::fputs(to_text(done.error()).c_str(), stderr);
  return done ? 0 : exit_code(done.error().code);
}
