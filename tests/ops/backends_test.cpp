// Runs every backend on every case: the op and all nodes of its gradient, compared with the reference on the same
// (f32-rounded) inputs, between sentinels, and in place if the op allows it. Prints the largest error of each op, and
// which backend supports which op.
#include <gtest/gtest.h>
#include <omp.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "backends/registry.h"
#include "tests/ops/harness.h"

namespace plimsoll::engine::testing {
namespace {

struct BackendUnderTest {
  std::string name;
  std::string backend;  // its name in the registry
  DType floating;
  int as_capability = 0;
  std::string way = {};
};

// Returns null if this machine does not have the backend. tf32 is off, because its rounding would hide errors.
std::unique_ptr<Backend> open_for_test(const std::string& name, int as_capability = 0, const std::string& way = "",
                                       bool tf32 = false) {
  const BackendOptions options{2, 0, tf32, false, as_capability, way};
  return backend_named(name).available() ? require(open_backend(name, options)) : nullptr;
}
std::unique_ptr<Backend> make_gpu_as(int capability, const std::string& way = "", bool tf32 = false) {
  return open_for_test("gpu", capability, way, tf32);
}

// The backends of this build and, on a GPU, its half precisions.
std::vector<BackendUnderTest> backends_under_test() {
  std::vector<BackendUnderTest> list;
  for (const BackendEntry& entry : backends())
    if (entry.built) list.push_back({entry.name, entry.name, entry.floating});
  if (backend_named("cpu").built) {
    list.push_back({"cpu_bfloat16", "cpu", DType::kBFloat16});
    list.push_back({"cpu_float16", "cpu", DType::kFloat16});
    list.push_back({"cpu_float16_in_pieces", "cpu", DType::kFloat16, 0, "small-pieces"});
  }
  if (backend_named("gpu").built) {
    list.push_back({"gpu_bfloat16", "gpu", DType::kBFloat16});
    list.push_back({"gpu_float16", "gpu", DType::kFloat16});
    // Kernels that need a newer card are replaced by others.
    list.push_back({"gpu_as_turing", "gpu", DType::kFloat16, 75});
  }
  return list;
}
const std::vector<BackendUnderTest> kBackends = backends_under_test();

struct Record {
  double worst = 0;
  std::map<std::string, int> kernels;
  std::map<std::string, int> refusals;
};

class OnBackend : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    under_test_ = &kBackends[GetParam()];
    backend_ = open_for_test(under_test_->backend, under_test_->as_capability, under_test_->way);
    if (backend_ == nullptr) GTEST_SKIP() << "no GPU here";
  }

  // A half-precision result is also rounded once, by half a unit in the last of its 8 or 11 bits.
  static double allowed(const Node& node, DType dtype) {
    const double rounding = dtype == DType::kBFloat16 ? 0x1p16 : dtype == DType::kFloat16 ? 0x1p13 : 0;
    // The gradient of attention also rounds the weights and their gradients before it multiplies them. A loop rounds
    // the states before it multiplies them, and its gradient those of the gates' sums; the errors go on to other steps,
    // and the terms of a weight's gradient may cancel. Up to 4 roundings were seen.
    const double times = node.op == "recurrent_grad"                             ? 5
                         : node.op == "recurrent" || node.op == "attention_grad" ? 2
                                                                                 : 1.01;
    return op_def(node.op).error_units + rounding * times;
  }

  // Returns how often an op was run and compared.
  int runs(const std::string& op) {
    int sum = 0;
    for (const auto& [kernel, count] : records_[op].kernels) sum += count;
    return sum;
  }

