#include "model/expression.h"

#include "ops/build.h"

namespace plimsoll::engine {

Expression constant(GraphBuilder& b, DType dtype, std::vector<int64_t> dims, double value) {
  return {b,
          b.add1("fill", {}, {{"shape", std::move(dims)}, {"value", value}, {"dtype", std::string(name_of(dtype))}})};
}

Expression Expression::filled(double value) const {
  return {*b_, constant_like(*b_, id_, value)};
}

Expression Expression::reshaped(std::vector<int64_t> dims) const {
  if (shape().dims == dims) return *this;
  return apply("reshape", {{"shape", std::move(dims)}});
}

Expression Expression::broadcast(const Shape& to) const {
  return {*b_, broadcast_to(*b_, id_, to)};
}

Expression Expression::cast(DType dtype) const {
  if (type().dtype == dtype) return *this;
  return apply("cast", {{"dtype", std::string(name_of(dtype))}});
}

Expression call(const char* op, const Expression& a, const Expression& b) {
  return {a.builder(), add_broadcast(a.builder(), op, a.id(), b.id())};
}

Expression operator+(const Expression& a, const Expression& b) {
  return call("add", a, b);
}
Expression operator-(const Expression& a, const Expression& b) {
  return call("subtract", a, b);
}
Expression operator*(const Expression& a, const Expression& b) {
  if (a.is_scalar() && !b.is_scalar()) return b.apply("scale", a);
  if (b.is_scalar() && !a.is_scalar()) return a.apply("scale", b);
  return call("multiply", a, b);
}
Expression operator/(const Expression& a, const Expression& b) {
  if (b.is_scalar() && !a.is_scalar()) return a.apply("scale", b.apply("reciprocal"));
  return call("divide", a, b);
}
Expression operator+(const Expression& a, double k) {
  return a.affine(1, k);
}
Expression operator-(const Expression& a, double k) {
  return a.affine(1, -k);
}
Expression operator-(double k, const Expression& a) {
  return a.affine(-1, k);
}
Expression operator*(const Expression& a, double k) {
  return a.affine(k, 0);
}
Expression operator/(const Expression& a, double k) {
  return a.affine(1 / k, 0);
}
Expression operator/(double k, const Expression& a) {
  return k == 1 ? a.apply("reciprocal") : a.filled(k).apply("divide", a);
}
Expression operator-(const Expression& a) {
  return a.affine(-1, 0);
}

Expression maximum(const Expression& a, const Expression& b) {
  return call("maximum", a, b);
}
Expression minimum(const Expression& a, const Expression& b) {
  return call("minimum", a, b);
}
Expression maximum(const Expression& a, double k) {
  return a.apply("maximum", a.filled(k));
}
Expression minimum(const Expression& a, double k) {
  return a.apply("minimum", a.filled(k));
}
Expression clip(const Expression& a, double low, double high) {
  return minimum(maximum(a, low), high);
}
Expression power(const Expression& a, double exponent) {
  if (exponent == 1) return a;
  if (exponent == 2) return a.apply("square");
  if (exponent == 0.5) return a.apply("sqrt");
  return a.apply("power", a.filled(exponent));
}
Expression power(double base, const Expression& exponent) {
  return exponent.filled(base).apply("power", exponent);
}
Expression less(const Expression& a, const Expression& b) {
  return call("less", a, b);
}
Expression less(const Expression& a, double k) {
  return a.apply("less", a.filled(k));
}
Expression greater(const Expression& a, double k) {
  return a.filled(k).apply("less", a);
}
Expression greater_equal(const Expression& a, double k) {
  return a.filled(k).apply("less_equal", a);
}
Expression equal(const Expression& a, double k) {
  return a.apply("equal", a.filled(k));
}
Expression select(const Expression& condition, const Expression& a, const Expression& b) {
  GraphBuilder& builder = condition.builder();
  return {builder, builder.add1("select", {condition.id(), a.id(), b.id()})};
}

Expression sum(const Expression& x, const std::vector<int64_t>& axes) {
  std::vector<int64_t> dims = x.shape().dims;
  for (int64_t axis : axes) dims[static_cast<size_t>(axis)] = 1;
  if (dims == x.shape().dims) return x;
  return x.apply("reduce_to", {{"shape", std::move(dims)}});
}

Expression mean(const Expression& x, const std::vector<int64_t>& axes) {
  const Expression total = sum(x, axes);
  return total * (static_cast<double>(total.shape().elements()) / static_cast<double>(x.shape().elements()));
}

Expression sum_of_squares(const Expression& x) {
  return x.apply("squared_norm");
}

Expression mean_of_squares(const Expression& x) {
  return sum_of_squares(x) / static_cast<double>(x.shape().elements());
}

}  // namespace plimsoll::engine
