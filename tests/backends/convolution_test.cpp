// Our own CPU convolutions, bound by name whether or not the backend would choose them: all edge cases, with the error
// bound of direct summation.
#include <gtest/gtest.h>

#include "backends/cpu/cpu.h"
#include "tests/backends/bound.h"
#include "tests/ops/harness.h"

namespace plimsoll::engine::testing {
namespace {

using Ints = std::vector<int64_t>;

struct Case {
  int64_t n, h, w, c, o;
  Ints pads;
  bool bias, relu;
};

const Case kCases[] = {
    {2, 6, 6, 16, 16, {0, 0, 0, 0}, true, false},     // one whole tile per image
    {3, 9, 12, 32, 48, {1, 1, 1, 1}, true, true},     // `same`; on AVX-512 the last channels fill half a register block
    {2, 5, 18, 48, 32, {0, 1, 2, 0}, false, false},   // asymmetric padding; a tile of one row
    {1, 3, 3, 16, 64, {0, 0, 0, 0}, true, false},     // a result of one pixel
    {2, 16, 13, 64, 16, {2, 2, 2, 2}, false, true},   // the largest padding allowed
    {30, 8, 8, 16, 32, {1, 1, 1, 1}, true, false},    // several chunks and slices
    {16, 4, 4, 112, 208, {1, 1, 1, 1}, true, false},  // one slice, so blocks of channels run in parallel
    {34, 62, 62, 16, 32, {1, 1, 1, 1}, true, true},   // a result larger than the caches
};

Attrs geometry(const Case& c) {
  return {{"strides", Ints{1, 1}}, {"pads", c.pads}, {"dilations", Ints{1, 1}}, {"groups", int64_t{1}}};
}

// Runs the named kernel, whichever the backend would choose.
std::vector<Tensor> run_by_name(const Backend& backend, const Graph& graph, const std::string& kernel,
                                const std::vector<Tensor>& inputs) {
  const Node& node = graph.nodes[0];
  std::deque<Buffer> buffers;
  std::vector<void*> in, out;
  const auto add = [&](ValueId id) { return buffers.emplace_back(graph.type(id).bytes()).data(); };
  for (size_t i = 0; i < inputs.size(); ++i) {
    in.push_back(add(node.inputs[i]));
    store(inputs[i], in.back());
  }
  for (ValueId id : node.outputs) out.push_back(add(id));
  Buffer workspace(16 * kMiB);
  const auto bound = backend.bind({graph, node, kernel, in, out, workspace.data(), 16 * kMiB});
  if (!bound) throw std::runtime_error(to_text(bound.error()));
  (*bound)->run();
  std::vector<Tensor> results;
  for (size_t i = 0; i < out.size(); ++i) results.push_back(load(graph.type(node.outputs[i]), out[i]));
  for (const Buffer& buffer : buffers) EXPECT_TRUE(buffer.intact()) << "a kernel wrote outside a tensor";
  return results;
}

// The first output, summed directly in float32 in order.
Tensor summed_directly(const Graph& graph, const std::vector<Tensor>& inputs, Tensor sums) {
  const Node& node = graph.nodes[0];
  const Tensor &first = inputs[0], &second = inputs[1];
  const bool forward = node.op == "conv2d", to_input = node.op == "conv2d_input_grad";
  const Shape& x = to_input ? sums.type.shape : first.type.shape;
  const Shape& y = forward ? sums.type.shape : to_input ? first.type.shape : second.type.shape;
  const AttrList& pads = node.attrs.list("pads");
  std::fill(sums.values.begin(), sums.values.end(), 0.0);
  const auto add = [](double& sum, double a, double b) {
    sum = std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(sum));
  };
  const auto at = [](const Shape& s, int64_t a, int64_t b, int64_t c) { return ((a * s[1] + b) * s[2] + c) * s[3]; };
  for (int64_t p = 0; p < y[0] * y[1] * y[2] * 9; ++p) {
    const int64_t n = p / 9 / y[2] / y[1], i = p / 9 / y[2] % y[1], j = p / 9 % y[2], r = p % 9 / 3, s = p % 3;
    const int64_t h = i + r - pads[0], w = j + s - pads[2];
    if (h < 0 || h >= x[1] || w < 0 || w >= x[2]) continue;
    const int64_t from = at(x, n, h, w), to = at(y, n, i, j), tap = (3 * r + s) * x[3] * y[3];
    for (int64_t c = 0; c < x[3]; ++c)
      for (int64_t o = 0; o < y[3]; ++o) {
        const auto image = static_cast<size_t>(from + c), weight = static_cast<size_t>(tap + c * y[3] + o),
                   result = static_cast<size_t>(to + o);
        if (forward)
          add(sums.values[result], first.values[image], second.values[weight]);
        else if (to_input)
          add(sums.values[image], first.values[result], second.values[weight]);
        else
          add(sums.values[weight], first.values[image], second.values[result]);
      }
  }
  return sums;
}

// Runs a one-node graph with the named kernel, on the same random inputs each time, and compares with the reference.
void check(const std::string& kernel, const std::string& op, const std::vector<TensorType>& types, const Attrs& attrs,
           int threads, std::vector<Tensor>* outputs) {
  const auto backend = make_cpu_backend(threads);
  const Graph graph = single(op, types, attrs);
  std::vector<TensorType> precise = types;
  for (TensorType& type : precise) type.dtype = DType::kFloat64;
  const Graph reference = single(op, precise, attrs);
  const Node& node = graph.nodes[0];
  std::mt19937_64 random(5);
  std::vector<Tensor> inputs, exact;
  for (ValueId id : node.inputs) {
    inputs.push_back(draw(graph.type(id), "normal", random));
    exact.push_back(rounded_as(inputs.back(), DType::kFloat64, DType::kFloat32));
  }
  const auto wanted = reference_outputs(reference, reference.nodes[0], exact);
  const auto run = run_by_name(*backend, graph, kernel, inputs);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double units = error_in_units(run[i], wanted[i]);
    // The op's error bound is meant for short sums, so Winograd may instead have the error of direct summation.
    if (units > op_def(op).error_units && kernel == "winograd_2x4") {
      EXPECT_LE(units, error_in_units(summed_directly(graph, inputs, wanted[0]), wanted[0])) << op << ", output " << i;
    } else {
      EXPECT_LE(units, op_def(op).error_units) << op << ", output " << i;
    }
  }
  *outputs = run;
}

