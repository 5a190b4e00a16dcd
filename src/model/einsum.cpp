#include "model/einsum.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ops/build.h"

namespace plimsoll::engine {
namespace {

struct Term {
  ValueId id;
  std::string labels;
};

bool has(const std::string& labels, char label) {
  return labels.find(label) != std::string::npos;
}

class Product {
 public:
  explicit Product(GraphBuilder& b) : b_(b) {}

  const std::vector<int64_t>& dims(const Term& t) const { return b_.graph().type(t.id).shape.dims; }
  int64_t size(const Term& t, char label) const { return dims(t)[t.labels.find(label)]; }
  int64_t size(const Term& t, const std::string& labels) const {
    int64_t n = 1;
    for (char c : labels) n *= size(t, c);
    return n;
  }

  ValueId reshape(ValueId id, const std::vector<int64_t>& to) {
    return b_.graph().type(id).shape.dims == to ? id : b_.add1("reshape", {id}, {{"shape", to}});
  }

  // Sums over the letters that are not in `keep`.
  Term reduced(const Term& t, const std::string& keep) {
    std::vector<int64_t> sums = dims(t), rest;
    Term made{t.id, ""};
    for (size_t d = 0; d < t.labels.size(); ++d) {
      if (has(keep, t.labels[d])) {
        made.labels += t.labels[d];
        rest.push_back(sums[d]);
      } else {
        sums[d] = 1;
      }
    }
    if (made.labels.size() == t.labels.size()) return t;
    if (sums != dims(t)) made.id = b_.add1("reduce_to", {t.id}, {{"shape", sums}});
    made.id = reshape(made.id, rest);
    return made;
  }

  Term transposed(const Term& t, const std::string& order) {
    std::vector<int64_t> perm, to, longer;
    for (char c : order) {
      perm.push_back(static_cast<int64_t>(t.labels.find(c)));
      to.push_back(size(t, c));
      if (to.back() > 1) longer.push_back(perm.back());
    }
    if (std::is_sorted(perm.begin(), perm.end())) return {t.id, order};
    // Moving dimensions of 1 moves no element.
    if (std::is_sorted(longer.begin(), longer.end())) return {reshape(t.id, to), order};
    return {b_.add1("transpose", {t.id}, {{"perm", perm}}), order};
  }

  // The product of two terms with the letters of `keep`.
  Term multiplied(Term a, Term c, const std::string& keep) {
    a = reduced(a, keep + c.labels);
    c = reduced(c, keep + a.labels);
    std::string batch, sum, left, right;
    for (char x : a.labels) (!has(c.labels, x) ? left : has(keep, x) ? batch : sum) += x;
    for (char x : c.labels)
      if (!has(a.labels, x)) right += x;
    Term made{kNone, batch + left + right};
    std::vector<int64_t> to;
    for (char x : made.labels) to.push_back(has(a.labels, x) ? size(a, x) : size(c, x));
    if (sum.empty()) {
      made.id = element_wise(a, c, batch, left, right);
    } else {
      made.id = matrix_product(a, c, batch, sum, left, right);
    }
    made.id = reshape(made.id, to);
    return made;
  }

 private:
  // Nothing is summed: a product with broadcasting.
  ValueId element_wise(const Term& a, const Term& c, const std::string& batch, const std::string& left,
                       const std::string& right) {
    const int64_t n = size(a, batch), m = size(a, left), k = size(c, right);
    const ValueId x = reshape(transposed(a, batch + left).id, {n, m, 1});
    const ValueId y = reshape(transposed(c, batch + right).id, {n, 1, k});
    return add_broadcast(b_, "multiply", x, y);
  }

  // Either form of an operand will do; the one that needs no transposition is taken.
  ValueId matrix_product(const Term& a, const Term& c, const std::string& batch, const std::string& sum,
                         const std::string& left, const std::string& right) {
    const int64_t n = size(a, batch), m = size(a, left), s = size(a, sum), k = size(c, right);
    const bool a_turned = a.labels == batch + sum + left && !left.empty();
    const bool c_turned = c.labels == batch + right + sum && !right.empty();
    const ValueId x = transposed(a, a_turned ? a.labels : batch + left + sum).id;
    const ValueId y = transposed(c, c_turned ? c.labels : batch + sum + right).id;
    std::vector<int64_t> x_dims{n, a_turned ? s : m, a_turned ? m : s}, y_dims{n, c_turned ? k : s, c_turned ? s : k};
    const bool plain = n == 1;
    if (plain) {
      x_dims.erase(x_dims.begin());
      y_dims.erase(y_dims.begin());
    }
    return b_.add1(plain ? "matmul" : "batch_matmul", {reshape(x, x_dims), reshape(y, y_dims)},
                   {{"transpose_a", a_turned}, {"transpose_b", c_turned}});
  }

