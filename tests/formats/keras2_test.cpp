// Whole models in .h5, weights in .h5 and SavedModel folders, compared with those of Keras 2 (tests/golden/keras2).
#include <fmt/format.h>

#include "formats/keras/archive.h"
#include "formats/keras/upgrade.h"
#include "formats/saved_model/object_graph.h"
#include "formats/saved_model/protobuf.h"
#include "formats/saved_model/saved_model.h"
#include "formats/saved_model/table.h"
#include "tests/formats/support.h"

namespace plimsoll::engine {
namespace {

using test::slurp;
using test::spill;
using test::TempFolder;
using Json = nlohmann::json;

std::string keras2(const std::string& name) {
  return std::string(PLIMSOLL_SOURCE_DIR) + "/tests/golden/keras2/" + name;
}

const LayerWeights* layer_named(const KerasArchive& archive, const std::string& name) {
  for (const LayerWeights& layer : archive.by_layer->layers)
    if (layer.layer == name) return &layer;
  return nullptr;
}

TEST(LegacyH5, ListsItsWeightsByLayer) {
  const auto archive = open_keras(keras2("adam.h5"));
  ASSERT_OK(archive);
  EXPECT_EQ(archive->format, ModelFormat::kLegacyH5);
  EXPECT_EQ(archive->by_layer->root, "model_weights");
  ASSERT_NE(layer_named(*archive, "base"), nullptr);
  EXPECT_EQ(layer_named(*archive, "base")->tensors.size(), 6u);
  EXPECT_EQ(layer_named(*archive, "base")->tensors[0], "model_weights/base/conv2d/kernel:0");
  EXPECT_EQ(archive->by_layer->optimizer.iteration, "optimizer_weights/iteration:0");
  EXPECT_EQ(archive->by_layer->optimizer.order, StateOrder::kByWeight);
  EXPECT_TRUE(archive->by_layer->optimizer.states[1].find("/v/") != std::string::npos);
  EXPECT_EQ(archive->config["compile_config"]["optimizer"]["class_name"], "Adam");
}

TEST(LegacyH5, SortsTheStateOfOldOptimizersByWeight) {
  const auto archive = open_keras(keras2("old-adam.h5"));
  ASSERT_OK(archive);
  const OptimizerTensors& optimizer = archive->by_layer->optimizer;
  EXPECT_EQ(optimizer.order, StateOrder::kBySlot);
  ASSERT_EQ(optimizer.states.size() % 2, 0u);
  for (size_t i = 0; i < optimizer.states.size(); i += 2) {
    const std::string& m = optimizer.states[i];
    const std::string& v = optimizer.states[i + 1];
    ASSERT_TRUE(m.ends_with("/m:0") && v.ends_with("/v:0")) << m << " " << v;
    EXPECT_EQ(m.substr(0, m.size() - 4), v.substr(0, v.size() - 4));
  }
}

TEST(LegacyH5, IsWrittenWithTheSameLists) {
  const TempFolder folder;
  for (const std::string name : {"adam.h5", "old-momentum.h5"}) {
    const auto source = open_keras(keras2(name));
    ASSERT_OK(source);
    const auto attributes = legacy_attributes(source->legacy, *source->by_layer, source->by_layer->optimizer.listed);
    ASSERT_OK(write_weights_file(folder / name, {}, &*source->weights, attributes));
    const auto copy = open_keras(folder / name);
    ASSERT_OK(copy);
    EXPECT_EQ(copy->legacy.model_config, source->legacy.model_config);
    EXPECT_EQ(copy->legacy.training_config, source->legacy.training_config);
    EXPECT_EQ(copy->legacy.keras_version, source->legacy.keras_version);
    EXPECT_EQ(copy->by_layer->optimizer.listed, source->by_layer->optimizer.listed);
    ASSERT_EQ(copy->by_layer->layers.size(), source->by_layer->layers.size());
    for (size_t i = 0; i < copy->by_layer->layers.size(); ++i) {
      EXPECT_EQ(copy->by_layer->layers[i].layer, source->by_layer->layers[i].layer);
      EXPECT_EQ(copy->by_layer->layers[i].tensors, source->by_layer->layers[i].tensors);
    }
    EXPECT_EQ(copy->weights->datasets().size(), source->weights->datasets().size());
  }
}

TEST(LegacyH5, LongListsAreSplitAndReadBack) {
  const TempFolder folder;
  WeightsByLayer lists;
  std::vector<WeightEntry> entries;
  const float value = 1;
  for (int i = 0; i < 1000; ++i) {
    const std::string name = fmt::format("{:04}{}", i, std::string(200, 'n'));
    lists.layers.push_back({name, {name + "/w"}});
    entries.push_back({name + "/w", {DType::kFloat32, {}}, &value});
  }
  ASSERT_OK(write_weights_file(folder / "w.h5", entries, nullptr, legacy_attributes({}, lists, {})));
  KerasArchive archive;
  ASSERT_OK(take_weights(archive, folder / "w.h5"));
  ASSERT_TRUE(archive.by_layer);
  ASSERT_EQ(archive.by_layer->layers.size(), 1000u);
  EXPECT_EQ(archive.by_layer->layers[999].layer, lists.layers[999].layer);
}

TEST(LegacyH5, WeightsAloneAreNoModel) {
  EXPECT_FAILS(open_keras(keras2("weights.h5")), kNotAKerasFile, "holds weights, but no model");
  KerasArchive archive;
  ASSERT_OK(take_weights(archive, keras2("weights.h5")));
  EXPECT_TRUE(archive.by_layer);
  KerasArchive new_layout;
  ASSERT_OK(take_weights(new_layout, keras2("sequential.weights.h5")));
  EXPECT_FALSE(new_layout.by_layer);
  EXPECT_FAILS(take_weights(archive, keras2("sequential.json")), kNotAKerasFile, "has no weights");
}

TEST(LegacyH5, DamagedListsAreErrors) {
  const TempFolder folder;
  const std::string whole = slurp(keras2("momentum.h5"));
  const auto with = [&](const std::string& old, const std::string& now) {
    std::string text = whole;
    for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + 1))
      text.replace(at, old.size(), now);
    spill(folder / "m.h5", text);
    return open_keras(folder / "m.h5");
  };
  EXPECT_FAILS(with("weight_names", "weight_nameZ"), kBadWeightsFile, "no list of weight_names");
  EXPECT_FAILS(with("layer_names", "layer_nameZ"), kNotAKerasFile, "m.h5");
  EXPECT_FAILS(with("{\"class_name\": \"Functional\"", "{\"class_name\": \"Functional}"), kBadConfig, "model_config");
  EXPECT_FAILS(with("GCOL", "GCOl"), kBadWeightsFile, "global heap");
  for (size_t bytes = 0; bytes < whole.size(); bytes += 911) {
    spill(folder / "cut.h5", whole.substr(0, bytes));
    const auto cut = open_keras(folder / "cut.h5");
    ASSERT_FALSE(cut) << bytes;
  }
}

