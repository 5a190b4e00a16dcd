// A program that knows nothing of Plimsoll but its public headers, as another project would write it: a functional
// model with two inputs, trained from a data loop whose length nobody knows, with callbacks that change the rate and
// stop; evaluated, used, saved and loaded again. Then everything is misused: each misuse must be an error that speaks
// of the interface, and must not end the program. tests/cli/test_install.py builds it, and compares what it saved with
// Keras.
#include <plimsoll/plimsoll.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>

using namespace plimsoll;

namespace {

constexpr int64_t kSamples = 40, kBatch = 8;

void check(bool right, const char* what) {
  if (right) return;
  std::printf("WRONG: %s\n", what);
  std::exit(1);
}

struct Samples {
  Array image = random_uniform({kSamples, 8, 8, 1}, 1), age = random_uniform({kSamples, 3}, 2);
  Array price = random_uniform({kSamples, 1}, 3);

  Batch rows(int64_t first, int64_t count) const {
    return {.x = {{"age", age.rows(first, count)}, {"image", image.rows(first, count)}}, .y = price.rows(first, count)};
  }
  Data all() const { return Data::arrays({image, age}, price); }
};

Description two_inputs() {
  const Tensor image = layers::Input({8, 8, 1}, {.name = "image"}), age = layers::Input({3}, {.name = "age"});
  Tensor x = layers::Conv2D(4, 3, {.activation = "relu", .name = "conv"})(image);
  x = layers::Flatten()(x);
  x = layers::Concatenate()({x, age});
  x = layers::Dense(8, {.activation = "relu", .kernel_regularizer = regularizers::L2(1e-4)})(x);
  const auto model = require(functional({image, age}, {layers::Dense(1, {.name = "price"})(x)}, "outside"));
  return require(
      model.compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}), .loss = "mse", .metrics = {"mae"}}));
}

void write(const char* path, const Array& array) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(array.bytes().data()), static_cast<std::streamsize>(array.bytes().size()));
}

Model train(const Samples& samples, const Options& options) {
  Model model = require(Model::create(two_inputs(), options));
  check(model.plan().peak_bytes == model.plan().arena_bytes + model.plan().overhead_bytes + model.plan().data_bytes,
        "the plan adds up");
  const double before = require(model.evaluate(samples.all())).loss();

  int64_t left = 13;  // batches, of 8 and 5 samples: only the source knows
  const auto next = [&](int64_t /*epoch*/, Batch& batch) -> Result<bool> {
    if (left-- == 0) return left = 13, false;
    batch = samples.rows(left % 3 * kBatch, left % 2 == 0 ? kBatch : 5);
    return true;
  };
  int64_t seen = 0;
  const auto watch = std::make_shared<callbacks::Lambda>([&](Training& training, const Logs& logs) -> Result<void> {
    check(std::isfinite(logs.loss()), "a finite loss");
    if (++seen == 20) return training.set_learning_rate(0.001);
    if (seen == 30) training.stop();
    return {};
  });
  const History history = require(model.fit(Data::from(next), {.epochs = 10, .callbacks = {watch}}));
  check(history.stopped && history.steps == 30 && history.epochs.size() == 3, "stopped by a callback");
  check(require(model.learning_rate()) == 0.001, "the rate that a callback set");
  check(model.arena_peak_bytes() == model.plan().arena_bytes, "planned == measured");
  check(require(model.evaluate(samples.all())).loss() < before, "training helps");
  return model;
}

void use(Model& model, const Samples& samples) {
  const Array bias = require(model.weight("price/bias"));
  Array changed = bias;
  require(changed.values<float>())[0] += 1;
  const float was = require(require(model.predict(samples.all()))[0].values<float>())[0];
  require(model.set_weight("price/bias", changed));
  const float is = require(require(model.predict(samples.all()))[0].values<float>())[0];
  check(std::abs(is - was - 1) < 1e-5F, "a weight that was set");
  require(model.set_weight("price/bias", bias));

  require(model.save("outside.keras"));
  write("image.bin", samples.image);
  write("age.bin", samples.age);
  write("predicted.bin", require(model.predict(samples.all()))[0]);
  Model loaded = require(Model::load("outside.keras", {.batch_size = kBatch, .budget = "2GiB"}));
  check(loaded.iterations() == model.iterations(), "iterations are loaded");
  const double gap = require(loaded.evaluate(samples.all())).loss() - require(model.evaluate(samples.all())).loss();
  check(std::abs(gap) < 1e-5, "a loaded model evaluates alike");
}

int misuses = 0;

