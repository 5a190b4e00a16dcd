// Formulas over the values of a graph: `maximum(1 - y * x, 0)` adds the nodes that compute it. Operands of different
// shapes are broadcast as in numpy; a scalar multiplies a tensor without being broadcast.
#pragma once

#include <initializer_list>
#include <vector>

#include "graph/builder.h"

namespace plimsoll::engine {

class Expression {
 public:
  Expression() = default;
  Expression(GraphBuilder& b, ValueId id) : b_(&b), id_(id) {}

  ValueId id() const { return id_; }
  GraphBuilder& builder() const { return *b_; }
  const TensorType& type() const { return b_->graph().type(id_); }
  const Shape& shape() const { return type().shape; }
  bool is_scalar() const { return shape().rank() == 0; }

  // Adds a node with this value as its first input.
  Expression apply(const char* op, Attrs attrs = {}) const { return {*b_, b_->add1(op, {id_}, std::move(attrs))}; }
  Expression apply(const char* op, const Expression& other, Attrs attrs = {}) const {
    return {*b_, b_->add1(op, {id_, other.id_}, std::move(attrs))};
  }
  Expression affine(double scale, double offset) const {
    return apply("affine", {{"scale", scale}, {"offset", offset}});
  }
  Expression filled(double value) const;  // a constant of the same type
  Expression reshaped(std::vector<int64_t> dims) const;
  Expression broadcast(const Shape& to) const;
  Expression cast(DType dtype) const;

 private:
  GraphBuilder* b_ = nullptr;
  ValueId id_ = kNone;
};

Expression constant(GraphBuilder& b, DType dtype, std::vector<int64_t> dims, double value);

Expression operator+(const Expression& a, const Expression& b);
Expression operator-(const Expression& a, const Expression& b);
Expression operator*(const Expression& a, const Expression& b);
Expression operator/(const Expression& a, const Expression& b);
Expression operator+(const Expression& a, double k);
Expression operator-(const Expression& a, double k);
Expression operator-(double k, const Expression& a);
Expression operator*(const Expression& a, double k);
Expression operator/(const Expression& a, double k);
Expression operator/(double k, const Expression& a);
Expression operator-(const Expression& a);
inline Expression operator+(double k, const Expression& a) {
  return a + k;
}
inline Expression operator*(double k, const Expression& a) {
  return a * k;
}

// `op` is a unary op without attributes: "exp", "log", "sqrt", "square", "abs", "sign".
inline Expression call(const char* op, const Expression& x) {
  return x.apply(op);
}
// `op` is a binary op without attributes.
Expression call(const char* op, const Expression& a, const Expression& b);

Expression maximum(const Expression& a, const Expression& b);
Expression minimum(const Expression& a, const Expression& b);
Expression maximum(const Expression& a, double k);
Expression minimum(const Expression& a, double k);
Expression clip(const Expression& a, double low, double high);
Expression power(const Expression& a, double exponent);
Expression power(double base, const Expression& exponent);
// 1 where it holds, else 0.
Expression less(const Expression& a, const Expression& b);
Expression less(const Expression& a, double k);
Expression greater(const Expression& a, double k);
Expression greater_equal(const Expression& a, double k);
Expression equal(const Expression& a, double k);
Expression select(const Expression& condition, const Expression& a, const Expression& b);

// Sums and means over axes, which stay with size 1.
Expression sum(const Expression& x, const std::vector<int64_t>& axes);
Expression mean(const Expression& x, const std::vector<int64_t>& axes);
Expression sum_of_squares(const Expression& x);  // over all elements, a scalar
Expression mean_of_squares(const Expression& x);

}  // namespace plimsoll::engine