TEST(SavedModel, ListsItsWeightsByLayer) {
  for (const std::string name : {"saved-model", "old-saved-model"}) {
    const auto archive = open_keras(keras2(name));
    ASSERT_OK(archive);
    EXPECT_EQ(archive->format, ModelFormat::kSavedModel);
    ASSERT_NE(layer_named(*archive, "separable"), nullptr);
    EXPECT_EQ(layer_named(*archive, "separable")->tensors.size(), 3u);
    const OptimizerTensors& optimizer = archive->by_layer->optimizer;
    int64_t iteration = 0;
    ASSERT_OK(archive->tensors()->read_into(optimizer.iteration, {DType::kInt64, {}}, &iteration));
    EXPECT_EQ(iteration, 3);
    const auto h5 = open_keras(keras2(name == "saved-model" ? "adam.h5" : "old-adam.h5"));
    ASSERT_OK(h5);
    ASSERT_EQ(optimizer.states.size(), h5->by_layer->optimizer.states.size());
    for (size_t i = 0; i < optimizer.states.size(); ++i) {
      const auto type = archive->tensors()->type_of(optimizer.states[i]);
      ASSERT_TRUE(type);
      std::vector<float> a(static_cast<size_t>(type->shape.elements())), b(a.size());
      ASSERT_OK(archive->tensors()->read_into(optimizer.states[i], *type, a.data()));
      ASSERT_OK(h5->tensors()->read_into(h5->by_layer->optimizer.states[i], *type, b.data()));
      EXPECT_EQ(a, b) << optimizer.states[i];
    }
  }
}

