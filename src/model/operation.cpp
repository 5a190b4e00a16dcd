// Values and element-wise arithmetic of operations. operation_move.cpp has movement and reductions, operation_read.cpp
// the reading of calls.
#include "model/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/build.h"

namespace plimsoll::engine {
namespace {

std::string dtype_name(DType dtype) {
  return std::string(name_of(dtype));
}

}  // namespace

Operand OpWriter::input(size_t i) const {
  return {call_.inputs[i], {}, call_.computed.reads[i], !call_.computed.reads_shared[i], false};
}

bool OpWriter::has_batch() const {
  const std::vector<bool>& shared = call_.computed.reads_shared;
  return shared.empty() || std::find(shared.begin(), shared.end(), false) != shared.end();
}

Operand OpWriter::number(double value, TensorKind kind) {
  return {kNone, value, kind, false, true};
}

Operand OpWriter::constant(const Constant& constant) {
  const TensorKind kind = constant.type == Constant::Type::kFloat     ? TensorKind::kFloat
                          : constant.type == Constant::Type::kInteger ? TensorKind::kInteger
                                                                      : TensorKind::kTruth;
  if (constant.shape.rank() == 0) {
    Operand made = number(constant.values[0], kind);
    made.weak = constant.weak;
    return made;
  }
  const ValueId id = nodes("constant", {}, constant_attrs(constant.shape, call_.precision, constant.values))[0];
  const Operand made{id, {}, TensorKind::kFloat, false, false};
  if (kind == TensorKind::kInteger) return integers(made);
  return {id, {}, kind, false, false};
}

std::vector<int64_t> OpWriter::dims(const Operand& a) const {
  return a.id == kNone ? std::vector<int64_t>{} : call_.shape(a.id).dims;
}

DType OpWriter::dtype(const Operand& a) const {
  return a.id == kNone ? call_.precision : call_.b.graph().type(a.id).dtype;
}

void OpWriter::fail(const std::string& what) {
  if (!error_) error_ = Error{ErrorCode::kBadGeometry, fmt::format("{}: {}", where_, what), {}, {}};
}

void OpWriter::refuse(const std::string& what) {
  refused_ = true;
  if (issues_) issues_->unknown(fmt::format("{}: {}", where_, what));
}

std::vector<ValueId> OpWriter::nodes(const std::string& op, std::vector<ValueId> inputs, Attrs attrs) {
  return call_.b.add(op, std::move(inputs), std::move(attrs));
}

TensorKind OpWriter::joint_kind(std::span<const Operand> list) const {
  const auto any = [&](TensorKind kind) {
    return std::any_of(list.begin(), list.end(), [&](const Operand& a) { return a.kind == kind; });
  };
  return any(TensorKind::kFloat)     ? TensorKind::kFloat
         : any(TensorKind::kInteger) ? TensorKind::kInteger
                                     : TensorKind::kTruth;
}

DType OpWriter::joint_float(std::span<const Operand> list) const {
  std::optional<DType> joint;
  for (const Operand& a : list) {
    if (a.kind != TensorKind::kFloat || a.weak) continue;
    if (!joint || is_half(*joint)) joint = dtype(a);
  }
  return joint.value_or(call_.precision);
}

Operand OpWriter::floats(const Operand& a, DType to) {
  Operand made = a;
  made.kind = TensorKind::kFloat;
  if (a.id != kNone && dtype(a) != to) made.id = nodes("cast", {a.id}, {{"dtype", dtype_name(to)}})[0];
  return made;
}

Operands OpWriter::joint_floats(std::span<const Operand> list) {
  const DType to = joint_float(list);
  Operands made;
  for (const Operand& a : list) made.push_back(floats(a, to));
  return made;
}

Operand OpWriter::integers(const Operand& a) {
  Operand made = a;
  made.kind = TensorKind::kInteger;
  if (a.number) made.number = std::trunc(*a.number);
  if (a.id != kNone && dtype(a) != DType::kInt32)
    made.id = nodes("cast", {a.id}, {{"dtype", dtype_name(DType::kInt32)}})[0];
  return made;
}

Operand OpWriter::truths(const Operand& a) {
  if (a.kind == TensorKind::kTruth) return a;
  if (a.number) return number(*a.number != 0 ? 1 : 0, TensorKind::kTruth);
  Operand made = invert(binary("equal", floats(a), number(0)));
  made.kind = TensorKind::kTruth;
  return made;
}

Operand OpWriter::as_kind(const Operand& a, TensorKind kind) {
  if (kind == TensorKind::kTruth) return truths(a);
  return kind == TensorKind::kInteger ? integers(a) : floats(a);
}

std::vector<int64_t> OpWriter::joint_dims(std::span<const Operand> list) {
  size_t most = 0;
  bool batched = false;
  for (const Operand& a : list) {
    most = std::max(most, rank(a));
    batched = batched || a.batched;
  }
  std::vector<int64_t> joint(most, 1);
  for (const Operand& a : list) {
    const std::vector<int64_t> own = dims(a);
    const size_t shift = most - own.size();
    if (a.batched && shift > 0) {
      fail(fmt::format(
          "[{}] has fewer dimensions than the other operand, so that its batch would meet another dimension",
          fmt::join(own, ",")));
      return joint;
    }
    if (batched && !a.batched && shift == 0 && most > 0 && own[0] != 1) {
      refuse(fmt::format("a constant [{}] with a batch of its own", fmt::join(own, ",")));
      return joint;
    }
    for (size_t d = 0; d < own.size(); ++d) {
      int64_t& size = joint[d + shift];
      if (own[d] == 1 || own[d] == size) continue;
      if (size != 1) {
        fail(fmt::format("[{}] does not broadcast with [{}]", fmt::join(own, ","), fmt::join(joint, ",")));
        return joint;
      }
      size = own[d];
    }
  }
  return joint;
}

Operand OpWriter::broadcast(const Operand& a, const std::vector<int64_t>& to) {
  if (a.id == kNone) {
    Operand made = a;
    made.id = materialize(a, to, a.kind == TensorKind::kInteger ? DType::kInt32 : call_.precision);
    made.number.reset();
    made.weak = false;
    return made;
  }
  return dims(a) == to ? a : move("broadcast", a, {{"shape", to}});
}

ValueId OpWriter::materialize(const Operand& a, const std::vector<int64_t>& to, DType type) {
  if (a.number) return nodes("fill", {}, {{"shape", to}, {"value", *a.number}, {"dtype", dtype_name(type)}})[0];
  return dims(a) == to ? a.id : nodes("broadcast", {a.id}, {{"shape", to}})[0];
}

ValueId OpWriter::id_of(const Operand& a) {
  return a.id != kNone ? a.id : materialize(a, {}, call_.precision);
}

Operand OpWriter::unary(const std::string& op, const Operand& a, Attrs attrs) {
  Operand made = a;
  made.id = nodes(op, {id_of(a)}, std::move(attrs))[0];
  made.number.reset();
  return made;
}

Operand OpWriter::binary(const std::string& op, const Operand& a, const Operand& b) {
  const std::vector<int64_t> joint = joint_dims(std::array{a, b});
  if (failed()) return a.id == kNone ? b : a;
  const DType type = dtype(a.id == kNone ? b : a);
  Operand made;
  made.batched = a.batched || b.batched;
  const ValueId like = materialize(a.number ? b : a, joint, type);
  const auto filled = [&](const Operand& one) {
    return one.number ? constant_like(call_.b, like, *one.number) : materialize(one, joint, type);
  };
  made.id = nodes(op, {a.number ? filled(a) : like, a.number ? like : filled(b)}, {})[0];
  return made;
}

Operand OpWriter::affine(const Operand& a, double scale, double offset) {
  if (a.number) return number(*a.number * scale + offset);
  Operand made = a;
  made.kind = TensorKind::kFloat;
  made.id = nodes("affine", {a.id}, {{"scale", scale}, {"offset", offset}})[0];
  return made;
}

Operand OpWriter::add(const Operand& a, const Operand& b) {
  if (b.number) return affine(a, 1, *b.number);
  return a.number ? affine(b, 1, *a.number) : binary("add", a, b);
}

Operand OpWriter::subtract(const Operand& a, const Operand& b) {
  if (b.number) return affine(a, 1, -*b.number);
  return a.number ? affine(b, -1, *a.number) : binary("subtract", a, b);
}

Operand OpWriter::multiply(const Operand& a, const Operand& b) {
  if (b.number) return affine(a, *b.number, 0);
  return a.number ? affine(b, *a.number, 0) : binary("multiply", a, b);
}

Operand OpWriter::divide(const Operand& a, const Operand& b) {
  // A product with the reciprocal is the quotient only if the reciprocal is exact.
  if (b.number && *b.number != 0) {
    int exponent = 0;
    if (std::abs(std::frexp(*b.number, &exponent)) == 0.5) return affine(a, 1 / *b.number, 0);
  }
  if (a.number && *a.number == 1) return unary("reciprocal", b);
  return binary("divide", a, b);
}

Operand OpWriter::power(const Operand& a, const Operand& b) {
  if (b.number && *b.number == 2) return unary("square", a);
  return binary("power", a, b);
}

Operand OpWriter::select(const Operand& condition, const Operand& a, const Operand& b) {
  const std::vector<int64_t> joint = joint_dims(std::array{condition, a, b});
  if (failed()) return condition;
  const DType type = joint_float(std::array{a, b});
  Operand made;
  made.batched = condition.batched || a.batched || b.batched;
  const ValueId choice = materialize(floats(condition, type), joint, type);
  const auto filled = [&](const Operand& one) {
    return one.number ? constant_like(call_.b, choice, *one.number) : materialize(one, joint, type);
  };
  made.id = nodes("select", {choice, filled(a), filled(b)}, {})[0];
  return made;
}

}  // namespace plimsoll::engine
