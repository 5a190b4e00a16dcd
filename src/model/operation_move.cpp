// Movement and reductions of operations, on tensors whose dimension 0 is the batch.
#include <fmt/format.h>

#include <algorithm>

#include "model/operation.h"

namespace plimsoll::engine {

std::optional<size_t> OpWriter::axis(int64_t axis, size_t rank) {
  const auto at = positive_axis(axis, rank);
  if (!at) {
    fail(fmt::format("axis {} is outside of {} dimensions", axis, rank));
    return std::nullopt;
  }
  if (*at == 0 && has_batch()) {
    refuse(fmt::format("axis={}, which is the batch: it would couple the samples", axis));
    return std::nullopt;
  }
  return static_cast<size_t>(*at);
}

Operand OpWriter::move(const std::string& op, const Operand& a, Attrs attrs) {
  // Movement takes any dtype; only broadcasting and reductions compute with floats.
  const bool whole = a.kind == TensorKind::kInteger && (op == "broadcast" || op.starts_with("reduce_"));
  Operand made = whole ? floats(a) : a;
  made.id = nodes(op, {made.id}, std::move(attrs))[0];
  return whole ? integers(made) : made;
}

Operand OpWriter::reshape(const Operand& a, const std::vector<int64_t>& to) {
  return dims(a) == to ? a : move("reshape", a, {{"shape", to}});
}

Operand OpWriter::transpose(const Operand& a, const std::vector<int64_t>& perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return a;
  // Moving dimensions of 1 changes no element's place.
  std::vector<int64_t> to, longer;
  const std::vector<int64_t> from = dims(a);
  for (int64_t p : perm) {
    to.push_back(from[static_cast<size_t>(p)]);
    if (to.back() > 1) longer.push_back(p);
  }
  if (std::is_sorted(longer.begin(), longer.end())) return reshape(a, to);
  return move("transpose", a, {{"perm", perm}});
}

Operand OpWriter::slice(const Operand& a, size_t axis, int64_t begin, int64_t size) {
  if (begin == 0 && size == dims(a)[axis]) return a;
  return move("slice", a, {{"axis", static_cast<int64_t>(axis)}, {"begin", begin}, {"size", size}});
}

Operand OpWriter::strided_slice(const Operand& a, const std::vector<int64_t>& begin, const std::vector<int64_t>& size,
                                const std::vector<int64_t>& strides) {
  const std::vector<int64_t> from = dims(a);
  std::vector<size_t> cut;
  bool plain = true;
  for (size_t d = 0; d < from.size(); ++d) {
    if (begin[d] != 0 || size[d] != from[d] || (strides[d] != 1 && size[d] > 1)) cut.push_back(d);
    plain = plain && (strides[d] == 1 || size[d] == 1);
  }
  if (cut.empty()) return a;
  if (plain && cut.size() == 1) return slice(a, cut[0], begin[cut[0]], size[cut[0]]);
  return move("strided_slice", a, {{"begin", begin}, {"size", size}, {"strides", strides}});
}

Operand OpWriter::concat(const Operands& list, size_t axis) {
  if (list.size() == 1) return list[0];
  const TensorKind kind = joint_kind(list);
  const Operands parts = joint_floats(list);
  std::vector<ValueId> ids;
  for (const Operand& a : parts) {
    std::vector<int64_t> to = dims(a), first = dims(parts[0]);
    if (to.size() != first.size()) {
      fail(
          fmt::format("[{}] and [{}] have different numbers of dimensions", fmt::join(first, ","), fmt::join(to, ",")));
      return a;
    }
    ids.push_back(a.id);
  }
  Operand made = parts[0];
  made.id = nodes("concat", std::move(ids), {{"axis", static_cast<int64_t>(axis)}})[0];
  made.kind = kind;
  return kind == TensorKind::kInteger ? integers(made) : made;
}

Operand OpWriter::gather(const Operand& a, const Operand& ids, size_t axis) {
  Operand made = a;
  made.id = nodes("gather", {a.id, integers(ids).id}, {{"axis", static_cast<int64_t>(axis)}})[0];
  return made;
}

namespace {

std::vector<int64_t> kept(std::vector<int64_t> dims, const std::vector<size_t>& axes) {
  for (size_t d : axes) dims[d] = 1;
  return dims;
}

}  // namespace

Operand OpWriter::without(const Operand& a, const std::vector<size_t>& axes) {
  std::vector<int64_t> to;
  const std::vector<int64_t> from = dims(a);
  for (size_t d = 0; d < from.size(); ++d)
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) to.push_back(from[d]);
  return reshape(a, to);
}

Operand OpWriter::sum(const Operand& a, const std::vector<size_t>& axes, bool keep) {
  const std::vector<int64_t> to = kept(dims(a), axes);
  const Operand made = to == dims(a) ? a : move("reduce_to", a, {{"shape", to}});
  return keep ? made : without(made, axes);
}

Operand OpWriter::mean(const Operand& a, const std::vector<size_t>& axes, bool keep) {
  double count = 1;
  for (size_t d : axes) count *= static_cast<double>(dims(a)[d]);
  return affine(sum(a, axes, keep), 1 / count, 0);
}

Operand OpWriter::reduce(const std::string& op, const Operand& a, const std::vector<size_t>& axes, bool keep) {
  const std::vector<int64_t> list(axes.begin(), axes.end());
  const Operand made = list.empty() ? a : move(op, a, {{"axes", list}});
  return keep ? made : without(made, axes);
}

}  // namespace plimsoll::engine
