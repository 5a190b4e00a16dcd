// Cutting the batch into pieces, tested on the text of the graph and on its numbers: the ops' references run the graph
// before and after.
#include "levers/split_batch.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ops/split.h"
#include "tests/support/fake_device.h"
#include "tests/support/same_numbers.h"

namespace plimsoll::engine::testing {
namespace {

// x -> convolution -> BatchNormalization -> relu -> mean of the image -> dense -> mean squared error, with the
// gradients of both kernels.
const char* const kTraining = R"(graph "train"
  %x = input f32[5,4,4,2] inputs
  %y = input f32[5,3] inputs
  %k = input f32[3,3,2,4] weights persistent
  %w = input f32[4,3] weights persistent
  %moving = input f32[4] weights persistent
  %share = input f32[] inputs persistent
  %tally = input f32[] inputs persistent
  %c = conv2d(%x, %k) {dilations=[1,1], groups=1, pads=[1,1,1,1], strides=[1,1]} : f32[5,4,4,4] activations
  %mean, %var = batch_norm_stats(%c) : f32[4] activations, f32[4] activations
  %n = batch_norm_apply(%c, %mean, %var) {batch_stats=true, epsilon=0.001} : f32[5,4,4,4] activations
  %moved = moving_average(%moving, %mean) {momentum=0.9} : f32[4] activations
  %r = relu(%n) : f32[5,4,4,4] activations
  %p = global_avg_pool2d(%r) : f32[5,4] activations
  %o = matmul(%p, %w) : f32[5,3] activations
  %rows = squared_error(%o, %y) : f32[5] activations
  %loss = weighted_sum(%rows, %share) : f32[] activations
  %one = fill() {dtype="f32", shape=[], value=1.0} : f32[] gradients stage=backward
  %drows = weighted_sum_grad(%one, %share) {rows=5} : f32[5] gradients stage=backward
  %do = squared_error_grad(%drows, %o, %y) : f32[5,3] gradients stage=backward
  %dw = matmul(%p, %do) {transpose_a=true} : f32[4,3] gradients stage=backward
  %dp = matmul(%do, %w) {transpose_b=true} : f32[5,4] gradients stage=backward
  %dr = global_avg_pool2d_grad(%dp) {input_size=[4,4]} : f32[5,4,4,4] gradients stage=backward
  %dn = relu_grad(%dr, %r) {from="output"} : f32[5,4,4,4] gradients stage=backward
  %dgamma, %dbeta = batch_norm_grad_stats(%dn, %c, %mean, %var) {epsilon=0.001} : f32[4] gradients, f32[4] gradients stage=backward
  %dc = batch_norm_input_grad(%dn, %c, %mean, %var, %dgamma, %dbeta) {epsilon=0.001} : f32[5,4,4,4] gradients stage=backward
  %dk = conv2d_weight_grad(%x, %dc) {dilations=[1,1], groups=1, kernel=[3,3], pads=[1,1,1,1], strides=[1,1]} : f32[3,3,2,4] gradients stage=backward
  update %moving <- %moved
  update %tally <- %loss
  update %k <- %dk
  update %w <- %dw
)";

// Three samples, then two: the statistics, then everything up to the sums of BatchNormalization's gradient, then the
// gradient of its input.
const char* const kInTwoPieces = R"(graph "train"
  %x = input f32[5,4,4,2] inputs
  %y = input f32[5,3] inputs
  %k = input f32[3,3,2,4] weights persistent
  %w = input f32[4,3] weights persistent
  %moving = input f32[4] weights persistent
  %share = input f32[] inputs persistent
  %tally = input f32[] inputs persistent
  %x/1 = slice(%x) {axis=0, begin=0, size=3} : f32[3,4,4,2] inputs
  %c/1 = conv2d(%x/1, %k) {dilations=[1,1], groups=1, pads=[1,1,1,1], strides=[1,1]} : f32[3,4,4,4] activations
  %mean/1, %var/1 = batch_norm_stats(%c/1) : f32[4] activations, f32[4] activations
  %x/2 = slice(%x) {axis=0, begin=3, size=2} : f32[2,4,4,2] inputs
  %c/2 = conv2d(%x/2, %k) {dilations=[1,1], groups=1, pads=[1,1,1,1], strides=[1,1]} : f32[2,4,4,4] activations
  %mean/2, %var/2 = batch_norm_stats(%c/2) : f32[4] activations, f32[4] activations
  %mean/means = concat(%mean/1, %mean/2) {axis=0} : f32[8] activations
  %mean/means.1 = reshape(%mean/means) {shape=[2,4]} : f32[2,4] activations
  %mean/vars = concat(%var/1, %var/2) {axis=0} : f32[8] activations
  %mean/vars.1 = reshape(%mean/vars) {shape=[2,4]} : f32[2,4] activations
  %mean/shares = constant() {dtype="f32", shape=[2,1], values="0.6 0.4"} : f32[2,1] activations
  %mean/shares.1 = broadcast(%mean/shares) {shape=[2,4]} : f32[2,4] activations
  %mean/shared = multiply(%mean/means.1, %mean/shares.1) : f32[2,4] activations
  %mean = reduce_to(%mean/shared) {shape=[4]} : f32[4] activations
  %mean/mean = broadcast(%mean) {shape=[2,4]} : f32[2,4] activations
  %mean/away = subtract(%mean/means.1, %mean/mean) : f32[2,4] activations
  %mean/between = square(%mean/away) : f32[2,4] activations
  %mean/moments = add(%mean/vars.1, %mean/between) : f32[2,4] activations
  %mean/shared.1 = multiply(%mean/moments, %mean/shares.1) : f32[2,4] activations
  %var = reduce_to(%mean/shared.1) {shape=[4]} : f32[4] activations
  %n/1 = batch_norm_apply(%c/1, %mean, %var) {batch_stats=true, epsilon=0.001} : f32[3,4,4,4] activations
  %r/1 = relu(%n/1) : f32[3,4,4,4] activations
  %p/1 = global_avg_pool2d(%r/1) : f32[3,4] activations
  %o/1 = matmul(%p/1, %w) : f32[3,3] activations
  %y/1 = slice(%y) {axis=0, begin=0, size=3} : f32[3,3] inputs
  %rows/1 = squared_error(%o/1, %y/1) : f32[3] activations
  %loss/1 = weighted_sum(%rows/1, %share) : f32[] activations
  %one = fill() {dtype="f32", shape=[], value=1.0} : f32[] gradients stage=backward
  %drows/1 = weighted_sum_grad(%one, %share) {rows=3} : f32[3] gradients stage=backward
  %do/1 = squared_error_grad(%drows/1, %o/1, %y/1) : f32[3,3] gradients stage=backward
  %dw/1 = matmul(%p/1, %do/1) {transpose_a=true} : f32[4,3] gradients stage=backward
  %dp/1 = matmul(%do/1, %w) {transpose_b=true} : f32[3,4] gradients stage=backward
  %dr/1 = global_avg_pool2d_grad(%dp/1) {input_size=[4,4]} : f32[3,4,4,4] gradients stage=backward
  %dn/1 = relu_grad(%dr/1, %r/1) {from="output"} : f32[3,4,4,4] gradients stage=backward
  %dgamma/1, %dbeta/1 = batch_norm_grad_stats(%dn/1, %c/1, %mean, %var) {epsilon=0.001} : f32[4] gradients, f32[4] gradients stage=backward
  %n/2 = batch_norm_apply(%c/2, %mean, %var) {batch_stats=true, epsilon=0.001} : f32[2,4,4,4] activations
  %r/2 = relu(%n/2) : f32[2,4,4,4] activations
  %p/2 = global_avg_pool2d(%r/2) : f32[2,4] activations
  %o/2 = matmul(%p/2, %w) : f32[2,3] activations
  %y/2 = slice(%y) {axis=0, begin=3, size=2} : f32[2,3] inputs
  %rows/2 = squared_error(%o/2, %y/2) : f32[2] activations
  %loss/2 = weighted_sum(%rows/2, %share) : f32[] activations
  %loss = add(%loss/1, %loss/2) : f32[] activations
  %drows/2 = weighted_sum_grad(%one, %share) {rows=2} : f32[2] gradients stage=backward
  %do/2 = squared_error_grad(%drows/2, %o/2, %y/2) : f32[2,3] gradients stage=backward
  %dw/2 = matmul(%p/2, %do/2) {transpose_a=true} : f32[4,3] gradients stage=backward
  %dw = add(%dw/1, %dw/2) : f32[4,3] gradients stage=backward
  %dp/2 = matmul(%do/2, %w) {transpose_b=true} : f32[2,4] gradients stage=backward
  %dr/2 = global_avg_pool2d_grad(%dp/2) {input_size=[4,4]} : f32[2,4,4,4] gradients stage=backward
  %dn/2 = relu_grad(%dr/2, %r/2) {from="output"} : f32[2,4,4,4] gradients stage=backward
  %dgamma/2, %dbeta/2 = batch_norm_grad_stats(%dn/2, %c/2, %mean, %var) {epsilon=0.001} : f32[4] gradients, f32[4] gradients stage=backward
  %dgamma = add(%dgamma/1, %dgamma/2) : f32[4] gradients stage=backward
  %dbeta = add(%dbeta/1, %dbeta/2) : f32[4] gradients stage=backward
  %dc/1 = batch_norm_input_grad(%dn/1, %c/1, %mean, %var, %dgamma, %dbeta) {epsilon=0.001, summed_rows=80} : f32[3,4,4,4] gradients stage=backward
  %x/1.1 = slice(%x) {axis=0, begin=0, size=3} : f32[3,4,4,2] inputs
  %dk/1 = conv2d_weight_grad(%x/1.1, %dc/1) {dilations=[1,1], groups=1, kernel=[3,3], pads=[1,1,1,1], strides=[1,1]} : f32[3,3,2,4] gradients stage=backward
  %dc/2 = batch_norm_input_grad(%dn/2, %c/2, %mean, %var, %dgamma, %dbeta) {epsilon=0.001, summed_rows=80} : f32[2,4,4,4] gradients stage=backward
  %x/2.1 = slice(%x) {axis=0, begin=3, size=2} : f32[2,4,4,2] inputs
  %dk/2 = conv2d_weight_grad(%x/2.1, %dc/2) {dilations=[1,1], groups=1, kernel=[3,3], pads=[1,1,1,1], strides=[1,1]} : f32[3,3,2,4] gradients stage=backward
  %dk = add(%dk/1, %dk/2) : f32[3,3,2,4] gradients stage=backward
  %moved = moving_average(%moving, %mean) {momentum=0.9} : f32[4] activations
  update %moving <- %moved
  update %tally <- %loss
  update %k <- %dk
  update %w <- %dw
)";