  // Compares one run with the reference.
  void compare(const std::string& where, const Node& node, const Result<NodeRun>& run,
               const std::vector<Tensor>& wanted) {
    Record& record = records_[node.op];
    if (!run) {
      ++record.refusals[run.error().what];
      return;
    }
    ++record.kernels[run->kernel];
    EXPECT_EQ(run->damage, "") << where << ": damaged";
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double units = error_in_units(run->outputs[i], wanted[i]);
      record.worst = std::max(record.worst, units);
      EXPECT_LE(units, allowed(node, run->outputs[i].type.dtype)) << where << ", output " << i << " of " << run->kernel;
    }
  }

  // Runs the node on inputs rounded to f32, with separate outputs and in place.
  void check_node(const std::string& where, const Graph& reference, const Graph& graph, size_t n,
                  const std::vector<Tensor>& values) {
    const Node& node = graph.nodes[n];
    std::vector<Tensor> inputs, exact;
    for (ValueId id : node.inputs) {
      const DType dtype = graph.type(id).dtype;
      inputs.push_back(rounded_as(values[static_cast<size_t>(id)], dtype));
      exact.push_back(rounded_as(values[static_cast<size_t>(id)], DType::kFloat64, dtype));
    }
    const auto wanted = reference_outputs(reference, reference.nodes[n], exact);
    const auto run = run_on_backend(*backend_, graph, node, inputs);
    compare(where, node, run, wanted);
    if (!run) return;
    for (const InPlace& pair : op_def(node.op).in_place) {
      if (pair.input >= node.inputs.size() || pair.output >= node.outputs.size()) continue;
      if (graph.type(node.inputs[pair.input]).bytes() != graph.type(node.outputs[pair.output]).bytes()) continue;
      compare(fmt::format("{}, output {} over input {}", where, pair.output, pair.input), node,
              run_on_backend(*backend_, graph, node, inputs, &pair), wanted);
    }
  }

  // Checks the op of a case and the nodes of its gradient.
  void check_case(const OpDef& op, const OpCase& one) {
    const auto exact = graph_of(op, one, DType::kFloat64), made = graph_of(op, one, under_test_->floating);
    ASSERT_TRUE(exact && made) << op.name << "/" << one.name;
    auto inputs = draw_inputs(op, one, DType::kFloat64);
    if (exact->dy != kNone) {
      std::mt19937_64 random(7);
      inputs.push_back(draw(exact->graph.type(exact->dy), "normal", random));
    }
    const auto values = run_by_reference(exact->graph, inputs);
    for (size_t n = 0; n < made->graph.nodes.size(); ++n)
      check_node(fmt::format("{}/{} node {} ({})", op.name, one.name, n, made->graph.nodes[n].op), exact->graph,
                 made->graph, n, values);
  }

  // Compares the row-wise update of a table with the table's gradient followed by the dense update.
  void check_equals_dense(const OpDef& op, const OpCase& one) {
    const auto made = graph_of(op, one, DType::kFloat32);
    ASSERT_TRUE(made);
    const auto inputs = draw_inputs(op, one, DType::kFloat32);
    const auto by_rows = run_on_backend(*backend_, made->graph, made->graph.nodes[0], inputs);
    ASSERT_TRUE(by_rows) << to_text(by_rows.error());

    GraphBuilder b = make_builder();
    std::vector<ValueId> ids;
    for (size_t i = 0; i < one.inputs.size(); ++i)
      ids.push_back(b.input(fmt::format("x{}", i), one.inputs[i], Category::kInputs, false));
    std::vector<ValueId> update_ids = ids;
    update_ids[1] = b.add1("embedding_grad", {ids[1], ids[2]}, {{"rows", one.inputs[0].shape[0]}});
    update_ids.erase(update_ids.begin() + 2);
    b.add(op.name.substr(0, op.name.find('_')), update_ids, one.attrs);
    ASSERT_TRUE(b.status());
    const auto gradient = run_on_backend(*backend_, b.graph(), b.graph().nodes[0], {inputs[1], inputs[2]});
    ASSERT_TRUE(gradient) << to_text(gradient.error());
    auto update_inputs = inputs;
    update_inputs[1] = gradient->outputs[0];
    update_inputs.erase(update_inputs.begin() + 2);
    const auto dense = run_on_backend(*backend_, b.graph(), b.graph().nodes[1], update_inputs);
    ASSERT_TRUE(dense) << to_text(dense.error());
    // Both make the same additions in the same order, so the results must be equal.
    for (size_t i = 0; i < dense->outputs.size(); ++i)
      EXPECT_EQ(error_in_units(by_rows->outputs[i], dense->outputs[i]), 0)
          << op.name << "/" << one.name << ", output " << i;
  }

  void report() const {
    fmt::print("{:28} {:>10} {:>7}  kernels on {}\n", "op", "worst", "allowed", under_test_->name);
    for (const OpDef& op : all_ops()) {
      const auto found = records_.find(op.name);
      if (found == records_.end()) continue;
      std::string kernels;
      for (const auto& [name, count] : found->second.kernels) kernels += fmt::format(" {}({})", name, count);
      for (const auto& [reason, count] : found->second.refusals)
        kernels += fmt::format(" refused({}): {}", count, reason);
      fmt::print("{:28} {:10.3g} {:7}  {}\n", op.name, found->second.worst, op.error_units, kernels);
    }
  }

  const BackendUnderTest* under_test_ = nullptr;
  std::unique_ptr<Backend> backend_;
  std::map<std::string, Record> records_;
};

