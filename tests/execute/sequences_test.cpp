// Models of sequences, with masks: every device trains them alike, and uses the arena that was planned.
#include "plimsoll/recurrent_layers.h"
#include "tests/support/run.h"

#include "data/random.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kBatch = 10, kSteps = 3, kLength = 13;
constexpr int32_t kVocabulary = 20;

using plimsoll::Tensor;

Tensor tokens(const Tensor& ids) {
  return layers::Embedding(kVocabulary, 16, {.mask_zero = true})(ids);
}
Tensor ids_input() {
  return layers::Input({kLength}, {.dtype = "int32"});
}
plimsoll::Description classifier(const Tensor& ids, const Tensor& features) {
  return require(functional({ids}, {layers::Dense(4, {.activation = "softmax"})(features)}));
}

plimsoll::Description bidirectional() {
  const Tensor ids = ids_input();
  const Tensor x = layers::Bidirectional(layers::LSTM(32, {.return_sequences = true}))(tokens(ids));
  return classifier(ids, layers::GRU(24)(x));
}

plimsoll::Description every_cell() {
  const Tensor ids = ids_input();
  Tensor x = layers::SimpleRNN(12, {.return_sequences = true, .go_backwards = true})(tokens(ids));
  x = layers::GRU(10, {.return_sequences = true, .reset_after = false})(x);
  return classifier(ids, layers::LSTM(8)(x));
}

plimsoll::Description with_dropout() {
  const Tensor ids = ids_input();
  const Tensor x = layers::LSTM(16, {.dropout = 0.2, .recurrent_dropout = 0.3, .return_sequences = true})(tokens(ids));
  return classifier(ids, layers::GRU(16, {.dropout = 0.3, .recurrent_dropout = 0.2})(x));
}

plimsoll::Description transformer() {
  const Tensor ids = ids_input(), x = tokens(ids);
  const Tensor y = layers::MultiHeadAttention(2, 8, {.use_causal_mask = true})({x, x});
  const Tensor z = layers::LayerNormalization()(layers::Add()({x, y}));
  return classifier(ids, layers::GlobalAveragePooling1D()(z));
}

struct Example {
  const char* name;
  plimsoll::Description (*model)();
};
constexpr Example kExamples[] = {{"bidirectional", bidirectional},
                                 {"every_cell", every_cell},
                                 {"with_dropout", with_dropout},
                                 {"transformer", transformer}};

// Sequences of different lengths: zeros stand for no token.
std::vector<int32_t> draw_tokens() {
  constexpr int64_t kSamples = kBatch * kSteps;
  std::vector<int32_t> ids = random_integers(kVocabulary - 1, kSamples * kLength, 3);
  for (int64_t n = 0; n < kSamples; ++n)
    for (int64_t t = 0; t < kLength; ++t) {
      int32_t& id = ids[static_cast<size_t>(n * kLength + t)];
      id = t < kLength - n % 9 ? id + 1 : 0;
    }
  return ids;
}

// The losses of all steps. The arena used must be the one planned.
std::vector<double> losses_of(const Example& example, const RunOptions& options) {
  const auto run = run_of(example.model(), optimizers::SGD(0.1), losses::SparseCategoricalCrossentropy(), options);
  const std::vector<int32_t> ids = draw_tokens(), labels = random_integers(4, kBatch * kSteps, 5);
  MemoryArrays arrays;
  arrays.inputs.push_back({"x", ids.data(), DType::kInt32, {kBatch * kSteps, kLength}});
  arrays.targets.push_back({"y", labels.data(), DType::kInt32, {kBatch * kSteps}});
  const ColumnSource data =
      require(ColumnSource::create(require(wrap_data(arrays, data_spec(run->open.model, true))), {}));
  std::vector<double> list;
  for (int64_t i = 0; i < kSteps; ++i) list.push_back(run->step(data, i * kBatch, kBatch));
  EXPECT_EQ(run->session->arena_peak_bytes(), run->plan().arena_bytes) << example.name << " on " << options.device;
  return list;
}

RunOptions options_for(const std::string& device, const std::string& precision = "") {
  RunOptions options;
  options.device = device;
  options.batch_size = kBatch;
  options.precision = precision;
  return options;
}

TEST(Sequences, TrainAlikeOnEveryDevice) {
  for (const Example& example : kExamples) {
    const std::vector<double> want = losses_of(example, options_for("reference"));
    for (const std::string& device : devices())
      EXPECT_LE(relative_difference(losses_of(example, options_for(device)), want), 1e-5)
          << example.name << " on " << device;
  }
}

TEST(Sequences, TrainInHalfPrecisionOnEveryDevice) {
  for (const Example& example : kExamples) {
    const std::vector<double> want = losses_of(example, options_for("reference"));
    for (const std::string& device : devices()) {
      if (device == "reference") continue;
      for (const char* precision : {"mixed_bfloat16", "mixed_float16"})
        EXPECT_LE(relative_difference(losses_of(example, options_for(device, precision)), want), 1e-2)
            << example.name << " on " << device << " in " << precision;
    }
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