class Winograd : public ::testing::TestWithParam<Case> {};

TEST_P(Winograd, IsAsExactAsDirectSummationWithAnyNumberOfThreads) {
  const Case& c = GetParam();
  const int64_t oh = c.h + c.pads[0] + c.pads[1] - 2, ow = c.w + c.pads[2] + c.pads[3] - 2;
  const TensorType x = floats({c.n, c.h, c.w, c.c}), y = floats({c.n, oh, ow, c.o}), w = floats({3, 3, c.c, c.o});
  Attrs forward = geometry(c), input_grad = geometry(c), weight_grad = geometry(c);
  if (c.relu) forward.set("activation", "relu");
  input_grad.set("input_size", Ints{c.h, c.w});
  weight_grad.set("kernel", Ints{3, 3});
  if (c.bias) weight_grad.set("bias", true);
  const std::tuple<std::string, std::vector<TensorType>, Attrs> directions[] = {
      {"conv2d", c.bias ? std::vector{x, w, floats({c.o})} : std::vector{x, w}, forward},
      {"conv2d_input_grad", {y, w}, input_grad},
      {"conv2d_weight_grad", {x, y}, weight_grad},
  };
  for (const auto& [op, types, attrs] : directions) {
    std::vector<Tensor> on_two, on_five;
    check("winograd_2x4", op, types, attrs, 2, &on_two);
    check("winograd_2x4", op, types, attrs, 5, &on_five);
    ASSERT_EQ(on_two.size(), on_five.size());
    for (size_t i = 0; i < on_two.size(); ++i) EXPECT_EQ(on_two[i].values, on_five[i].values);
  }
}

INSTANTIATE_TEST_SUITE_P(Edges, Winograd, ::testing::ValuesIn(kCases));

struct PointwiseCase {
  int64_t n, h, w, c, o;
  bool bias, relu;
};

const PointwiseCase kPointwiseCases[] = {
    {1, 3, 3, 16, 48, true, false},      // one block of pixels
    {2, 5, 4, 64, 16, false, true},      // a remainder of pixels
    {3, 7, 5, 48, 80, true, true},       // panels of every width
    {4, 9, 9, 32, 128, true, false},     // several work items
    {2, 130, 130, 16, 144, true, true},  // a result larger than the caches
};

class Pointwise : public ::testing::TestWithParam<PointwiseCase> {};

