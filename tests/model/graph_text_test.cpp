// The graph of a small model, as text.
#include "tests/model/support.h"

namespace plimsoll::engine {
namespace {

TEST(GraphText, OfASmallModel) {
  nlohmann::json config = sequential_json(
      {nullptr, 4, 4, 1},
      {layer_json("Conv2D", "conv",
                  {{"filters", 2}, {"kernel_size", 3}, {"padding", "same"}, {"strides", 2}, {"activation", "relu"}}),
       layer_json("Flatten", "flat"), layer_json("Dense", "out", {{"units", 3}, {"activation", "softmax"}})});
  config["compile_config"] = {
      {"optimizer", "sgd"}, {"loss", "sparse_categorical_crossentropy"}, {"metrics", {"accuracy"}}};
  const auto model = Model::create(describe(config), {});
  ASSERT_TRUE(model) << text_of(model.error());
  const Built built = build_graph(*model, 8, Mode::kEvaluate, {{DType::kUInt8}, {DType::kInt64}, false});
  ASSERT_TRUE(built.status) << text_of(built.status.error());
  EXPECT_EQ(print(built.graph), R"(graph ""
  %x:in = input u8[8,4,4,1] inputs layer="in"
  %1 = cast(%x:in) {dtype="f32"} : f32[8,4,4,1] activations layer="in"
  %conv/kernel = input f32[3,3,1,2] weights persistent layer="conv"
  %conv/bias = input f32[2] weights persistent layer="conv"
  %4 = conv2d(%1, %conv/kernel) {dilations=[1,1], groups=1, pads=[0,1,0,1], strides=[2,2]} : f32[8,2,2,2] activations layer="conv"
  %5 = bias_add(%4, %conv/bias) : f32[8,2,2,2] activations layer="conv"
  %6 = relu(%5) : f32[8,2,2,2] activations layer="conv"
  %7 = reshape(%6) {shape=[8,8]} : f32[8,8] activations layer="flat"
  %out/kernel = input f32[8,3] weights persistent layer="out"
  %out/bias = input f32[3] weights persistent layer="out"
  %10 = matmul(%7, %out/kernel) : f32[8,3] activations layer="out"
  %11 = bias_add(%10, %out/bias) : f32[8,3] activations layer="out"
  %12 = softmax(%11) : f32[8,3] activations layer="out"
  %y:out = input i64[8] inputs layer="out"
  %14 = cast(%y:out) {dtype="i32"} : i32[8] activations layer="out"
  %15 = softmax_cross_entropy(%11, %14) {label_smoothing=0.0, sparse=true} : f32[8] activations layer="out"
  %scale:out = input f32[] inputs persistent layer="out"
  %17 = weighted_sum(%15, %scale:out) {weighted=false} : f32[] activations layer="out"
  %18 = match(%12, %14) {kind="sparse"} : f32[8] activations layer="out"
  %one = input f32[] inputs persistent layer="out"
  %20 = weighted_sum(%18, %one) {weighted=false} : f32[] activations layer="out"
)");
}

}  // namespace
}  // namespace plimsoll::engine