class SavedModelFolder : public testing::Test {
 protected:
  SavedModelFolder() {
    std::filesystem::copy(keras2("saved-model"), folder_ / "m", std::filesystem::copy_options::recursive);
  }
  std::string file(const std::string& name) const { return folder_ / ("m/" + name); }
  void edit(const std::string& name, const std::function<void(std::string&)>& change) const {
    std::string text = slurp(file(name));
    change(text);
    spill(file(name), text);
  }
  TempFolder folder_;
  const std::string index_ = "variables/variables.index", data_ = "variables/variables.data-00000-of-00001";
};

TEST_F(SavedModelFolder, WithoutMetadataIsRefusedWithTheWayBack) {
  std::filesystem::remove(file("keras_metadata.pb"));
  EXPECT_FAILS(open_keras(folder_ / "m"), kNotAKerasFile, "no saved_model.pb");
  spill(file("saved_model.pb"), "");
  EXPECT_FAILS(open_keras(folder_ / "m"), kNotAKerasFile, "model.export");
  EXPECT_FAILS(open_keras(folder_ / "m"), kNotAKerasFile, "model.save('model.keras')");
}

TEST_F(SavedModelFolder, AChangedTensorIsFoundByItsChecksum) {
  edit(data_, [](std::string& text) { text[40] ^= 1; });  // in a weight: the object graph lies behind them
  const auto archive = open_keras(folder_ / "m");
  ASSERT_OK(archive);
  int failed = 0;
  for (const auto& entry : archive->bundle->entries()) {
    if (entry.text) continue;
    std::vector<std::byte> buffer(static_cast<size_t>(entry.type.bytes()));
    failed += !archive->bundle->read_into(entry.name, entry.type, buffer.data());
  }
  EXPECT_EQ(failed, 1);
}

TEST_F(SavedModelFolder, DamageIsAnError) {
  const std::string index = slurp(file(index_)), metadata = slurp(file("keras_metadata.pb"));
  for (size_t bytes = 0; bytes < index.size(); bytes += 97) {
    spill(file(index_), index.substr(0, bytes));
    EXPECT_FAILS(open_keras(folder_ / "m"), kBadWeightsFile, "variables.index");
  }
  spill(file(index_), index);
  edit(data_, [](std::string& text) { text.resize(100); });
  EXPECT_FAILS(open_keras(folder_ / "m"), kBadWeightsFile, "would lie outside");
  spill(file("keras_metadata.pb"), metadata.substr(0, metadata.size() - 3));
  EXPECT_FAILS(open_keras(folder_ / "m"), kBadConfig, "keras_metadata.pb");
  spill(file("keras_metadata.pb"), "");
  EXPECT_FAILS(open_keras(folder_ / "m"), kBadConfig, "root");
}

TEST(Protobuf, EveryCutIsNoticed) {
  const std::string message(
      "\x0a\x03"
      "abc"
      "\x10\x96\x01"
      "\x1d\x01\x02\x03\x04"
      "\x21\x01\x02\x03\x04\x05\x06\x07\x08",
      22);
  ProtoReader whole(bytes_of_text(message));
  int fields = 0;
  while (whole.next()) ++fields;
  EXPECT_TRUE(whole.ok());
  EXPECT_EQ(fields, 4);
  for (const size_t bytes : {1, 2, 4, 6, 7, 9, 12, 14, 21}) {
    ProtoReader cut(bytes_of_text(std::string_view(message).substr(0, bytes)));
    while (cut.next()) {
    }
    EXPECT_FALSE(cut.ok()) << bytes;
  }
}

TEST(Checksum, IsCrc32c) {
  EXPECT_EQ(crc32c(0, bytes_of_text("123456789")), 0xe3069283U);  // the check value of the algorithm
  EXPECT_EQ(crc32c(crc32c(0, bytes_of_text("12345")), bytes_of_text("6789")), 0xe3069283U);
}

TEST(Upgrade, OldSequentialModelsGetTheirInputLayer) {
  const Json old = Json::parse(R"({"class_name": "Sequential", "config": [
      {"class_name": "Dense", "config": {"name": "d", "units": 2, "batch_input_shape": [null, 3], "dtype": "float32"}}]})");
  ASSERT_TRUE(is_legacy_config(old));
  const Json now = upgrade_model(old);
  ASSERT_EQ(now["config"]["layers"].size(), 2u);
  EXPECT_EQ(now["config"]["layers"][0]["config"]["batch_shape"], Json::parse("[null, 3]"));
  EXPECT_FALSE(now["config"]["layers"][1]["config"].contains("batch_input_shape"));
  EXPECT_FALSE(is_legacy_config(now));
}

