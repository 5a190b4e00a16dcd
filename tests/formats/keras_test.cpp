// .keras files, compared with those that Keras 3.0.0 and 3.15.1 wrote (tests/golden/formats/make.py).
#include <fmt/format.h>

#include <numeric>

#include "formats/json/parse.h"
#include "formats/keras/archive.h"
#include "formats/keras/layer_paths.h"
#include "formats/zip/zip_writer.h"
#include "tests/formats/support.h"
#include "tests/formats/write_zip.h"

namespace plimsoll::engine {
namespace {

using test::FileSizeLimit;
using test::golden;
using test::slurp;
using test::spill;
using test::TempFolder;
using test::write_zip;

std::vector<float> read_floats(const WeightsFile& weights, const Dataset& dataset) {
  std::vector<float> out(static_cast<size_t>(dataset.type.shape.elements()));
  EXPECT_OK(weights.read_into(dataset.path, {DType::kFloat32, dataset.type.shape}, out.data()));
  return out;
}

struct Case {
  std::string version, model;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.model << "-" << c.version;
}

class KerasFile : public testing::TestWithParam<Case> {
 protected:
  std::string path() const { return golden(fmt::format("{}-{}.keras", GetParam().model, GetParam().version)); }
  nlohmann::json expected() const {
    return nlohmann::json::parse(slurp(golden(fmt::format("expected-{}.json", GetParam().version))))[GetParam().model];
  }
};

void expect_layers(const KerasArchive& archive, const nlohmann::json& expected, float plus) {
  const auto paths = layer_paths(archive.config);
  ASSERT_OK(paths);
  size_t found = 0;
  for (const auto& path : *paths) {
    if (path.is_model) continue;
    const auto name = fmt::format("{}", fmt::join(path.layer_names, "/"));
    const auto datasets = archive.weights->under(path.group + "/vars");
    if (!expected.contains(name)) {
      ADD_FAILURE() << name;
      continue;
    }
    ++found;
    ASSERT_EQ(datasets.size(), expected[name].size()) << name;
    for (size_t i = 0; i < datasets.size(); ++i) {
      auto want = expected[name][i].get<std::vector<float>>();
      for (auto& value : want) value += plus;
      EXPECT_EQ(read_floats(*archive.weights, *datasets[i]), want) << name << " " << i;
    }
  }
  EXPECT_EQ(found, expected.size());
}

TEST_P(KerasFile, EveryLayersWeightsAreWhereThePathSays) {
  const auto archive = open_keras(path());
  ASSERT_OK(archive);
  EXPECT_NE(archive->metadata_text.find(GetParam().version), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(archive->config_text), archive->config);
  expect_layers(*archive, expected()["layers"], 0);
}

TEST_P(KerasFile, OptimizerVariablesComeInOrder) {
  const auto archive = open_keras(path());
  ASSERT_OK(archive);
  const auto variables = optimizer_variables(*archive->weights);
  const auto want = expected()["optimizer"];
  ASSERT_EQ(variables.size(), want.size());
  int64_t iterations = 0;
  ASSERT_OK(archive->weights->read_into(variables[0].path, {DType::kInt64, {}}, &iterations));
  EXPECT_EQ(iterations, 2);
  for (size_t i = 1; i < variables.size(); ++i) {
    EXPECT_EQ(variables[i].index, static_cast<int>(i));
    EXPECT_EQ(read_floats(*archive->weights, *archive->weights->find(variables[i].path)),
              want[i].get<std::vector<float>>());
  }
}

// Writes every weight plus one and every optimizer variable plus two (including the iteration), then reads them back.
// If PLIMSOLL_KEEP is set, the file is kept, so that Keras can load it.
TEST_P(KerasFile, IsWrittenBackWithNewWeights) {
  const TempFolder folder;
  const auto out = folder / fmt::format("{}-{}.keras", GetParam().model, GetParam().version);
  {
    const auto source = open_keras(path());
    ASSERT_OK(source);
    std::vector<std::vector<float>> values;
    std::vector<WeightEntry> entries;
    const int64_t iterations = 4;
    for (const auto& dataset : source->weights->datasets()) {
      if (dataset.type.dtype == DType::kInt64) {
        entries.push_back({dataset.path, dataset.type, &iterations});
        continue;
      }
      values.push_back(read_floats(*source->weights, dataset));
      for (auto& value : values.back()) value += dataset.path.starts_with("optimizer/") ? 2.0f : 1.0f;
      entries.push_back({dataset.path, dataset.type, values.back().data()});
    }
    ASSERT_OK(write_keras(out, {source->config_text, source->metadata_text, entries, &*source}));
  }
  const auto archive = open_keras(out);
  ASSERT_OK(archive);
  EXPECT_EQ(archive->config_text, open_keras(path()).value().config_text);
  expect_layers(*archive, expected()["layers"], 1);
  const auto variables = optimizer_variables(*archive->weights);
  ASSERT_EQ(variables.size(), expected()["optimizer"].size());
  int64_t iterations = 0;
  ASSERT_OK(archive->weights->read_into(variables[0].path, {DType::kInt64, {}}, &iterations));
  EXPECT_EQ(iterations, 4);
}

TEST_P(KerasFile, WithoutEntriesIsCopiedWhole) {
  const TempFolder folder;
  const auto source = open_keras(path());
  ASSERT_OK(source);
  ASSERT_OK(write_keras(folder / "copy.keras", {source->config_text, source->metadata_text, {}, &*source}));
  const auto copy = open_keras(folder / "copy.keras");
  ASSERT_OK(copy);
  ASSERT_EQ(copy->weights->datasets().size(), source->weights->datasets().size());
  for (const auto& dataset : source->weights->datasets()) {
    const auto* other = copy->weights->find(dataset.path);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(other->type, dataset.type);
    EXPECT_EQ(read_floats(*copy->weights, *other), read_floats(*source->weights, dataset));
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, KerasFile,
                         testing::Values(Case{"3.0.0", "sequential"}, Case{"3.0.0", "functional"},
                                         Case{"3.15.1", "sequential"}, Case{"3.15.1", "functional"}));

TEST(Keras, AShorterOptimizerReplacesTheWholeOfTheOldOne) {
  const TempFolder folder;
  const auto source = open_keras(golden("functional-3.15.1.keras"));
  ASSERT_OK(source);
  const int64_t iterations = 0;
  const std::vector<WeightEntry> entries = {{optimizer_path(0), {DType::kInt64, {}}, &iterations}};
  ASSERT_OK(write_keras(folder / "m.keras", {source->config_text, source->metadata_text, entries, &*source}));
  const auto written = open_keras(folder / "m.keras");
  ASSERT_OK(written);
  EXPECT_EQ(optimizer_variables(*written->weights).size(), 1u);
  EXPECT_EQ(written->weights->under("layers").size(), source->weights->under("layers").size());
}

TEST(Keras, OtherEntriesOfTheArchiveAreKept) {
  const TempFolder folder;
  {
    const auto zip = ZipReader::open(golden("sequential-3.15.1.keras"), ErrorCode::kNotAKerasFile);
    auto file = AtomicFile::create(folder / "in.keras");
    ZipWriter writer(*file);
    for (const auto& entry : zip->entries()) ASSERT_OK(writer.add_text(entry.name, zip->text(entry, kMiB).value()));
    ASSERT_OK(writer.add_text("assets/layers/text_vectorization/vocabulary.txt", "a\nb\n"));
    ASSERT_OK(writer.finish());
    ASSERT_OK(file->commit());
  }
  const auto source = open_keras(folder / "in.keras");
  ASSERT_OK(source);
  ASSERT_OK(write_keras(folder / "in.keras", {source->config_text, source->metadata_text, {}, &*source}));
  const auto zip = ZipReader::open(folder / "in.keras", ErrorCode::kNotAKerasFile);
  ASSERT_OK(zip);
  const auto* vocabulary = zip->find("assets/layers/text_vectorization/vocabulary.txt");
  ASSERT_NE(vocabulary, nullptr);
  EXPECT_EQ(zip->text(*vocabulary, 100).value(), "a\nb\n");
}

TEST(Keras, AModelWithoutASourceIsWritten) {
  const TempFolder folder;
  const auto like = open_keras(golden("sequential-3.15.1.keras"));
  ASSERT_OK(like);
  std::vector<std::vector<std::byte>> values;
  std::vector<WeightEntry> entries;
  for (const auto& dataset : like->weights->datasets()) {
    auto& value = values.emplace_back(static_cast<size_t>(dataset.type.bytes()));
    ASSERT_OK(like->weights->read_into(dataset.path, dataset.type, value.data()));
    entries.push_back({dataset.path, dataset.type, value.data()});
  }
  ASSERT_OK(write_keras(folder / "new.keras", {like->config_text, like->metadata_text, entries, nullptr}));
  const auto written = open_keras(folder / "new.keras");
  ASSERT_OK(written);
  EXPECT_EQ(written->weights->datasets().size(), entries.size());
  EXPECT_EQ(folder.count(), 1u);
}

TEST(Keras, AnArchitectureInJsonHasNoWeights) {
  const TempFolder folder;
  const auto source = open_keras(golden("functional-3.15.1.keras"));
  ASSERT_OK(source);
  spill(folder / "m.json", " \n" + source->config_text);
  const auto archive = open_keras(folder / "m.json");
  ASSERT_OK(archive);
  EXPECT_FALSE(archive->weights.has_value());
  EXPECT_EQ(archive->config, source->config);
}

TEST(Keras, CutShortAnywhereIsAnError) {
  const TempFolder folder;
  const auto whole = slurp(golden("sequential-3.15.1.keras"));
  for (size_t length = 0; length < whole.size(); length += length < 64 || length > whole.size() - 300 ? 1 : 997) {
    spill(folder / "cut.keras", whole.substr(0, length));
    EXPECT_FAILS(open_keras(folder / "cut.keras"), kNotAKerasFile, "cut.keras");
  }
}

TEST(Keras, DamagedBytesAreFoundByTheirChecksum) {
  const TempFolder folder;
  const auto whole = slurp(golden("sequential-3.0.0.keras"));
  for (size_t at = 0; at < whole.size(); at += 211) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    spill(folder / "damaged.keras", damaged);
    const auto archive = open_keras(folder / "damaged.keras");
    if (!archive) {
      EXPECT_EQ(archive.error().code, ErrorCode::kNotAKerasFile) << at << to_text(archive.error());
      continue;
    }
    EXPECT_EQ(archive->weights->datasets().size(),
              open_keras(golden("sequential-3.0.0.keras")).value().weights->datasets().size());
  }
}

TEST(Keras, AMissingEntryIsNamed) {
  const TempFolder folder;
  const std::vector<std::pair<std::string, std::string>> all = {
      {"config.json", "{}"}, {"metadata.json", "{}"}, {"model.weights.h5", ""}};
  for (size_t missing = 0; missing < all.size(); ++missing) {
    auto some = all;
    some.erase(some.begin() + static_cast<std::ptrdiff_t>(missing));
    write_zip(folder / "m.keras", some);
    EXPECT_FAILS(open_keras(folder / "m.keras"), kNotAKerasFile, "no entry " + all[missing].first);
  }
}

TEST(Keras, BadJsonNamesLineAndColumn) {
  const TempFolder folder;
  write_zip(folder / "m.keras",
            {{"config.json", "{\n \"a\": ]\n}"}, {"metadata.json", "{}"}, {"model.weights.h5", ""}});
  EXPECT_FAILS(open_keras(folder / "m.keras"), kBadConfig, "m.keras: config.json: line 2, column 7");
  spill(folder / "m.json", "{\"a\": 1");
  EXPECT_FAILS(open_keras(folder / "m.json"), kBadConfig, "line 1, column 8");
  spill(folder / "deep.json", "{\"a\":" + std::string(100000, '['));
  EXPECT_FAILS(open_keras(folder / "deep.json"), kBadConfig, "nested deeper");
}

TEST(Keras, BadHdf5IsP213) {
  const TempFolder folder;
  write_zip(folder / "m.keras", {{"config.json", "{}"}, {"metadata.json", "{}"}, {"model.weights.h5", "not HDF5"}});
  EXPECT_FAILS(open_keras(folder / "m.keras"), kBadWeightsFile, "m.keras: model.weights.h5");
}

TEST(Keras, OtherFilesAreToldApart) {
  const TempFolder folder;
  spill(folder / "old.h5", "\x89HDF\r\n\x1a\n");
  EXPECT_FAILS(open_keras(folder / "old.h5"), kBadWeightsFile, "old.h5");
  spill(folder / "text", "hello");
  EXPECT_FAILS(open_keras(folder / "text"), kNotAKerasFile, "neither");
  spill(folder / "empty", "");
  EXPECT_FAILS(open_keras(folder / "empty"), kNotAKerasFile, "empty");
  EXPECT_FAILS(open_keras(folder / "none"), kFileUnreadable, "none");
}

TEST(Keras, AFullDiskKeepsTheOldFile) {
  const TempFolder folder;
  const auto source = open_keras(golden("sequential-3.15.1.keras"));
  ASSERT_OK(source);
  spill(folder / "m.keras", "old");
  const std::vector<float> large(250000);
  const std::vector<WeightEntry> entries = {{"layers/dense/vars/0", {DType::kFloat32, {250000}}, large.data()}};
  const KerasContents contents{source->config_text, source->metadata_text, entries, &*source};
  for (const rlim_t bytes : {0, 100, 4096, 100000, 900000}) {
    const FileSizeLimit limit(bytes);
    EXPECT_FAILS(write_keras(folder / "m.keras", contents), kWriteFailed, "m.keras");
  }
  EXPECT_EQ(slurp(folder / "m.keras"), "old");
  EXPECT_EQ(folder.count(), 1u);
  EXPECT_FAILS(write_keras(folder / "none/m.keras", contents), kNotWritable, "none");
}

TEST(LayerPaths, CountPerClassAndContainer) {
  const auto archive = open_keras(golden("functional-3.15.1.keras"));
  ASSERT_OK(archive);
  const auto paths = layer_paths(archive->config);
  ASSERT_OK(paths);
  std::vector<std::string> lines;
  for (const auto& path : *paths) lines.push_back(fmt::format("{} {}", fmt::join(path.layer_names, "/"), path.group));
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "a layers/input_layer", "b layers/input_layer_1", "backbone layers/functional",
                       fmt::format("backbone/{} layers/functional/layers/input_layer", paths->at(3).layer_names[1]),
                       "backbone/b1 layers/functional/layers/dense", "backbone/b2 layers/functional/layers/dense_1",
                       "tail layers/sequential", "tail/t1 layers/sequential/layers/dense",
                       "tail/t2 layers/sequential/layers/dense_1", "middle layers/dense", "sum layers/add",
                       "out layers/dense_1"}));
}