Graph training() {
  Graph graph = require(parse_graph(kTraining));
  require(verify(graph));
  return graph;
}

TEST(SplitBatch, PiecesFollowEachOtherBetweenThePointsWhereSamplesMeet) {
  const Rewritten split = split_batch(training(), 2);
  EXPECT_EQ(split.count, 2);
  require(verify(split.graph));
  EXPECT_EQ(print(split.graph), kInTwoPieces);
}

TEST(SplitBatch, NumbersAreThoseOfTheWholeBatch) {
  const Graph whole = graph_of(in_f64(kTraining));
  std::mt19937_64 random(3);
  std::vector<Tensor> inputs;
  for (ValueId id : whole.inputs) inputs.push_back(draw(whole.type(id), "normal", random));
  for (const int64_t pieces : {2, 3, 4, 5, 32}) {
    const Rewritten split = split_batch(whole, pieces);
    EXPECT_EQ(split.count, std::min<int64_t>(pieces, 5));
    expect_same_numbers(std::to_string(pieces) + " pieces", whole, split.graph, inputs, 1e-12);
  }
}

// A case of an op as the only node of a phase. What consists of samples is an input of the batch, whose first dimension
// is the number of samples; the other inputs are persistent.
struct Phase {
  Graph graph;
  std::vector<Tensor> inputs;
};