TEST(Upgrade, OldOptimizersDecayAsASchedule) {
  const Json now =
      upgrade_training(Json::parse(R"({"optimizer_config": {"class_name": "Custom>SGD", "config": {"lr": 0.1,
      "decay": 0.01}}, "loss": {"class_name": "MeanSquaredError", "config": {"reduction": "auto", "fn": "x"}}, "metrics":
      [[{"class_name": "MeanMetricWrapper", "config": {"name": "accuracy", "fn": "binary_accuracy"}},
        {"class_name": "MeanMetricWrapper", "config": {"name": "e", "fn": "mean_absolute_error"}}]]})"));
  EXPECT_EQ(now["optimizer"]["class_name"], "SGD");
  EXPECT_EQ(now["optimizer"]["config"]["learning_rate"]["class_name"], "InverseTimeDecay");
  EXPECT_EQ(now["optimizer"]["config"]["learning_rate"]["config"]["initial_learning_rate"], 0.1);
  EXPECT_EQ(now["loss"]["config"], Json::parse(R"({"reduction": "sum_over_batch_size"})"));
  EXPECT_EQ(now["metrics"][0], "accuracy");
  EXPECT_EQ(now["metrics"][1]["class_name"], "MeanAbsoluteError");
}

Json with_function(const std::string& function, const std::string& nodes) {
  return upgrade_model(Json::parse(fmt::format(
      R"({{"class_name": "Functional", "config": {{"layers": [
        {{"class_name": "InputLayer", "name": "x", "config": {{"name": "x", "batch_input_shape": [null, 4, 6]}}, "inbound_nodes": []}},
        {{"class_name": "TFOpLambda", "name": "s", "config": {{"name": "s", "function": "compat.v1.shape"}}, "inbound_nodes": [["x", 0, 0, {{}}]]}},
        {{"class_name": "SlicingOpLambda", "name": "b", "config": {{"name": "b", "function": "__operators__.getitem"}},
          "inbound_nodes": [["s", 0, 0, {{"slice_spec": 0}}]]}},
        {{"class_name": "TFOpLambda", "name": "f", "config": {{"name": "f", "function": "{}"}}, "inbound_nodes": [{}]}}],
        "input_layers": [["x", 0, 0]], "output_layers": [["f", 0, 0]]}}}})",
      function, nodes)))["config"]["layers"];
}

TEST(Upgrade, FunctionsBecomeOperations) {
  const Json scaled =
      with_function("math.multiply", R"(["_CONSTANT_VALUE", -1, 2.5, {"y": ["x", 0, 0], "name": null}])");
  ASSERT_EQ(scaled.size(), 2u);  // nothing reads the sizes
  EXPECT_EQ(scaled[1]["class_name"], "Multiply");
  EXPECT_EQ(scaled[1]["inbound_nodes"][0]["args"][0], 2.5);
  EXPECT_EQ(scaled[1]["inbound_nodes"][0]["args"][1]["config"]["keras_history"], Json::parse(R"(["x", 0, 0])"));
  const Json joined = with_function("concat", R"([["x", 0, 0, {"axis": 1}], ["x", 0, 0, {"axis": 1}]])");
  EXPECT_EQ(joined[1]["config"]["axis"], 1);
  EXPECT_EQ(joined[1]["inbound_nodes"][0]["args"][0].size(), 2u);
  const Json product = with_function("linalg.matmul", R"(["x", 0, 0, {"b": ["x", 0, 0], "transpose_b": true}])");
  ASSERT_EQ(product.size(), 3u);
  EXPECT_EQ(product[1]["class_name"], "Swapaxes");
  EXPECT_EQ(product[2]["inbound_nodes"][0]["args"][1]["config"]["keras_history"][0], product[1]["name"]);
}

TEST(Upgrade, ABatchSizeInAShapeKeepsTheBatch) {
  const Json shaped = with_function("reshape", R"(["x", 0, 0, {"shape": [["b", 0, 0], -1, 3]}])");
  ASSERT_EQ(shaped.size(), 2u);
  EXPECT_EQ(shaped[1]["module"], "keras.layers");
  EXPECT_EQ(shaped[1]["config"]["target_shape"], Json::parse("[-1, 3]"));
}

