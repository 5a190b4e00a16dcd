// constant: a small tensor whose numbers are in the graph itself. They are an attribute of type text, because
// attributes have no list of reals; ops/build.h writes and reads it.
#include "ops/build.h"
#include "ops/families.h"
#include "ops/util.h"

namespace plimsoll::engine {
namespace {

Result<Types> infer(InTypes in, const Attrs& attrs) {
  InferCheck check("constant", in, attrs);
  if (!check.inputs(0) || !check.has("shape", "list") || !check.has("dtype", "text") || !check.has("values", "text"))
    return check.failed();
  PLIMSOLL_ASSIGN(Shape shape, checked_shape(attrs.list("shape"), "constant"));
  const auto dtype = dtype_from_name(attrs.text("dtype"));
  if (!check.require(dtype && is_floating(*dtype),
                     fmt::format("dtype={} must be a floating-point type", attrs.text("dtype"))) ||
      !check.require(shape.elements() <= kMostConstants,
                     fmt::format("[{}] has more than {} elements", to_text(shape), kMostConstants)))
    return check.failed();
  const auto values = constant_values(attrs);
  check.require(values && static_cast<int64_t>(values->size()) == shape.elements(),
                fmt::format("values must be {} numbers", shape.elements()));
  return check.outputs({{*dtype, std::move(shape)}});
}

}  // namespace

std::vector<OpDef> constant_ops() {
  OpDef op;
  op.name = "constant";
  op.recompute = Recompute::kCheap;
  op.error_units = 1;
  op.infer = infer;
  op.reference = [](const ReferenceCall& call) {
    const std::vector<double> values = *constant_values(call.attrs);
    std::copy(values.begin(), values.end(), out(call));
  };
  const auto ramp = [](const Shape& shape) {
    std::vector<double> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.1 * static_cast<double>(i % 1000) - 7;
    return constant_attrs(shape, DType::kFloat32, values);
  };
  op.cases = {{"channels", {}, constant_attrs({3}, DType::kFloat32, std::vector{0.485, 0.456, 0.406}), {}, {}},
              {"scalar", {}, ramp({}), {}, {}},
              {"table", {}, ramp({5, 1, 17}), {}, {}},
              {"large", {}, ramp({37, 101}), {}, {}}};
  return {op};
}

}  // namespace plimsoll::engine