std::optional<Phase> phase_of(const OpDef& op, const OpCase& one) {
  const auto made = graph_of(op, one, DType::kFloat64);
  if (!made) return {};
  const Graph& alone = made->graph;
  const auto forms = split_forms(alone, alone.nodes[0]);
  if (forms.empty()) return {};
  int64_t samples = 0;
  const auto by_sample = [&](size_t i) {
    return letter_of(forms[0].inputs, i) == 's' && one.inputs[i].shape.rank() > 0;
  };
  for (size_t i = 0; i < one.inputs.size(); ++i)
    if (by_sample(i)) samples = std::gcd(samples, one.inputs[i].shape[0]);
  if (samples < 2) return {};
  Phase phase;
  GraphBuilder b = make_builder();
  std::vector<ValueId> inputs;
  const auto drawn = draw_inputs(op, one, DType::kFloat64);
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    const TensorType& type = drawn[i].type;
    TensorType read = type;
    if (by_sample(i)) {
      read.shape.dims[0] = type.shape[0] / samples;
      read.shape.dims.insert(read.shape.dims.begin(), samples);
    }
    ValueId id = b.input(fmt::format("x{}", i), read, Category::kInputs, !by_sample(i));
    if (by_sample(i)) id = b.add1("reshape", {id}, {{"shape", type.shape.dims}});
    inputs.push_back(id);
    phase.inputs.push_back({read, drawn[i].values});
  }
  const auto backward = b.in_stage(Stage::kBackward, Category::kGradients);
  for (ValueId id : b.add(op.name, inputs, alone.nodes[0].attrs)) b.output(id);
  require(b.status());
  phase.graph = b.take();
  return phase;
}