template <typename T>
void refused(const Result<T>& result, const char* what) {
  check(!result.has_value(), what);
  const std::string text = to_text(result.error());
  check(text.find("--") == std::string::npos, text.c_str());  // speaks of the interface, not of flags
  check(result.error().code != ErrorCode::kInternal, text.c_str());
  ++misuses;
}

void misuse(Model& model, const Samples& samples) {
  const Description good = two_inputs();
  const std::vector<float> few = {1, 2, 3}, nan(kBatch, NAN);
  const std::vector<int32_t> whole(kBatch * 3, 1);
  const Batch batch = samples.rows(0, kBatch);
  refused(Description::load("nosuch.keras"), "a file that is missing");
  refused(Description::from_json("{"), "text that is not JSON");
  refused(Description::from_json("[]"), "JSON that is not a model");
  refused(Description::builtin("nosuch"), "a built-in model that does not exist");
  refused(sequential({}), "no layers");
  refused(sequential({layers::Input({4}), layers::Dense(-1)}), "negative units");
  refused(sequential({layers::Input({4}), layers::Dropout(NAN)}), "NaN");
  refused(sequential({layers::Input({4}), layers::Custom("Dense", "{")}), "a configuration that is not JSON");
  refused(sequential({layers::Input({4}), layers::Dense(1, {.activation = "\xff"})}), "text that is not UTF-8");
  refused(functional({}, {}), "no tensors");
  refused(functional({layers::Input({4})}, {layers::Input({4})}), "an output without its input");
  refused(good.compile({.loss = "nosuch"}), "a loss that does not exist");
  refused(good.set_trainable("nosuch", false), "a layer that does not exist");
  refused(Model::create(good, {.batch_size = 0}), "batch 0");
  refused(Model::create(good, {.batch_size = std::numeric_limits<int64_t>::max()}), "an endless batch");
  refused(Model::create(good, {.budget = "1KiB"}), "a tiny budget");
  refused(Model::create(good, {.budget = "lots"}), "a budget that is not a size");
  refused(Model::create(good, {.device = "toaster"}), "a device that does not exist");
  refused(Model::create(good, {.precision = "float7"}), "a precision that does not exist");
  refused(Model::create(good, {.forbid = {"nosuch"}}), "a lever that does not exist");
  refused(Model::create(good, {.threads = -1}), "threads below 0");
  refused(model.step({}), "no arrays");
  refused(model.step({.x = batch.x}), "no targets");
  refused(model.step({.x = few, .y = batch.y}), "one array for two inputs");
  refused(model.step({.x = {{"image", few}, {"nosuch", few}}, .y = batch.y}), "an input that does not exist");
  refused(model.step({.x = {{"age", few}, {"image", few}}, .y = batch.y}), "other shapes");
  refused(model.step({.x = batch.x, .y = few}), "fewer targets than samples");
  refused(model.step({.x = batch.x, .y = nan}), "NaN among the targets");
  refused(model.step({.x = batch.x, .y = batch.y, .sample_weight = nan}), "weights that were not planned for");
  refused(model.step({.x = {{"age", ArrayView(few.data(), 3, "float31", {1, 3})}, {"image", few}}, .y = few}),
          "a dtype");
  refused(model.step(samples.rows(0, kSamples)), "more samples than the batch");
  refused(model.fit(Data()), "no data");
  refused(model.fit(samples.all(), {.epochs = -1}), "epochs below 0");
  refused(model.fit(samples.all(), {.validation_split = 2}), "a split above 1");
  refused(model.fit(samples.all(), {.early_stopping = EarlyStopping{"nosuch"}}), "a metric that does not exist");
  refused(model.fit(samples.all(), {.resume = true}), "nothing to resume from");
  refused(model.apply(), "apply without begin");
  refused(model.begin(-1), "a window below 1");
  refused(model.weight("nosuch"), "a weight that does not exist");
  refused(model.set_weight("price/bias", whole), "a weight of another shape");
  refused(model.set_learning_rate(NAN), "a rate that is not a number");
  refused(model.save("/nosuch/folder/m.keras"), "a folder that does not exist");
  refused(model.load_checkpoint("nosuch.state"), "a checkpoint that does not exist");
  refused(Array::zeros({-1}), "a negative length");
  refused(Array::zeros({int64_t{1} << 62}), "an array beyond memory");
  refused(samples.image.values<int32_t>(), "elements of another type");
  check(model.step(batch).has_value(), "the model still works");
}

}  // namespace

int main(int argc, char** argv) {
  const Samples samples;
  const Options options{.batch_size = kBatch, .budget = "2GiB", .device = argc > 1 ? argv[1] : "auto"};
  Model model = train(samples, options);
  use(model, samples);
  misuse(model, samples);
  std::printf("plimsoll %s, %d misuses refused\n", PLIMSOLL_VERSION, misuses);
}