Json upgraded_layer(const std::string& layer) {
  return upgrade_model(
      Json::parse(R"({"class_name": "Functional", "config": {"layers": [)" + layer + "]}}"))["config"]["layers"][0];
}

TEST(Upgrade, TensorsByNameAndStatesBecomeArguments) {
  const Json attention = upgraded_layer(R"({"class_name": "MultiHeadAttention", "name": "m", "config": {},
      "inbound_nodes": [[["q", 0, 0, {"value": ["v", 0, 0], "training": null}]]]})")["inbound_nodes"][0];
  EXPECT_EQ(attention["args"][0]["config"]["keras_history"][0], "q");
  EXPECT_EQ(attention["kwargs"]["value"]["config"]["keras_history"][0], "v");
  const Json decoder = upgraded_layer(R"({"class_name": "LSTM", "name": "d", "config": {},
      "inbound_nodes": [[["x", 0, 0, {}], ["e", 0, 1, {}], ["e", 0, 2, {}]]]})")["inbound_nodes"][0];
  EXPECT_EQ(decoder["args"].size(), 1u);
  ASSERT_EQ(decoder["kwargs"]["initial_state"].size(), 2u);
  EXPECT_EQ(decoder["kwargs"]["initial_state"][1]["config"]["keras_history"], Json::parse(R"(["e", 0, 2])"));
  const Json sum = upgraded_layer(R"({"class_name": "Add", "name": "a", "config": {},
      "inbound_nodes": [[["x", 0, 0, {}], ["e", 0, 0, {}]]]})");
  EXPECT_TRUE(sum["inbound_nodes"][0].is_array());  // Keras 3 reads this form
}

TEST(Upgrade, ThresholdedReLUIsAReLU) {
  const Json relu = upgraded_layer(R"({"class_name": "ThresholdedReLU", "name": "t", "config": {"theta": 0.5}})");
  EXPECT_EQ(relu["class_name"], "ReLU");
  EXPECT_EQ(relu["config"]["threshold"], 0.5);
}

TEST(Upgrade, FunctionsWithoutCounterpartStay) {
  for (const auto& [function, nodes] : std::initializer_list<std::pair<const char*, const char*>>{
           {"nn.dropout", R"(["x", 0, 0, {"rate": 0.5}])"},
           {"math.cumsum", R"(["x", 0, 0, {"reverse": true}])"},
           {"compat.v1.gather", R"(["x", 0, 0, {"indices": [0], "batch_dims": 1}])"},
           {"math.add", R"(["x", 0, 0, {}])"},
           {"math.add", R"(["x", 0, 0, {"y": 1, "z": 2}])"},
           {"math.add", R"(["x", 0])"},
           {"reshape", R"(["x", 0, 0, {"shape": [["b", 0, 0], ["b", 0, 0]]}])"},
           {"math.exp", R"(["x", 0, 0, {}], ["x", 0, 0, {}])"},  // two calls
           {"math.exp", "3"},
           {"math.exp", "[]"}})
    EXPECT_EQ(with_function(function, nodes).back()["class_name"], "TFOpLambda") << function << " " << nodes;
}

TEST(Upgrade, AnyJsonIsTaken) {
  for (const char* text :
       {"null", "[]", "3", "\"x\"", "{}", R"({"class_name": 3, "config": 4})",
        R"({"class_name": "Sequential", "config": {"layers": [3, {"class_name": "Dense", "config": 1}]}})",
        R"({"class_name": "Model", "config": {"layers": [{"inbound_nodes": [[3, ["a", "b", 1]]]}],
                               "output_layers": [["a"], 3]}})",
        R"({"class_name": "Model", "config": {"layers": [3, null, {"class_name": "TFOpLambda", "config": 3,
                               "inbound_nodes": [["a", 0, 0, {"y": ["b", 1, {}]}]]}]}})",
        R"({"class_name": "__tuple__", "items": 3, "config": {}})"}) {
    upgrade_model(Json::parse(text));
    upgrade_training(Json::parse(text));
    training_of(Json::parse(text));
  }
}

}  // namespace
}  // namespace plimsoll::engine