// PLIMSOLL_TEST_OPS=attention,recurrent: only ops whose names begin with one of these.
bool is_chosen(const std::string& op) {
  const char* const chosen = std::getenv("PLIMSOLL_TEST_OPS");
  if (chosen == nullptr) return true;
  std::stringstream names(chosen);
  for (std::string name; std::getline(names, name, ',');)
    if (op.starts_with(name)) return true;
  return false;
}

TEST_P(OnBackend, ValuesAgreeWithTheReference) {
  for (const OpDef& op : all_ops())
    for (const OpCase& one : op.cases)
      if (is_chosen(op.name)) check_case(op, one);
  report();
}

// Sizes from which a GPU splits sums and images into pieces. They are too large for the other backends.
TEST_P(OnBackend, LargeValuesAgreeWithTheReference) {
  if (backend_->device().info().kind != "gpu") GTEST_SKIP() << "for GPUs";
  const auto f32 = [](std::vector<int64_t> dims) { return TensorType{DType::kFloat32, Shape{std::move(dims)}}; };
  const auto list = [](std::vector<int64_t> values) { return Attr(AttrList(std::move(values))); };
  const std::vector<std::string> two = {"normal", "normal"}, three = {"normal", "normal", "normal"};
  // The padding is uneven, so that no other kernel is tried. Images are processed in pieces of 17, 17 and 3 in f32, of
  // 35 and 2 in half precision.
  const Attrs uneven = {
      {"strides", list({1, 1})}, {"pads", list({3, 2, 0, 1})}, {"dilations", list({1, 1})}, {"groups", int64_t{1}}};
  Attrs gradient = uneven;
  gradient.set("kernel", list({7, 7}));
  gradient.set("bias", true);
  check_case(op_def("conv2d"), {"pieces", {f32({37, 100, 100, 4}), f32({7, 7, 4, 5}), f32({5})}, uneven, three, {}});
  // Sums of 348,000 products, small enough to fit f16.
  check_case(op_def("conv2d_weight_grad"),
             {"pieces", {f32({37, 100, 100, 4}), f32({37, 99, 95, 5})}, gradient, {"uniform", "small"}, {}});
  Attrs relu;
  relu.set("activation", std::string("relu"));
  check_case(op_def("matmul"), {"skinny", {f32({37, 5001}), f32({5001, 10}), f32({10})}, relu, three, {}});
  check_case(op_def("matmul"), {"skinny_wide", {f32({3, 70001}), f32({70001, 31})}, {}, two, {}});
  check_case(op_def("matmul"), {"skinny_one", {f32({1, 4096}), f32({4096, 1}), f32({1})}, {}, three, {}});
  std::vector<TensorType> gradients(300, f32({7}));  // more than one launch can take
  gradients[1] = f32({3000, 1001});
  gradients[200] = f32({64, 64, 3, 3});
  std::vector<std::string> drawn(300, "normal");
  drawn[0] = drawn[1] = drawn[299] = "unbounded";
  check_case(op_def("count_not_finite"), {"several_launches", gradients, {}, drawn, {}});
  check_case(op_def("matmul"), {"skinny_tall", {f32({1000, 4097}), f32({4097, 17})}, {}, two, {}});
  report();
}

// Sizes from which a loop over time has several groups of samples, several chunks of steps, blocks that share sums, and
// weights that do not fit in shared memory.
TEST_P(OnBackend, LoopsOfManyUnitsAgreeWithTheReference) {
  if (backend_->device().info().kind != "gpu") GTEST_SKIP() << "for GPUs";
  struct Size {
    const char* name;
    int64_t n, t, d, u;
  };
  const OpDef& op = op_def("recurrent");
  const auto check = [&](const std::string& cell, const Size& size) {
    OpCase one =
        *std::find_if(op.cases.begin(), op.cases.end(), [&](const OpCase& c) { return c.name == cell + "_wide"; });
    // All sizes of that case differ, so each dimension tells which one it is.
    const Shape x = one.inputs[0].shape;
    const int64_t u = one.inputs[2].shape[0], wide = one.inputs[2].shape[1];
    const std::map<int64_t, int64_t> sizes = {
        {x[0], size.n}, {x[1], size.t}, {x[2], size.d}, {u, size.u}, {wide, wide / u * size.u}};
    for (TensorType& type : one.inputs)
      for (int64_t& dim : type.shape.dims)
        if (const auto found = sizes.find(dim); found != sizes.end()) dim = found->second;
    one.fill[1] = one.fill[2] = "symmetric";
    one.differentiate = {0, 1, 2, 3};
    one.name += std::string("_") + size.name;
    check_case(op, one);
  };
  for (const std::string cell : {"simple", "lstm", "gru", "gru_reset_before"}) {
    check(cell, {"shared_sums", 80, 3, 24, 256});
    check(cell, {"chunks", 300, 9, 8, 24});
    check(cell, {"one_group", 70, 4, 40, 136});
  }
  check("lstm", {"weights_in_cache", 3, 2, 16, 1100});
  report();
}

