// Text layers without Keras: hashes against numbers that TensorFlow 2.21 gave, tokens, and rows. tests/keras/
// test_text_inputs.py compares them with Keras's layers.
#include <gtest/gtest.h>

#include "model/text/fingerprint.h"
#include "model/text/text_inputs.h"

namespace plimsoll::engine {
namespace {

std::vector<std::string> hashed() {
  std::vector<std::string> texts{"", "a", "abc", "abcd", "abcdefgh", std::string(16, 'x'), std::string(17, 'x')};
  for (const size_t length : {33, 64, 65}) texts.emplace_back(length, 'x');
  texts.emplace_back();
  for (int i = 0; i < 20; ++i) texts.back() += "0123456789";
  return texts;
}

TEST(Fingerprint, IsThatOfTensorFlow) {
  // tf.strings.to_hash_bucket_fast(texts, 2**62) and to_hash_bucket_strong(texts, 2**62, key=[1, 2])
  const std::vector<uint64_t> fast{1936946117179621455, 3694432073954588131, 2640714258260161385, 1897425971756105985,
                                   4533385575889643785, 3320895591121647644, 2082709914559524773, 3046993373088323127,
                                   2304502108871267256, 323337772074164025,  439712990348739477};
  const std::vector<uint64_t> strong{443797209252341627,  546566331822570742,  1250540936487842205, 4277338952175910099,
                                     2649018002260510108, 2083976100733463555, 3111895715772102224, 1639887484359327584,
                                     3027194603663531933, 784056411441098232,  3663624978397590961};
  const auto texts = hashed();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(fingerprint64(texts[i]) % (uint64_t{1} << 62), fast[i]) << i;
    EXPECT_EQ(siphash(texts[i], {1, 2}) % (uint64_t{1} << 62), strong[i]) << i;
  }
}

TEST(TokenTable, FindsEveryTokenAndNoOther) {
  TokenTable table;
  for (int i = 0; i < 5000; ++i) EXPECT_TRUE(table.add("token" + std::to_string(i)));
  EXPECT_FALSE(table.add("token17"));
  EXPECT_TRUE(table.add(""));
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(table.find("token" + std::to_string(i)), i);
  EXPECT_EQ(table.find(""), 5000);
  EXPECT_EQ(table.find("token"), std::nullopt);
  EXPECT_EQ(TokenTable().find("token"), std::nullopt);
}

std::vector<int32_t> ids(const Json& config, std::string text, int64_t length) {
  Issues issues;
  Config reader(config, "layer 'text'", issues);
  const auto layer = read_text_layer("TextVectorization", reader);
  EXPECT_TRUE(issues.status());
  TextWriter writer(*layer, static_cast<Bytes>(text.size()));
  const Bytes planned = writer.bytes();
  std::vector<int32_t> row(static_cast<size_t>(length), -1);
  writer.begin(row.data(), length);
  EXPECT_TRUE(writer.add(text));
  writer.end();
  EXPECT_EQ(writer.bytes(), planned);
  return row;
}

TEST(TextLayer, NumbersTokensAndPadsOrCutsTheRow) {
  const Json config = {{"vocabulary", {"", "[UNK]", "cat", "the cat", "the"}}, {"ngrams", 2}};
  EXPECT_EQ(ids(config, "The cat! sat", 7), (std::vector<int32_t>{4, 2, 1, 3, 1, 0, 0}));
  EXPECT_EQ(ids(config, "The cat! sat", 2), (std::vector<int32_t>{4, 2}));
  EXPECT_EQ(ids(config, " \t\n", 2), (std::vector<int32_t>{0, 0}));
}

TEST(TextLayer, ReplacesWhatIsNoUtf8) {
  const Json config = {
      {"vocabulary", {"a", "\xef\xbf\xbd", "\xc3\xa9"}}, {"split", "character"}, {"standardize", nullptr}};
  EXPECT_EQ(ids(config,
                "a\xff\xc3\xa9\xe2\x82"
                "a\xed\xa0\x80",
                8),
            (std::vector<int32_t>{2, 3, 4, 3, 2, 3, 3, 3}));
}

// One input of strings, two layers on it, one of them also on a second input.
Json two_readers() {
  const auto tensor = [](const char* layer) {
    return Json{{"class_name", "__keras_tensor__"},
                {"config", {{"shape", {nullptr, 1}}, {"dtype", "string"}, {"keras_history", {layer, 0, 0}}}}};
  };
  const auto call = [&](std::vector<Json> tensors) { return Json{{"args", tensors}, {"kwargs", Json::object()}}; };
  const auto input = [](const char* name) {
    return Json{{"class_name", "InputLayer"},
                {"name", name},
                {"config", {{"name", name}, {"batch_shape", {nullptr, 1}}, {"dtype", "string"}}},
                {"inbound_nodes", Json::array()}};
  };
  const auto lookup = [&](const char* name, std::vector<Json> nodes) {
    return Json{{"class_name", "StringLookup"},
                {"name", name},
                {"config", {{"name", name}, {"vocabulary", {"a", "b"}}, {"output_mode", "one_hot"}}},
                {"inbound_nodes", nodes}};
  };
  return {{"class_name", "Functional"},
          {"config",
           {{"name", "m"},
            {"layers",
             {input("x"), input("z"), lookup("shared", {call({tensor("x")}), call({tensor("z")})}),
              lookup("own", {call({tensor("x")})})}},
            {"input_layers", {{"z", 0, 0}, {"x", 0, 0}}},
            {"output_layers", {{"shared", 0, 0}, {"shared", 1, 0}, {"own", 0, 0}}}}}};
}

TEST(TextInputs, BecomeOneInputOfNumbersPerCall) {
  Issues issues;
  const ModelWithoutText made = take_out_text(two_readers(), issues);
  ASSERT_TRUE(issues.status());
  ASSERT_EQ(made.inputs.size(), 3);
  const Json& config = made.config.at("config");
  EXPECT_EQ(config.at("input_layers"), (Json{{"shared_z", 0, 0}, {"shared_x", 0, 0}, {"own", 0, 0}}));
  EXPECT_EQ(config.at("output_layers"), (Json{{"shared_x", 0, 0}, {"shared_z", 0, 0}, {"own", 0, 0}}));
  for (const TextInput& input : made.inputs) EXPECT_EQ(input.source, input.port == "shared_z" ? "z" : "x");
  for (const Json& layer : config.at("layers"))
    EXPECT_EQ(layer.at("config").at("batch_shape"), (Json{nullptr, 3})) << layer.dump();
}

TEST(TextInputs, OtherLayersOnStringsAreListed) {
  Json config = two_readers();
  config["config"]["layers"][3]["class_name"] = "Reshape";
  config["config"]["layers"][2]["config"]["sparse"] = true;
  Issues issues;
  take_out_text(config, issues);
  ASSERT_EQ(issues.unsupported.size(), 2);
  EXPECT_NE(issues.unsupported[0].find("sparse=true"), std::string::npos);
  EXPECT_NE(issues.unsupported[1].find("layer 'own' (Reshape): reads strings"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::engine