// Every op that says how it can be cut computes the same in pieces, for each of its test cases.
TEST(SplitBatch, EveryOpIsCutAsItsFormSays) {
  std::set<std::string> cut;
  for (const OpDef& op : all_ops())
    for (const OpCase& one : op.cases) {
      const auto phase = phase_of(op, one);
      if (!phase) continue;
      for (const int64_t pieces : {2, 3}) {
        const Rewritten split = split_batch(phase->graph, pieces);
        if (split.count == 0) continue;
        cut.insert(op.name);
        require(verify(split.graph));
        expect_same_numbers(op.name + "/" + one.name, phase->graph, split.graph, phase->inputs, 1e-12);
      }
    }
  for (const char* op : {"conv2d",
                         "conv2d_input_grad",
                         "conv2d_weight_grad",
                         "conv3d_weight_grad",
                         "matmul",
                         "batch_matmul",
                         "attention",
                         "attention_grad",
                         "embedding",
                         "embedding_grad",
                         "batch_norm_stats",
                         "batch_norm_apply",
                         "batch_norm_grad_stats",
                         "batch_norm_input_grad",
                         "layer_norm",
                         "layer_norm_param_grad",
                         "max_pool2d",
                         "global_avg_pool2d_grad",
                         "softmax_cross_entropy",
                         "softmax_cross_entropy_grad",
                         "squared_error_grad",
                         "binary_cross_entropy_grad",
                         "weighted_sum",
                         "weighted_sum_grad",
                         "match",
                         "dropout",
                         "reduce_to",
                         "broadcast",
                         "transpose",
                         "pad",
                         "strided_slice_grad",
                         "gather",
                         "scatter_add",
                         "concat",
                         "resample",
                         "sort",
                         "reduce_max",
                         "squared_norm",
                         "add",
                         "relu_grad",
                         "cast",
                         "bias_add",
                         "scale"})
    EXPECT_TRUE(cut.count(op) == 1) << op << " was not cut in any case";
}

// The sum of gradients in half precision is kept in f32. What casts it to f32 takes that sum.
TEST(SplitBatch, AddsGradientsInHalfPrecisionInF32) {
  const Rewritten split = split_batch(graph_of(R"(graph "train"
  %x = input bf16[4,6] inputs
  %w = input f32[6,2] weights persistent
  %h = cast(%w) {dtype="bf16"} : bf16[6,2] weights
  %y = matmul(%x, %h) : bf16[4,2] activations
  %dh = matmul(%x, %y) {transpose_a=true} : bf16[6,2] gradients stage=backward
  %dw = cast(%dh) {dtype="f32"} : f32[6,2] gradients stage=backward
  update %w <- %dw
)"),
                                      2);
  EXPECT_EQ(print(split.graph), R"(graph "train"
  %x = input bf16[4,6] inputs
  %w = input f32[6,2] weights persistent
  %x/1 = slice(%x) {axis=0, begin=0, size=2} : bf16[2,6] inputs
  %h = cast(%w) {dtype="bf16"} : bf16[6,2] weights
  %y/1 = matmul(%x/1, %h) : bf16[2,2] activations
  %dh/1 = matmul(%x/1, %y/1) {transpose_a=true} : bf16[6,2] gradients stage=backward
  %dh/1/wide = cast(%dh/1) {dtype="f32"} : f32[6,2] gradients stage=backward
  %x/2 = slice(%x) {axis=0, begin=2, size=2} : bf16[2,6] inputs
  %y/2 = matmul(%x/2, %h) : bf16[2,2] activations
  %dh/2 = matmul(%x/2, %y/2) {transpose_a=true} : bf16[6,2] gradients stage=backward
  %dh/2/wide = cast(%dh/2) {dtype="f32"} : f32[6,2] gradients stage=backward
  %dh/2/sum = add(%dh/1/wide, %dh/2/wide) : f32[6,2] gradients stage=backward
  update %w <- %dh/2/sum
)");
}