// The ids are sorted by one, two and three digits. If most tokens name few rows, runs and runs of runs are summed
// separately.
TEST_P(OnBackend, TablesOfManyTokensAgreeWithTheReference) {
  if (backend_->device().info().kind != "gpu") GTEST_SKIP() << "for GPUs";
  struct Table {
    int64_t rows, width, tokens;
    std::string ids;
  };
  for (const Table& table : std::initializer_list<Table>{{1031, 264, 20011, "labels:3"},
                                                         {70001, 24, 9001, "labels:70001"},
                                                         {200, 33, 30000, "value:0"},
                                                         {257, 8, 12289, "labels:300"}}) {
    const TensorType dy{DType::kFloat32, Shape{table.tokens, table.width}}, ids{DType::kInt32, Shape{table.tokens}};
    check_case(op_def("embedding_grad"), {"many", {dy, ids}, {{"rows", table.rows}}, {"normal", table.ids}, {}});
    for (const char* name : {"sgd_rows", "adam_rows"})
      for (OpCase one : op_def(name).cases) {
        if (!one.name.ends_with("_one_element")) continue;  // one for each case of the update
        for (TensorType& type : one.inputs)
          if (type.shape.rank() == 2) type.shape = Shape{table.rows, table.width};
        one.inputs[1] = dy;
        one.inputs[2] = ids;
        one.fill[2] = table.ids;
        one.name += fmt::format("_{}_tokens", table.tokens);
        check_case(op_def(name), one);
        if (under_test_->floating == DType::kFloat32) check_equals_dense(op_def(name), one);
      }
  }
  report();
}

// An update that does not store the gradient must give the same result.
TEST_P(OnBackend, RowUpdatesEqualTheDenseOnes) {
  if (under_test_->floating != DType::kFloat32) GTEST_SKIP() << "only in float32: otherwise the gradient is rounded";
  for (const char* name : {"sgd_rows", "adam_rows"})
    for (const OpCase& one : op_def(name).cases) check_equals_dense(op_def(name), one);
}

// A backend that can train must run every op. Ops that only lowering creates are optional.
TEST_P(OnBackend, SupportsEveryOp) {
  for (const OpDef& op : all_ops())
    for (const OpCase& one : op.cases) {
      const auto made = graph_of(op, one, under_test_->floating);
      ASSERT_TRUE(made);
      if (one.attrs.has("activation") && !backend_->device().has_epilogues()) continue;
      if (op.name.starts_with("conv2d_pooled")) continue;  // if it is refused, the two separate ops are used instead
      const auto offer = backend_->device().offer(made->graph, made->graph.nodes[0]);
      // Not written for GPUs yet, and refused by name.
      if (!offer && offer.error().what.find("has no kernel for GPUs yet") != std::string::npos) continue;
      EXPECT_TRUE(offer) << op.name << "/" << one.name << ": " << (offer ? "" : offer.error().what);
    }
}

