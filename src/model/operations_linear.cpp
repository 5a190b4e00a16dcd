// Products of matrices and tensors. Every product keeps the samples apart: a tensor's dimension 0 is the batch in the
// operands and in the result.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "model/einsum.h"
#include "model/operation.h"

namespace plimsoll::engine {
namespace {

// Letters for dimensions: 'a', 'b', ...
std::string letters(size_t first, size_t count) {
  std::string made(count, 'a');
  for (size_t i = 0; i < count; ++i) made[i] = static_cast<char>('a' + first + i);
  return made;
}

// Multiplies. Integers are multiplied as floats of the variables' dtype.
Operand product(OpWriter& w, const EinsumLabels& labels, std::span<const Operand> list) {
  char batch = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].batched) continue;
    const char own = labels.inputs[i].empty() ? ' ' : labels.inputs[i][0];
    if (batch != 0 && own != batch) w.refuse("a product of all samples with all samples");
    batch = own;
  }
  bool shared = batch != 0 && (labels.output.empty() || labels.output[0] != batch);
  for (size_t i = 0; i < list.size(); ++i)
    shared = shared || (batch != 0 && !list[i].batched && labels.inputs[i].find(batch) != std::string::npos);
  if (shared && !w.failed()) w.refuse("a product that sums over the batch, or moves it from the first dimension");
  if (w.failed()) return list[0];
  const Operands floats = w.joint_floats(list);
  std::vector<Shape> shapes;
  std::vector<ValueId> ids;
  for (const Operand& one : floats) {
    ids.push_back(w.id_of(one));
    shapes.emplace_back(w.call().shape(ids.back()));
  }
  if (const Status fits = check_einsum(labels, shapes, "a product"); !fits) w.fail(fits.error().what);
  if (w.failed()) return list[0];
  const Operand made = OpWriter::value(einsum(w.call().b, labels, std::move(ids)));
  return w.joint_kind(list) == TensorKind::kInteger ? w.integers(made) : made;
}

OpBody einsum_operation(OpReader& r) {
  const std::string equation = r.config.text("subscripts", "");
  std::vector<OpArgument> list;
  for (size_t i = 0; i < r.arguments.call().positional.size(); ++i)
    list.push_back(r.operand(fmt::format("operand {}", i), i));
  if (list.empty()) {
    r.reject("its call has no operands");
    return nullptr;
  }
  return [=](OpWriter& w) -> Operands {
    Operands operands;
    std::vector<size_t> ranks;
    for (const OpArgument& one : list) {
      operands.push_back(one.get(w));
      ranks.push_back(w.rank(operands.back()));
    }
    const auto labels = read_einsum(equation, ranks, "einsum");
    if (!labels) {
      w.refuse(labels.error().what);
      return {operands[0]};
    }
    return {product(w, *labels, operands)};
  };
}