  GraphBuilder& b_;
};

// Splits "ab,bc->ac" at its commas; false if it contains anything but letters, commas and ellipses.
bool split(std::string_view text, std::vector<std::string>& parts) {
  parts.assign(1, "");
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text[i] == ',') {
      parts.emplace_back();
    } else if (text.substr(i, 3) == "...") {
      parts.back() += '.';
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(text[i]))) {
      parts.back() += text[i];
    } else {
      return false;
    }
  }
  return true;
}

// The dimensions of an ellipsis get characters that are no letters, aligned at the end.
bool spread(std::string& labels, size_t count) {
  const size_t at = labels.find('.');
  if (at == std::string::npos) return count == 0;
  constexpr size_t kMost = 16;
  if (count > kMost || labels.find('.', at + 1) != std::string::npos) return false;
  std::string own;
  for (size_t i = kMost - count; i < kMost; ++i) own += static_cast<char>('0' + i);
  labels.replace(at, 1, own);
  return true;
}

}  // namespace

Result<EinsumLabels> read_einsum(std::string_view equation, std::span<const size_t> ranks, const std::string& where) {
  const auto bad = [&](std::string_view why) {
    return fail(ErrorCode::kBadGeometry, fmt::format("{}: the equation '{}' {}", where, equation, why));
  };
  const size_t arrow = equation.find("->");
  EinsumLabels labels;
  std::vector<std::string> output;
  if (!split(equation.substr(0, arrow), labels.inputs)) return bad("cannot be read");
  if (arrow != std::string_view::npos && !split(equation.substr(arrow + 2), output)) return bad("cannot be read");
  if (labels.inputs.size() != ranks.size()) return bad(fmt::format("is not for {} tensors", ranks.size()));
  size_t widest = 0;
  std::map<char, int> seen;
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::string& own = labels.inputs[i];
    const size_t letters = own.size() - static_cast<size_t>(std::count(own.begin(), own.end(), '.'));
    if (letters > ranks[i] || !spread(own, ranks[i] - letters))
      return bad(fmt::format("does not fit a tensor of {} dimensions", ranks[i]));
    if (own.size() > letters) widest = std::max(widest, ranks[i] - letters);
    for (char c : own)
      if (std::count(own.begin(), own.end(), c) > 1) return bad("repeats a letter within one tensor");
    for (char c : own) ++seen[c];
  }
  if (arrow == std::string_view::npos) {
    // NumPy puts the dimensions of an ellipsis first; as digits they sort before all letters.
    for (const auto& [c, count] : seen)
      if (count == 1 || !std::isalpha(static_cast<unsigned char>(c))) labels.output += c;
    return labels;
  }
  if (output.size() != 1) return bad("has several outputs");
  labels.output = output[0];
  if (has(labels.output, '.') ? !spread(labels.output, widest) : false) return bad("cannot be read");
  for (char c : labels.output)
    if (!seen.count(c) || std::count(labels.output.begin(), labels.output.end(), c) > 1)
      return bad("has an output letter that no input has, or twice");
  return labels;
}

Status check_einsum(const EinsumLabels& labels, std::span<const Shape> shapes, const std::string& where) {
  std::map<char, int64_t> sizes;
  for (size_t i = 0; i < shapes.size(); ++i)
    for (size_t d = 0; d < labels.inputs[i].size(); ++d) {
      const auto [known, added] = sizes.emplace(labels.inputs[i][d], shapes[i][d]);
      if (!added && known->second != shapes[i][d])
        return fail(ErrorCode::kBadGeometry,
                    fmt::format("{}: a dimension that tensors share is {} in one and {} in another", where,
                                known->second, shapes[i][d]));
    }
  return {};
}

ValueId einsum(GraphBuilder& b, const EinsumLabels& labels, std::vector<ValueId> operands) {
  Product product(b);
  Term made{operands[0], labels.inputs[0]};
  for (size_t i = 1; i < operands.size(); ++i) {
    std::string keep = labels.output;
    for (size_t j = i + 1; j < operands.size(); ++j) keep += labels.inputs[j];
    made = product.multiplied(made, {operands[i], labels.inputs[i]}, keep);
  }
  return product.transposed(product.reduced(made, labels.output), labels.output).id;
}

}  // namespace plimsoll::engine
