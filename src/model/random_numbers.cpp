#include "model/random_numbers.h"

#include "model/values.h"
#include "ops/build.h"

namespace plimsoll::engine {

ValueId random_numbers(const BuildCall& call, const std::string& op, std::vector<int64_t> dims, DType dtype,
                       bool shared_by_batch, int64_t stream) {
  const ValueId rng = step_scalar(call.b, StepScalar::kRandom, call.precision);
  const ValueId first =
      shared_by_batch ? call.add("fill", {}, {{"shape", std::vector<int64_t>{1}}, {"value", 0.0}, {"dtype", "i64"}})
                      : step_scalar(call.b, StepScalar::kFirstSample, call.precision);
  return call.add(
      op, {rng, first},
      {{"shape", std::move(dims)}, {"dtype", std::string(name_of(dtype))}, {"call", call.call}, {"stream", stream}});
}

ValueId uniform_per_sample(const BuildCall& call, ValueId x, double low, double high, int64_t stream) {
  const Shape shape = call.shape(x);
  std::vector<int64_t> dims(shape.rank(), 1);
  dims[0] = shape[0];
  const DType dtype = is_half(call.precision) ? DType::kFloat32 : call.precision;
  ValueId u = random_numbers(call, "random_uniform", dims, dtype, false, stream);
  if (low != 0 || high != 1) u = call.add("affine", {u}, {{"scale", high - low}, {"offset", low}});
  if (dtype != call.precision) u = call.add("cast", {u}, {{"dtype", std::string(name_of(call.precision))}});
  return broadcast_to(call.b, u, shape);
}

}  // namespace plimsoll::engine