// A backend chooses the kernel of a convolution over few channels by timing. This test runs each kernel in turn.
TEST_P(OnBackend, ThinConvolutionsAgreeEachWay) {
  if (backend_->device().info().kind != "gpu") GTEST_SKIP() << "for GPUs";
  const auto f32 = [](std::vector<int64_t> dims) { return TensorType{DType::kFloat32, Shape{std::move(dims)}}; };
  const auto list = [](std::vector<int64_t> values) { return Attr(AttrList(std::move(values))); };
  struct Case {
    int64_t size, channels, kernel, top, bottom, left, right;
    int64_t stride = 2, dilation = 1, outputs = 8;
  };
  const std::vector<Case> cases = {{17, 3, 7, 3, 3, 3, 3},
                                   {16, 3, 3, 0, 1, 0, 1},
                                   {11, 1, 5, 2, 2, 1, 0},
                                   {12, 4, 4, 1, 1, 1, 1},
                                   {9, 2, 3, 0, 0, 0, 0},
                                   {140, 3, 3, 0, 0, 1, 1, 1},
                                   {21, 3, 3, 2, 2, 2, 2, 1, 2},
                                   {13, 2, 3, 1, 1, 1, 1, 1, 1, 5},
                                   {30, 4, 3, 1, 1, 1, 1, 1, 1, 72},
                                   {264, 1, 5, 2, 2, 1, 0},
                                   {24, 3, 7, 3, 3, 3, 2, 2, 1, 72},
                                   {136, 3, 7, 3, 3, 3, 3},
                                   {20, 2, 5, 2, 2, 2, 2, 1, 1, 16},
                                   {40, 1, 7, 0, 0, 0, 0, 2, 1, 64},
                                   {16, 3, 6, 2, 2, 2, 2},
                                   {16, 4, 5, 9, 9, 9, 9, 3, 1, 24}};
  // A kernel that was not meant for a case must either refuse it or give the right result.
  const bool half = is_half(under_test_->floating);
  const auto must_run = [&](const std::string& way, const Case& c, bool weight_grad) {
    const int64_t across = c.kernel * c.channels, numbers = across * c.kernel;
    if (way == "im2col") return true;
    if (way == "implicit-gemm") return numbers < 64;
    if (way != "paired" || !half || c.dilation > 1 || across > 23) return false;
    return c.stride * c.channels % 2 == 0 && c.size * c.channels % 8 == 0 && c.outputs % 8 == 0 &&
           (!weight_grad || (across / 2 + 1) * c.kernel < 80);
  };
  int paired = 0;
  for (const std::string way : {"implicit-gemm", "paired", "im2col", "space-to-depth", "library"}) {
    // With implicit GEMM, float32 is rounded to tf32, which represents small integers exactly. In float32 the library's
    // engine may add hundreds of products one by one; for small integers the sum does not depend on the order.
    const bool tf32 = way == "implicit-gemm" && !half,
               in_any_order = (way == "space-to-depth" || way == "library") && !half;
    backend_ = make_gpu_as(0, way, tf32);
    const std::string fill = tf32 || in_any_order ? "integers:4" : "normal";
    for (const Case& c : cases) {
      const int64_t covered = (c.kernel - 1) * c.dilation + 1, h = (c.size + c.top + c.bottom - covered) / c.stride + 1,
                    w = (c.size + c.left + c.right - covered) / c.stride + 1;
      const std::string name = fmt::format("{} {}x{}x{}x{}", way, c.size, c.channels, c.kernel, c.outputs);
      Attrs attrs = {{"strides", list({c.stride, c.stride})},
                     {"pads", list({c.top, c.bottom, c.left, c.right})},
                     {"dilations", list({c.dilation, c.dilation})},
                     {"groups", int64_t{1}}};
      const TensorType x = f32({5, c.size, c.size, c.channels}), y = f32({5, h, w, c.outputs}), bias = f32({c.outputs});
      const TensorType kernel = f32({c.kernel, c.kernel, c.channels, c.outputs});
      const auto check = [&](const std::string& op, const OpCase& one) {
        const int before = runs(op);
        check_case(op_def(op), one);
        const bool ran = runs(op) > before, must = must_run(way, c, op == "conv2d_weight_grad");
        EXPECT_TRUE(ran || !must) << one.name << ": " << op << " did not run";
        paired += way == "paired" && ran ? 1 : 0;
      };
      check("conv2d", {name, {x, kernel, bias}, attrs, {fill, fill, fill}, {}});
      Attrs relu = attrs;
      relu.set("activation", std::string("relu"));
      check("conv2d", {name + " relu", {x, kernel, bias}, relu, {fill, fill, fill}, {}});
      attrs.set("kernel", list({c.kernel, c.kernel}));
      check("conv2d_weight_grad", {name, {x, y}, attrs, {fill, fill}, {}});
      attrs.set("bias", true);
      check("conv2d_weight_grad", {name + " bias", {x, y}, attrs, {fill, fill}, {}});
    }
  }
  EXPECT_GE(paired, half ? 32 : 0);
}