// Batch dimensions broadcast; vectors are rows on the left and columns on the right.
Operand matmul(OpWriter& w, Operand a, Operand b) {
  if (w.rank(a) == 0 || w.rank(b) == 0) {
    w.fail("it takes no scalars");
    return a.batched ? a : b;
  }
  const bool row = w.rank(a) == 1, column = w.rank(b) == 1;
  const std::vector<int64_t> left = w.dims(a), right = w.dims(b);
  const size_t outer_a = row ? 0 : left.size() - 2, outer_b = column ? 0 : right.size() - 2;
  if ((a.batched && outer_a == 0 && b.batched) || (b.batched && outer_b == 0)) {
    w.refuse("a product that sums over the batch, or of all samples with all samples");
    return a.batched ? a : b;
  }
  // A constant whose first dimension of 1 would meet the batch is a constant without that dimension.
  for (auto [constant, other, outer_c, outer_o] :
       {std::tuple{&a, &b, outer_a, outer_b}, std::tuple{&b, &a, outer_b, outer_a}}) {
    if (constant->batched || !other->batched || outer_c == 0 || outer_c != outer_o || w.dims(*constant)[0] != 1)
      continue;
    const std::vector<int64_t> own = w.dims(*constant);
    const Operand inner = w.reshape(*constant, {own.begin() + 1, own.end()});
    return constant == &a ? matmul(w, inner, b) : matmul(w, a, inner);
  }
  // The result's dimensions: the longer of both lists of outer dimensions, then a row and a column.
  const size_t outer = std::max(outer_a, outer_b);
  if (a.batched && b.batched && outer_a != outer_b) {
    w.fail(fmt::format("[{}] and [{}] have different numbers of dimensions, so that the batch would meet another one",
                       fmt::join(left, ","), fmt::join(right, ",")));
    return a;
  }
  constexpr size_t kMostOuter = 20;
  if (outer > kMostOuter) w.fail(fmt::format("more than {} dimensions", kMostOuter));
  // Repeats what has size 1 and something longer on the other side.
  const auto widened = [&](const Operand& own, size_t count, const std::vector<int64_t>& other, size_t other_count) {
    std::vector<int64_t> to = w.dims(own);
    for (size_t i = 1; i <= std::min(count, other_count); ++i)
      if (to[count - i] == 1) to[count - i] = other[other_count - i];
    return w.failed() ? own : w.broadcast(own, to);
  };
  a = widened(a, outer_a, right, outer_b);
  b = widened(b, outer_b, left, outer_a);
  const std::string shared = letters(0, std::min(outer, kMostOuter));
  const std::string in_a = shared.substr(shared.size() - std::min(outer_a, shared.size())),
                    in_b = shared.substr(shared.size() - std::min(outer_b, shared.size()));
  EinsumLabels labels;
  labels.inputs = {in_a + (row ? "y" : "xy"), in_b + (column ? "y" : "yz")};
  labels.output = shared + (row ? "" : "x") + (column ? "" : "z");
  return product(w, labels, std::array{a, b});
}

OpBody matmul_operation(OpReader& r) {
  const OpArgument a = r.operand("x1", 0), b = r.operand("x2", 1);
  return [=](OpWriter& w) -> Operands { return {matmul(w, a.get(w), b.get(w))}; };
}

// Sums over pairs of axes; the other axes of a come first, then those of b.
Operand tensordot(OpWriter& w, const Operand& a, const Operand& b, const std::vector<int64_t>& of_a,
                  const std::vector<int64_t>& of_b) {
  EinsumLabels labels{{letters(0, w.rank(a)), letters(13, w.rank(b))}, ""};
  if (w.rank(a) > 13 || w.rank(b) > 13 || of_a.size() != of_b.size()) w.fail("its axes do not match");
  std::string summed;
  for (size_t i = 0; !w.failed() && i < of_a.size(); ++i) {
    const auto p = positive_axis(of_a[i], w.rank(a)), q = positive_axis(of_b[i], w.rank(b));
    if (!p || !q) {
      w.fail("its axes are outside of the tensors");
      break;
    }
    labels.inputs[1][static_cast<size_t>(*q)] = labels.inputs[0][static_cast<size_t>(*p)];
    summed += labels.inputs[0][static_cast<size_t>(*p)];
  }
  if (w.failed()) return a.batched ? a : b;
  for (const std::string& own : labels.inputs)
    for (char c : own)
      if (summed.find(c) == std::string::npos) labels.output += c;
  return product(w, labels, std::array{a, b});
}

OpBody tensordot_operation(OpReader& r) {
  const OpArgument a = r.operand("x1", 0), b = r.operand("x2", 1);
  const Json* axes = r.config.value("axes");
  std::vector<int64_t> of_a, of_b;
  int64_t count = axes ? -1 : 2;
  if (axes && axes->is_array() && axes->size() == 2) {
    of_a = r.integers(&(*axes)[0], "axes").value_or(std::vector<int64_t>{});
    of_b = r.integers(&(*axes)[1], "axes").value_or(std::vector<int64_t>{});
  } else if (axes) {
    count = r.config.integer("axes", 0, 12);
  }
  return [=](OpWriter& w) -> Operands {
    const Operand x = a.get(w), y = b.get(w);
    std::vector<int64_t> left = of_a, right = of_b;
    for (int64_t i = 0; i < count; ++i) {
      left.push_back(i - count);
      right.push_back(i);
    }
    return {tensordot(w, x, y, left, right)};
  };
}

