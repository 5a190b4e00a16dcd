// Operations that join tensors along an axis, or split one.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/operation.h"

namespace plimsoll::engine {
namespace {

Operands get_all(OpWriter& w, const std::vector<OpArgument>& list) {
  Operands made;
  for (const OpArgument& one : list) made.push_back(one.get(w));
  for (const Operand& one : made)
    if (!one.batched && w.has_batch()) w.refuse("a constant among the tensors that it joins");
  return made;
}

// Joins along the axis, of the rank of the first tensor plus `added`.
OpBody joined(OpReader& r, std::vector<OpArgument> list, int64_t axis, bool stacks) {
  if (list.empty()) list.push_back({});
  for (OpArgument& one : list)
    if (!one.tensor && one.constant.values.empty()) one.constant.values = {0};
  (void)r;
  return [=](OpWriter& w) -> Operands {
    Operands parts = get_all(w, list);
    if (w.failed()) return parts;
    const auto at = w.axis(axis, w.rank(parts[0]) + (stacks ? 1 : 0));
    if (!at) return {parts[0]};
    for (Operand& one : parts) {
      if (!stacks) continue;
      std::vector<int64_t> to = w.dims(one);
      if (*at > to.size()) w.fail("the tensors have different numbers of dimensions");
      if (w.failed()) return {one};
      to.insert(to.begin() + static_cast<std::ptrdiff_t>(*at), 1);
      one = w.reshape(one, to);
    }
    return {w.concat(parts, *at)};
  };
}

OpBody append(OpReader& r) {
  std::vector<OpArgument> list{r.operand("x1", 0), r.operand("x2", 1)};
  const auto axis = r.axes("axis");
  if (!axis) r.refuse("axis=None, which includes the batch");
  return joined(r, std::move(list), axis && !axis->empty() ? (*axis)[0] : 1, false);
}

// Depth is the third dimension, which tensors of two dimensions do not have yet.
OpBody depth_stack(OpReader& r) {
  std::vector<OpArgument> list = r.operands("xs", 0);
  const bool flat = !list.empty() && list[0].tensor && r.arguments.call().tensors[*list[0].tensor].dims.size() == 2;
  return joined(r, std::move(list), 2, flat);
}

// Returns where the pieces end along an axis of `size`; nullopt if it cannot be split that way.
std::optional<std::vector<int64_t>> piece_ends(const std::vector<int64_t>& cuts, int64_t sections, bool uneven,
                                               int64_t size) {
  std::vector<int64_t> ends;
  for (int64_t cut : cuts) ends.push_back(cut < 0 ? cut + size : cut);
  if (sections > 0) {
    if (!uneven && size % sections != 0) return std::nullopt;
    // The first pieces are one longer if the size does not divide.
    for (int64_t i = 1; i < sections; ++i) ends.push_back(size / sections * i + std::min(i, size % sections));
  }
  ends.push_back(size);
  int64_t before = 0;
  for (int64_t end : ends) {
    if (end <= before || end > size) return std::nullopt;  // an empty piece is not supported
    before = end;
  }
  return ends;
}

OpBody split_along(OpReader& r, int64_t axis, bool uneven) {
  constexpr int64_t kMostPieces = 4096;
  const OpArgument x = r.operand("x", 0);
  const Json* value = r.config.value("indices_or_sections");
  std::vector<int64_t> cuts;
  int64_t sections = 0;
  if (value && value->is_array()) {
    for (const Json& one : *value) cuts.push_back(as_integer(one).value_or(0));
  } else {
    sections = r.config.integer("indices_or_sections", 1, kMostPieces);
  }
  r.outputs = sections > 0 ? static_cast<size_t>(sections) : cuts.size() + 1;
  return [=, count = r.outputs](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const auto at = w.axis(axis, w.rank(in));
    if (!at) return Operands(count, in);
    const int64_t size = w.dims(in)[*at];
    const auto ends = piece_ends(cuts, sections, uneven, size);
    if (!ends) {
      w.fail(fmt::format("{} cannot be split into {}", size,
                         sections > 0 ? fmt::format("{} {}pieces", sections, uneven ? "" : "equal ")
                                      : fmt::format("pieces at {}", fmt::join(cuts, ", "))));
      return Operands(count, in);
    }
    Operands made;
    int64_t begin = 0;
    for (int64_t end : *ends) {
      made.push_back(w.slice(in, *at, begin, end - begin));
      begin = end;
    }
    return made;
  };
}

OpBody split(OpReader& r, bool uneven) {
  return split_along(r, r.config.integer("axis", -64, 64, 0), uneven);
}

// The number of outputs is `num`, or the size that the file gives for that dimension.
OpBody unstack(OpReader& r) {
  constexpr int64_t kMostPieces = 4096;
  const OpArgument x = r.operand("x", 0);
  const int64_t axis = r.config.integer("axis", -64, 64, 0);
  int64_t count = r.config.integer("num", 1, kMostPieces, 0);
  if (count == 0 && x.tensor) {
    const auto& dims = r.arguments.call().tensors[*x.tensor].dims;
    const auto at = positive_axis(axis, dims.size());
    if (at && dims[static_cast<size_t>(*at)]) count = *dims[static_cast<size_t>(*at)];
  }
  if (count < 1 || count > kMostPieces) {
    r.refuse("the number of its outputs is not known, or above 4096");
    count = 1;
  }
  r.outputs = static_cast<size_t>(count);
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    Operands made(static_cast<size_t>(count), in);
    const auto at = w.axis(axis, w.rank(in));
    if (!at) return made;
    if (w.dims(in)[*at] != count)
      w.fail(fmt::format("dimension {} has {} elements, not {}", *at, w.dims(in)[*at], count));
    for (int64_t i = 0; !w.failed() && i < count; ++i)
      made[static_cast<size_t>(i)] = w.without(w.slice(in, *at, i, 1), {*at});
    return made;
  };
}

constexpr std::array kOperations = {
    OpClass{"Concatenate",
            [](OpReader& r) { return joined(r, r.operands("xs", 0), r.config.integer("axis", -64, 64, 0), false); }},
    OpClass{"Append", append},
    OpClass{"Stack",
            [](OpReader& r) { return joined(r, r.operands("x", 0), r.config.integer("axis", -64, 64, 0), true); }},
    OpClass{"Hstack", [](OpReader& r) { return joined(r, r.operands("xs", 0), 1, false); }},
    OpClass{"Vstack", [](OpReader& r) { return joined(r, r.operands("xs", 0), 0, false); }},
    OpClass{"Dstack", depth_stack},
    OpClass{"Split", [](OpReader& r) { return split(r, false); }},
    OpClass{"ArraySplit", [](OpReader& r) { return split(r, true); }},
    OpClass{"Hsplit", [](OpReader& r) { return split_along(r, 1, false); }},
    OpClass{"Dsplit", [](OpReader& r) { return split_along(r, 2, false); }},
    OpClass{"Vsplit", [](OpReader& r) { return split_along(r, 0, false); }},
    OpClass{"Unstack", unstack},
};

}  // namespace

std::span<const OpClass> joining_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