TEST(LayerPaths, SnakeCaseIsKerass) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"Conv2D", "conv2d"},
      {"BatchNormalization", "batch_normalization"},
      {"LSTM", "lstm"},
      {"Conv2DTranspose", "conv2d_transpose"},
      {"GlobalAveragePooling2D", "global_average_pooling2d"},
      {"ReLU", "re_lu"},
      {"PReLU", "p_re_lu"},
      {"LeakyReLU", "leaky_re_lu"},
      {"DepthwiseConv2D", "depthwise_conv2d"},
      {"ZeroPadding2D", "zero_padding2d"},
      {"ConvLSTM2D", "conv_lstm2d"},
      {"MyHTTPLayer", "my_http_layer"},
      {"ABcDef", "a_bc_def"},
      {"my layer-X", "mylayer_x"}};
  for (const auto& [name, want] : cases) EXPECT_EQ(keras_snake_case(name), want) << name;
}

TEST(LayerPaths, ASharedLayerIsWhereItWasMetFirst) {
  const auto config = nlohmann::json::parse(R"({"class_name": "Sequential", "config": {"name": "m", "layers": [
    {"class_name": "Dense", "config": {"name": "d"}, "shared_object_id": 7},
    {"class_name": "Dense", "config": {"name": "d"}, "shared_object_id": 7},
    {"class_name": "Dense", "config": {"name": "e"}}]}})");
  const auto paths = layer_paths(config, "layers/time_distributed/layer");
  ASSERT_OK(paths);
  EXPECT_EQ(paths->at(0).group, "layers/time_distributed/layer/layers/dense");
  EXPECT_EQ(paths->at(1).group, "layers/time_distributed/layer/layers/dense");
  EXPECT_EQ(paths->at(2).group, "layers/time_distributed/layer/layers/dense_2");
}

TEST(LayerPaths, WhatIsNoModelIsP204) {
  EXPECT_FAILS(layer_paths(nlohmann::json::parse("[]")), kBadConfig, "Sequential or Functional");
  EXPECT_FAILS(layer_paths(nlohmann::json::parse(R"({"class_name": "Mine", "config": {}})")), kBadConfig,
               "class 'Mine'");
  EXPECT_FAILS(layer_paths(nlohmann::json::parse(R"({"class_name": "Sequential", "config": {"layers": [1]}})")),
               kBadConfig, "class_name");
}

}  // namespace
}  // namespace plimsoll::engine
