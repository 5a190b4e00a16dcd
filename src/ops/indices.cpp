// Tensors made of indices: iota counts along an axis; one_hot gives each id a row with a single 1.
#include "ops/families.h"
#include "ops/strided.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer_iota(InTypes in, const Attrs& attrs) {
  InferCheck check("iota", in, attrs);
  if (!check.inputs(0) || !check.has("shape", "list") || !check.integer("axis", 0) || !check.has("dtype", "text"))
    return check.failed();
  PLIMSOLL_ASSIGN(Shape shape, checked_shape(attrs.list("shape"), "iota"));
  const auto dtype = dtype_from_name(attrs.text("dtype"));
  check.require(dtype && (is_floating(*dtype) || *dtype == DType::kInt32),
                fmt::format("dtype \"{}\" must be i32 or a floating-point type", attrs.text("dtype")));
  check.require(attrs.integer("axis") < static_cast<int64_t>(shape.rank()),
                fmt::format("axis={} is not one of {} dimensions", attrs.integer("axis"), shape.rank()));
  return check.outputs({{dtype.value_or(DType::kInt32), std::move(shape)}});
}

Result<Types> infer_one_hot(InTypes in, const Attrs& attrs) {
  InferCheck check("one_hot", in, attrs);
  if (!check.inputs(1) || !check.type(0, DType::kInt32) || !check.integer("depth", 1) || !check.has("dtype", "text"))
    return check.failed();
  const auto dtype = dtype_from_name(attrs.text("dtype"));
  check.require(dtype && is_floating(*dtype),
                fmt::format("dtype \"{}\" must be a floating-point type", attrs.text("dtype")));
  Shape y = in[0].shape;
  y.dims.push_back(attrs.integer("depth"));
  return check.outputs({{dtype.value_or(DType::kFloat32), std::move(y)}});
}

void reference_iota(const ReferenceCall& call) {
  const TensorView& y = call.outputs[0];
  const AroundAxis around(y.type.shape, static_cast<size_t>(call.attrs.integer("axis")));
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t index = i / around.inner % around.size;
    if (y.type.dtype == DType::kInt32)
      y.as<int32_t>()[i] = static_cast<int32_t>(index);
    else
      y.as<double>()[i] = static_cast<double>(index);
  }
}

void reference_one_hot(const ReferenceCall& call) {
  const int64_t depth = call.attrs.integer("depth");
  const auto* ids = call.inputs[0].as<int32_t>();
  map_elements(out(call), call.outputs[0].elements(),
               [=](int64_t i) { return i % depth == ids[i / depth] ? 1.0 : 0.0; });
}

}  // namespace

std::vector<OpDef> index_ops() {
  OpDef iota;
  iota.name = "iota";
  iota.recompute = Recompute::kCheap;
  iota.infer = infer_iota;
  iota.reference = reference_iota;
  iota.error_units = 0;
  const auto counts = [](Ints shape, int64_t axis, const char* dtype) {
    return Attrs{{"shape", std::move(shape)}, {"axis", axis}, {"dtype", std::string(dtype)}};
  };
  iota.cases = {{"positions", {}, counts({17}, 0, "i32"), {}, {}},
                {"middle", {}, counts({3, 5, 7}, 1, "f32"), {}, {}},
                {"last", {}, counts({2, 9}, 1, "i32"), {}, {}}};

  OpDef one_hot;
  one_hot.name = "one_hot";
  one_hot.recompute = Recompute::kCheap;
  one_hot.infer = infer_one_hot;
  one_hot.reference = reference_one_hot;
  one_hot.error_units = 0;
  const auto depth = [](int64_t d) { return Attrs{{"depth", d}, {"dtype", std::string("f32")}}; };
  one_hot.cases = {{"classes", {i32({5})}, depth(10), {"labels:10"}, {}},
                   {"outside", {i32({3, 7})}, depth(4), {"integers:6"}, {}},
                   {"one", {i32({})}, depth(1), {"labels:1"}, {}}};
  return {iota, one_hot};
}

}  // namespace plimsoll::engine
