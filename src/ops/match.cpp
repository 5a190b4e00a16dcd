// match: which rows were predicted correctly, for Keras's sparse_categorical_, categorical_ and binary_accuracy.
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer(InTypes in, const Attrs& attrs) {
  InferCheck check("match", in, attrs);
  if (!check.inputs(2) || !check.floats({0}) || !check.require(in[0].shape.rank() >= 1, "needs an axis of classes") ||
      !check.has("kind", "text"))
    return check.failed();
  const std::string& kind = attrs.text("kind");
  const int64_t rows = rows_of(in[0].shape);
  check.require(kind == "sparse" || kind == "categorical" || kind == "binary",
                fmt::format("kind=\"{}\" must be \"sparse\", \"categorical\" or \"binary\"", kind));
  if (kind == "sparse") {
    check.type(1, DType::kInt32);
    check.require(in[1].shape == Shape{rows}, fmt::format("sparse targets must be [{}]", rows));
  } else {
    check.floats({0, 1});
    check.same_shape(0, 1);
    if (kind == "binary") check.real("threshold");
  }
  return check.outputs({{wide(in[0].dtype), Shape{rows}}});
}

// Returns the first of equal maxima.
int64_t argmax(const double* x, int64_t k) {
  return std::max_element(x, x + k) - x;
}

double binary_match(const double* x, const double* target, int64_t k, double threshold) {
  int64_t right = 0;
  for (int64_t i = 0; i < k; ++i) right += (x[i] > threshold ? 1.0 : 0.0) == target[i];
  return static_cast<double>(right) / static_cast<double>(k);
}

void reference(const ReferenceCall& call) {
  const std::string& kind = call.attrs.text("kind");
  const int64_t k = channels_of(call.inputs[0].type.shape);
  for (int64_t row = 0; row < call.outputs[0].elements(); ++row) {
    const double* x = in(call, 0) + row * k;
    if (kind == "sparse")
      out(call)[row] = argmax(x, k) == call.inputs[1].as<int32_t>()[row];
    else if (kind == "categorical")
      out(call)[row] = argmax(x, k) == argmax(in(call, 1) + row * k, k);
    else
      out(call)[row] = binary_match(x, in(call, 1) + row * k, k, call.attrs.real("threshold"));
  }
}

}  // namespace

std::vector<OpDef> match_ops() {
  OpDef op;
  op.name = "match";
  op.recompute = Recompute::kCostly;
  op.infer = infer;
  op.reference = reference;
  op.error_units = 1;
  op.flops = [](InTypes in, InTypes, const Attrs&) { return static_cast<double>(in[0].shape.elements()); };
  const Attrs binary = {{"kind", "binary"}, {"threshold", 0.5}};
  op.cases = {{"sparse", {f32({17, 3}), i32({17})}, {{"kind", "sparse"}}, {"normal", "labels:3"}, {}},
              {"ties", {f32({5, 3}), i32({5})}, {{"kind", "sparse"}}, {"value:0.25", "labels:2"}, {}},
              {"pixels", {f32({2, 3, 3, 2}), i32({18})}, {{"kind", "sparse"}}, {"normal", "labels:2"}, {}},
              {"categorical", {f32({17, 3}), f32({17, 3})}, {{"kind", "categorical"}}, {"normal", "onehot"}, {}},
              {"binary", {f32({17, 1}), f32({17, 1})}, binary, {"uniform", "labels:2"}, {}},
              {"multi_label", {f32({5, 3}), f32({5, 3})}, binary, {"uniform", "labels:2"}, {}}};
  return {op};
}

}  // namespace plimsoll::engine