// What no sample reaches is made once, or per piece if it consists of rows; results of samples are joined.
TEST(SplitBatch, SharesWhatNoSampleReachesAndJoinsOutputs) {
  const Rewritten split = split_batch(graph_of(R"(graph "train"
  %x = input f32[3,2] inputs
  %w = input f32[2] weights persistent
  %rng = input i64[2] inputs persistent
  %first = input i64[1] inputs persistent
  %s = square(%w) : f32[2] activations
  %n = random_normal(%rng, %first) {call=0, dtype="f32", shape=[3,2], stream=0} : f32[3,2] activations
  %half = affine(%n) {offset=0.0, scale=0.5} : f32[3,2] activations
  %y = add(%x, %half) : f32[3,2] activations
  %z = bias_add(%y, %s) : f32[3,2] activations stage=backward
  output %z
)"),
                                      2);
  EXPECT_EQ(print(split.graph), R"(graph "train"
  %x = input f32[3,2] inputs
  %w = input f32[2] weights persistent
  %rng = input i64[2] inputs persistent
  %first = input i64[1] inputs persistent
  %x/1 = slice(%x) {axis=0, begin=0, size=2} : f32[2,2] inputs
  %n/1 = random_normal(%rng, %first) {call=0, dtype="f32", shape=[2,2], stream=0} : f32[2,2] activations
  %half/1 = affine(%n/1) {offset=0.0, scale=0.5} : f32[2,2] activations
  %y/1 = add(%x/1, %half/1) : f32[2,2] activations
  %s = square(%w) : f32[2] activations
  %z/1 = bias_add(%y/1, %s) : f32[2,2] activations stage=backward
  %x/2 = slice(%x) {axis=0, begin=2, size=1} : f32[1,2] inputs
  %n/2 = random_normal(%rng, %first) {call=0, dtype="f32", rows_before=2, shape=[1,2], stream=0} : f32[1,2] activations
  %half/2 = affine(%n/2) {offset=0.0, scale=0.5} : f32[1,2] activations
  %y/2 = add(%x/2, %half/2) : f32[1,2] activations
  %z/2 = bias_add(%y/2, %s) : f32[1,2] activations stage=backward
  %z = concat(%z/1, %z/2) {axis=0} : f32[3,2] activations stage=backward
  output %z
)");
}

TEST(SplitBatch, LeavesAGraphThatItCannotCut) {
  for (const char* text : {R"(graph "train"
  %x = input f32[4,6] inputs
  %1 = transpose(%x) {perm=[1,0]} : f32[6,4] activations stage=backward
  output %1
)",
                           R"(graph "train"
  %x = input f32[4,6] inputs
  %1 = reduce_max(%x) {axes=[0]} : f32[1,6] activations stage=backward
  output %1
)",
                           R"(graph "train"
  %x = input f32[4,6] inputs
  %1 = reshape(%x) {shape=[3,8]} : f32[3,8] activations stage=backward
  output %1
)",
                           R"(graph "train"
  %x = input f32[4,6] inputs
  %w = input f32[5,4] weights persistent
  %1 = matmul(%w, %x) : f32[5,6] activations stage=backward
  output %1
)"}) {
    const Rewritten split = split_batch(graph_of(text), 2);
    EXPECT_EQ(split.count, 0);
    EXPECT_EQ(print(split.graph), text);
  }
}

TEST(SplitBatch, LeavesAPhaseThatDoesNotTrain) {
  const char* const text = R"(graph "evaluate"
  %x = input f32[4,6] inputs
  %1 = relu(%x) : f32[4,6] activations
  output %1
)";
  EXPECT_EQ(print(split_batch(graph_of(text), 2).graph), text);
}

}  // namespace
}  // namespace plimsoll::engine::testing