// A pixel outside every window may have any value: kernels read it together with its neighbours.
TEST_P(OnBackend, WhatNoWindowHoldsChangesNoWeightGradient) {
  if (backend_->device().info().kind != "gpu") GTEST_SKIP() << "for GPUs";
  const auto list = [](std::vector<int64_t> values) { return Attr(AttrList(std::move(values))); };
  for (const std::string way : {"implicit-gemm", "paired", "per-tap"}) {
    if (way == "paired" && !is_half(under_test_->floating)) continue;
    const bool integers = under_test_->floating == DType::kFloat32;
    backend_ = make_gpu_as(0, way, integers);
    const int64_t channels = way == "per-tap" ? 16 : 4;
    const OpCase one{way,
                     {{DType::kFloat32, Shape{2, 16, 16, channels}}, {DType::kFloat32, Shape{2, 7, 7, 8}}},
                     {{"strides", list({2, 2})},
                      {"pads", list({0, 0, 0, 0})},
                      {"dilations", list({1, 1})},
                      {"groups", int64_t{1}},
                      {"kernel", list({3, 3})}},
                     {"integers:4", "integers:4"},
                     {}};
    const OpDef& op = op_def("conv2d_weight_grad");
    const auto made = graph_of(op, one, under_test_->floating), exact = graph_of(op, one, DType::kFloat64);
    ASSERT_TRUE(made && exact);
    std::mt19937_64 random(5);
    std::vector<Tensor> inputs, wide;
    for (size_t i = 0; i < 2; ++i) {
      const Tensor drawn = draw(one.inputs[i], one.fill[i], random);
      wide.push_back(rounded_as(drawn, DType::kFloat64));
      inputs.push_back(rounded_as(drawn, under_test_->floating));
    }
    const auto wanted = reference_outputs(exact->graph, exact->graph.nodes[0], wide);
    for (size_t pixel = 0; pixel < inputs[0].values.size() / static_cast<size_t>(channels); ++pixel)
      if (pixel % 16 == 15 || pixel / 16 % 16 == 15)  // the last column and row
        for (size_t c = 0; c < static_cast<size_t>(channels); ++c)
          inputs[0].values[pixel * static_cast<size_t>(channels) + c] = INFINITY;
    const auto run = run_on_backend(*backend_, made->graph, made->graph.nodes[0], inputs);
    ASSERT_TRUE(run) << way << ": " << run.error().what;
    EXPECT_LE(error_in_units(run->outputs[0], wanted[0]), allowed(made->graph.nodes[0], under_test_->floating)) << way;
  }
}

TEST_P(OnBackend, WeightGradientsByTapsAgreeWithTheReference) {
  if (backend_->device().info().kind != "gpu") GTEST_SKIP() << "for GPUs";
  const bool integers = under_test_->floating == DType::kFloat32;  // for the same reason as above
  const std::string fill = integers ? "integers:4" : "normal";
  const auto f32 = [](std::vector<int64_t> dims) { return TensorType{DType::kFloat32, Shape{std::move(dims)}}; };
  const auto list = [](std::vector<int64_t> values) { return Attr(AttrList(std::move(values))); };
  struct Case {
    int64_t size, channels, outputs, kh, kw, pad = 0, stride = 1, dilation = 1;
  };
  for (const std::string way : {"per-tap", "library"}) {
    backend_ = make_gpu_as(0, way, integers);
    for (const Case& c : std::initializer_list<Case>{{11, 32, 64, 3, 3},
                                                     {70, 16, 8, 3, 3, 1},
                                                     {9, 64, 40, 2, 2},
                                                     {17, 32, 72, 1, 5, 0, 2},
                                                     {13, 16, 136, 3, 3, 2, 1, 2},
                                                     {18, 64, 96, 3, 3, 1, 2}}) {
      const auto result = [&](int64_t kernel) {
        return (c.size + 2 * c.pad - (kernel - 1) * c.dilation - 1) / c.stride + 1;
      };
      const Attrs attrs = {{"strides", list({c.stride, c.stride})},
                           {"pads", list({c.pad, c.pad, c.pad, c.pad})},
                           {"dilations", list({c.dilation, c.dilation})},
                           {"groups", int64_t{1}},
                           {"kernel", list({c.kh, c.kw})},
                           {"bias", true}};
      check_case(op_def("conv2d_weight_grad"),
                 {fmt::format("{} {}x{}x{}x{}x{}", way, c.size, c.channels, c.outputs, c.kh, c.kw),
                  {f32({3, c.size, c.size, c.channels}), f32({3, result(c.kh), result(c.kw), c.outputs})},
                  attrs,
                  {fill, fill},
                  {}});
    }
    // The shared memory for a stretch may exceed what a card has, especially in float32 with many channels.
    EXPECT_GE(runs("conv2d_weight_grad"), 3) << way;
  }
}