// dot sums over the last axis of a and the last but one of b; inner over the last axes of both.
OpBody dot(OpReader& r, bool inner) {
  const OpArgument a = r.operand("x1", 0), b = r.operand("x2", 1);
  return [=](OpWriter& w) -> Operands {
    const Operand x = a.get(w), y = b.get(w);
    if (w.rank(x) == 0 || w.rank(y) == 0) {
      const TensorKind kind = w.joint_kind(std::array{x, y});
      const Operands both = w.joint_floats(std::array{x, y});
      const Operand made = w.multiply(both[0], both[1]);
      return {kind == TensorKind::kInteger ? w.integers(made) : made};
    }
    return {tensordot(w, x, y, {-1}, {inner || w.rank(y) == 1 ? -1 : -2})};
  };
}

// The product of vectors of three elements along one axis.
OpBody cross(OpReader& r) {
  const OpArgument a = r.operand("x1", 0), b = r.operand("x2", 1);
  int64_t axis = -1;
  for (const char* key : {"axisa", "axisb", "axisc", "axis"})
    if (const Json* value = r.config.value(key)) axis = as_integer(*value).value_or(0);
  if (axis != -1) r.refuse("an axis that is not the last");
  return [=](OpWriter& w) -> Operands {
    const Operands x = w.joint_floats(std::array{a.get(w), b.get(w)});
    for (const Operand& one : x)
      if (w.rank(one) == 0 || w.dims(one).back() != 3) w.refuse("vectors that do not have three elements");
    if (w.failed()) return {x[0]};
    const auto part = [&](const Operand& of, int64_t i) { return w.slice(of, w.rank(of) - 1, i, 1); };
    Operands made;
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t j = (i + 1) % 3, k = (i + 2) % 3;
      made.push_back(w.subtract(w.multiply(part(x[0], j), part(x[1], k)), w.multiply(part(x[0], k), part(x[1], j))));
      if (w.failed()) return {x[0]};
    }
    return {w.concat(made, w.rank(made[0]) - 1)};
  };
}

// The distances of all rows of one matrix from all rows of another.
OpBody distances(OpReader& r) {
  const OpArgument first = r.operand("x", 0), second = r.operand("y", 1);
  return [=](OpWriter& w) -> Operands {
    const Operands both = w.joint_floats(std::array{first.get(w), second.get(w)});
    std::vector<int64_t> x = w.dims(both[0]), y = w.dims(both[1]);
    if (std::min(x.size(), y.size()) < 2 || x.back() != y.back())
      w.fail("it needs two matrices with rows of the same length");
    for (const Operand& one : both)
      if (one.batched && w.rank(one) < 3) w.refuse("a matrix of which the batch is a dimension");
    if (w.failed()) return {both[0].batched ? both[0] : both[1]};
    x.insert(x.end() - 1, 1);
    y.insert(y.end() - 2, 1);
    const Operand difference = w.subtract(w.reshape(both[0], x), w.reshape(both[1], y));
    if (w.failed()) return {difference};
    return {w.unary("sqrt", w.sum(w.unary("square", difference), {w.rank(difference) - 1}, false))};
  };
}

constexpr std::array kOperations = {
    OpClass{"Matmul", matmul_operation},
    OpClass{"Einsum", einsum_operation},
    OpClass{"Tensordot", tensordot_operation},
    OpClass{"Dot", [](OpReader& r) { return dot(r, false); }},
    OpClass{"Inner", [](OpReader& r) { return dot(r, true); }},
    OpClass{"Cross", cross},
    OpClass{"CDist", distances},
};

}  // namespace

std::span<const OpClass> linear_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
