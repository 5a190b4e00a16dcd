// Which tensors have masks, and how a mask changes a loss.
#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

using Json = nlohmann::json;

Result<Model> masked(std::vector<Json> layers, const Json& metrics = Json::array()) {
  layers.insert(layers.begin(), layer_json("Masking", "mask", {{"mask_value", 0.5}}));
  Json config = sequential_json({nullptr, 6, 3}, std::move(layers));
  config["compile_config"] = {{"optimizer", "sgd"}, {"loss", "mse"}, {"metrics", metrics}};
  return Model::create(describe(config), {});
}

TEST(Masks, PassThroughLayersThatSupportThem) {
  const auto model = masked({layer_json("Dense", "a", {{"units", 4}}), layer_json("Dropout", "b", {{"rate", 0.5}}),
                             layer_json("LayerNormalization", "c"), layer_json("Dense", "d", {{"units", 2}})});
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_TRUE(model->outputs()[0].masked);
  EXPECT_TRUE(model->has_masked_losses());
}

TEST(Masks, EndAtLayersThatDoNot) {
  const auto model = masked({layer_json("Conv1D", "a", {{"filters", 4}, {"kernel_size", 3}})});
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_FALSE(model->has_masked_losses());
}

TEST(Masks, AreRefusedWhereTheyWouldChangeWhatALayerComputes) {
  const auto model = masked({layer_json("Softmax", "it")});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(text_of(model.error()).find("its input has a mask"), std::string::npos) << text_of(model.error());
}

TEST(Masks, EndAtLayersThatReadThem) {
  const auto model = masked({layer_json("GlobalAveragePooling1D", "it")});
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_FALSE(model->outputs()[0].masked);
}

// The factor of a masked loss would be applied at the end of a window, to everything that its gradients contain.
TEST(Masks, BesideActivityRegularizersTheBatchStaysWhole) {
  const auto model = masked({layer_json("Dense", "a", {{"units", 4}, {"activity_regularizer", "l2"}})});
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_TRUE(model->couples_samples());
  EXPECT_FALSE(model->has_masked_losses());
  const Built whole = build_graph(*model, 4, Mode::kTrain);
  ASSERT_TRUE(whole.status) << text_of(whole.status.error());
  EXPECT_EQ(whole.forward.counted, kNone);
}

TEST(Masks, MetricsOfAMaskedOutputCountTheirRows) {
  const auto model = masked({layer_json("Dense", "a", {{"units", 4}})}, {"mae", "cosine_similarity"});
  ASSERT_TRUE(model) << text_of(model.error());
  EXPECT_EQ(model->skipped_metrics(), std::vector<std::string>{"cosine_similarity"});
  const Built whole = build_graph(*model, 4, Mode::kEvaluate);
  ASSERT_EQ(whole.forward.tallies.size(), 1U);
  EXPECT_EQ(whole.forward.tallies[0].shape, (Shape{2}));
}

TEST(Masks, AWholeWindowDividesByTheRowsThatCountAndAPartOfItLeavesThatToItsEnd) {
  const auto model = masked({layer_json("Dense", "a", {{"units", 4}})});
  ASSERT_TRUE(model) << text_of(model.error());
  const Built whole = build_graph(*model, 4, Mode::kTrain), part = build_graph(*model, 4, Mode::kAccumulate);
  ASSERT_TRUE(whole.status) << text_of(whole.status.error());
  EXPECT_EQ(count_op(whole.graph, "divide"), 1);
  EXPECT_EQ(count_op(part.graph, "divide"), 0);
  EXPECT_NE(part.forward.rows, kNone);
  EXPECT_NE(part.forward.counted, kNone);
}

}  // namespace
}  // namespace plimsoll::engine