// Whole and partial tiles, a single number, and more values than any of them has tiles; to the other layout and back.
TEST_P(OnBackend, ManyValuesMoveBetweenLayoutsAtOnce) {
  if (backend_->device().info().kind != "gpu") GTEST_SKIP() << "for GPUs";
  Graph graph;
  Node there{"reorder", {}, {}, {{"layout", std::string("ohwi")}}, "", Stage::kForward, nullptr}, back = there;
  back.attrs.set("layout", std::string());
  std::deque<Buffer> plain, moved, again;
  const auto pointers = [](std::deque<Buffer>& list) {
    std::vector<Buffer*> all;
    for (Buffer& buffer : list) all.push_back(&buffer);
    return all;
  };
  const auto add = [&](const TensorType& type, const char* layout, std::deque<Buffer>& to) {
    Value value;
    value.name = std::to_string(graph.values.size());
    value.type = type;
    value.layout = layout;
    value.layout_bytes = *layout ? type.bytes() : 0;
    graph.values.push_back(value);
    to.emplace_back(type.bytes());
    return static_cast<ValueId>(graph.values.size() - 1);
  };
  std::mt19937_64 random(3);
  std::vector<Tensor> tensors;
  for (const Shape& shape :
       {Shape{3, 3, 5, 7}, Shape{1, 1, 1, 1}, Shape{1, 1, 64, 128}, Shape{7, 7, 3, 65}, Shape{1, 1, 130, 1}}) {
    tensors.push_back(draw({under_test_->floating, shape}, "normal", random));
    there.inputs.push_back(add(tensors.back().type, "", plain));
    store(tensors.back(), plain.back().data());
    there.outputs.push_back(add(tensors.back().type, "ohwi", moved));
    back.outputs.push_back(add(tensors.back().type, "", again));
  }
  back.inputs = there.outputs;
  ASSERT_TRUE(run_bound(*backend_, graph, there, pointers(plain), pointers(moved)));
  ASSERT_TRUE(run_bound(*backend_, graph, back, pointers(moved), pointers(again)));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor ohwi = load(tensors[i].type, moved[i].data());
    const auto o = static_cast<size_t>(tensors[i].type.shape.back()), inner = ohwi.values.size() / o;
    for (size_t k = 0; k < ohwi.values.size(); ++k)
      ASSERT_EQ(ohwi.values[k % o * inner + k / o], tensors[i].values[k]) << i << " " << k;
    EXPECT_EQ(load(tensors[i].type, again[i].data()).values, tensors[i].values);
    EXPECT_TRUE(moved[i].intact() && again[i].intact());
  }
}

// float32 is rounded to tf32, which represents small integers exactly. The cases of all ops cover the half precisions.
TEST_P(OnBackend, PooledConvolutionsAgreeWithTheReference) {
  if (backend_->device().info().kind != "gpu") GTEST_SKIP() << "for GPUs";
  const bool integers = under_test_->floating == DType::kFloat32;
  if (integers) backend_ = make_gpu_as(0, "", true);
  for (const std::string name : {"conv2d_pooled", "conv2d_pooled_weight_grad"}) {
    for (OpCase one : op_def(name).cases) {
      for (std::string& fill : one.fill)
        if (integers && fill == "normal") fill = "integers:4";
      check_case(op_def(name), one);
      one.name += "_many";  // more than a card processes at once
      one.inputs[0].shape.dims[0] = 301;
      if (name == "conv2d_pooled_weight_grad") one.inputs[1].shape.dims[0] = one.inputs[2].shape.dims[0] = 301;
      check_case(op_def(name), one);
    }
    EXPECT_EQ(records_[name].kernels.empty(), under_test_->name == "gpu_as_turing");
  }
  report();
}

INSTANTIATE_TEST_SUITE_P(Backends, OnBackend, ::testing::Range(size_t{0}, kBackends.size()),
                         [](const auto& test) { return kBackends[test.param].name; });

}  // namespace
}  // namespace plimsoll::engine::testing