TEST_P(Pointwise, ProductsAreThoseOfTheReferenceWithAnyNumberOfThreads) {
  const PointwiseCase& c = GetParam();
  const Attrs plain = {
      {"strides", Ints{1, 1}}, {"pads", Ints{0, 0, 0, 0}}, {"dilations", Ints{1, 1}}, {"groups", int64_t{1}}};
  Attrs forward = plain, input_grad = plain;
  if (c.relu) forward.set("activation", "relu");
  input_grad.set("input_size", Ints{c.h, c.w});
  const TensorType x = floats({c.n, c.h, c.w, c.c}), y = floats({c.n, c.h, c.w, c.o}), w = floats({1, 1, c.c, c.o});
  std::vector<Tensor> on_two, on_five;
  for (const bool backwards : {false, true}) {
    const std::string op = backwards ? "conv2d_input_grad" : "conv2d";
    const std::vector<TensorType> types = backwards ? std::vector{y, w}
                                          : c.bias  ? std::vector{x, w, floats({c.o})}
                                                    : std::vector{x, w};
    check("gemm_1x1", op, types, backwards ? input_grad : forward, 2, &on_two);
    check("gemm_1x1", op, types, backwards ? input_grad : forward, 5, &on_five);
    EXPECT_EQ(on_two[0].values, on_five[0].values);
  }
}

INSTANTIATE_TEST_SUITE_P(Edges, Pointwise, ::testing::ValuesIn(kPointwiseCases));

struct FewChannelCase {
  int64_t n, h, w, c, o;
  Ints kernel, strides, pads;
  int64_t dilation;  // vertical
  bool bias;
};

const FewChannelCase kFewChannelCases[] = {
    {2, 9, 11, 3, 32, {3, 3}, {1, 1}, {0, 0, 0, 0}, 1, true},
    {3, 8, 8, 1, 48, {3, 3}, {1, 1}, {1, 1, 1, 1}, 1, false},   // three taps per run; half a register block of channels
    {2, 15, 14, 3, 16, {7, 7}, {2, 2}, {3, 2, 3, 2}, 1, true},  // runs of 21 elements
    {1, 5, 9, 4, 16, {2, 5}, {1, 3}, {0, 1, 2, 0}, 2, true},    // everything asymmetric
    {40, 3, 3, 2, 16, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1, true},   // more rows than slices
};

class FewChannels : public ::testing::TestWithParam<FewChannelCase> {};

TEST_P(FewChannels, SumsAreThoseOfTheReferenceWithAnyNumberOfThreads) {
  const FewChannelCase& c = GetParam();
  const auto extent = [&](size_t axis, int64_t size, int64_t dilation) {
    const int64_t padded = size + c.pads[2 * axis] + c.pads[2 * axis + 1];
    return (padded - (c.kernel[axis] - 1) * dilation - 1) / c.strides[axis] + 1;
  };
  const TensorType x = floats({c.n, c.h, c.w, c.c}),
                   dy = floats({c.n, extent(0, c.h, c.dilation), extent(1, c.w, 1), c.o});
  Attrs attrs = {{"strides", c.strides},
                 {"pads", c.pads},
                 {"dilations", Ints{c.dilation, 1}},
                 {"groups", int64_t{1}},
                 {"kernel", c.kernel}};
  if (c.bias) attrs.set("bias", true);
  std::vector<Tensor> on_two, on_five;
  check("thin", "conv2d_weight_grad", {x, dy}, attrs, 2, &on_two);
  check("thin", "conv2d_weight_grad", {x, dy}, attrs, 5, &on_five);
  ASSERT_EQ(on_two.size(), on_five.size());
  for (size_t i = 0; i < on_two.size(); ++i) EXPECT_EQ(on_two[i].values, on_five[i].values);
}

INSTANTIATE_TEST_SUITE_P(Edges, FewChannels, ::testing::ValuesIn(kFewChannelCases));

TEST(OwnConvolution, IsNotBoundToAConvolutionItCannotCompute) {
  const auto backend = make_cpu_backend(1);
  const Attrs attrs = {{"strides", Ints{2, 2}},
                       {"pads", Ints{0, 0, 0, 0}},
                       {"dilations", Ints{1, 1}},
                       {"groups", int64_t{1}},
                       {"kernel", Ints{3, 3}}};
  const Graph graph = single("conv2d_weight_grad", {floats({1, 9, 9, 16}), floats({1, 4, 4, 16})}, attrs);
  std::vector<float> memory(1 << 20);
  for (const char* kernel : {"winograd_2x4", "gemm_1x1", "thin"}) {
    std::vector<void*> in = {memory.data(), memory.data()}, out = {memory.data()};
    const auto bound = backend->bind({graph, graph.nodes[0], kernel, in, out, memory.data(), 4 << 20});
    ASSERT_FALSE(bound) << kernel;
    EXPECT_EQ(bound.error().code, ErrorCode::kBadPlan);
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
