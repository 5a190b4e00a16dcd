// Operations that take parts of a tensor by position: slices, indices, one-hot vectors.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/operation.h"

namespace plimsoll::engine {
namespace {

// One entry of the key in x[key].
struct Entry {
  enum class Type { kSlice, kIndex, kList, kNew, kEllipsis } type = Type::kSlice;
  Slice slice;
  int64_t index = 0;
  std::vector<int64_t> list;
};

std::optional<Entry> read_entry(const Json& value) {
  Entry entry;
  if (value.is_null()) {
    entry.type = Entry::Type::kNew;
  } else if (is_ellipsis(value)) {
    entry.type = Entry::Type::kEllipsis;
  } else if (const auto slice = read_slice(value)) {
    entry.slice = *slice;
  } else if (const auto index = as_integer(value)) {
    entry.type = Entry::Type::kIndex;
    entry.index = *index;
  } else {
    const auto constant = read_constant(value);
    if (!constant || constant->type != Constant::Type::kInteger || constant->shape.rank() > 1) return std::nullopt;
    entry.type = constant->shape.rank() == 0 ? Entry::Type::kIndex : Entry::Type::kList;
    for (double one : constant->values) entry.list.push_back(static_cast<int64_t>(one));
    entry.index = entry.list[0];
  }
  return entry;
}

// Python's rules for a slice of `size` elements: the first element, how many, and the step.
struct Placed {
  int64_t begin = 0, count = 0, step = 1;
};
Placed place(const Slice& slice, int64_t size) {
  Placed placed;
  placed.step = slice.step.value_or(1);
  const bool down = placed.step < 0;
  const auto bound = [&](std::optional<int64_t> given, int64_t otherwise) {
    if (!given) return otherwise;
    const int64_t at = *given < 0 ? *given + size : *given;
    return std::clamp<int64_t>(at, down ? -1 : 0, down ? size - 1 : size);
  };
  placed.begin = bound(slice.start, down ? size - 1 : 0);
  const int64_t end = bound(slice.stop, down ? -1 : size);
  const int64_t way = down ? placed.begin - end : end - placed.begin;
  const int64_t step = down ? -placed.step : placed.step;
  placed.count = way > 0 ? (way - 1) / step + 1 : 0;
  return placed;
}

// Writes x[key]: first the slices of all dimensions, then dimensions are removed and added, then one list is gathered.
class Getting {
 public:
  Getting(OpWriter& w, const Operand& x) : w_(w), x_(x), from_(w.dims(x)) {}

  Operand run(const std::vector<Entry>& key) {
    size_t used = 0;
    for (const Entry& entry : key)
      used += entry.type != Entry::Type::kNew && entry.type != Entry::Type::kEllipsis ? 1 : 0;
    if (used > from_.size()) {
      w_.fail(fmt::format("{} indices for [{}]", used, fmt::join(from_, ",")));
      return x_;
    }
    bool spread = false;
    for (const Entry& entry : key) {
      if (entry.type == Entry::Type::kEllipsis && !spread) {
        for (size_t i = used; i < from_.size(); ++i) take(Entry{});
        spread = true;
      } else {
        take(entry);
      }
      if (w_.failed()) return x_;
    }
    while (begin_.size() < from_.size()) take(Entry{});
    if (w_.failed()) return x_;
    Operand made = w_.reshape(w_.strided_slice(x_, begin_, size_, strides_), to_);
    if (list_.empty()) return made;
    Constant ids{Constant::Type::kInteger, false, Shape{static_cast<int64_t>(list_.size())}, {}};
    for (int64_t one : list_) ids.values.push_back(static_cast<double>(one));
    return w_.gather(made, w_.constant(ids), list_axis_);
  }

 private:
  void take(const Entry& entry) {
    if (entry.type == Entry::Type::kEllipsis) return w_.fail("two ellipses");
    if (entry.type == Entry::Type::kNew) {
      if (to_.empty() && x_.batched) return w_.refuse("a new dimension before the batch");
      to_.push_back(1);
      return;
    }
    const size_t d = begin_.size();
    const int64_t size = from_[d];
    const bool whole = entry.type == Entry::Type::kSlice && !entry.slice.start && !entry.slice.stop &&
                       entry.slice.step.value_or(1) == 1;
    if (d == 0 && !whole && x_.batched) return w_.refuse("a part of the batch: the first index must be a full slice");
    Placed placed{0, size, 1};
    if ((d > 0 || !x_.batched) && entry.type == Entry::Type::kSlice) {
      constexpr int64_t kMost = int64_t{1} << 40;
      for (const auto& bound : {entry.slice.start, entry.slice.stop, entry.slice.step})
        if (bound && (*bound > kMost || *bound < -kMost)) return w_.fail("a slice with a bound above 2^40");
      if (entry.slice.step == 0) return w_.fail("a slice with step 0");
      placed = place(entry.slice, size);
      if (placed.count == 0) return w_.fail(fmt::format("an empty slice of a dimension of {}", size));
    } else if (entry.type == Entry::Type::kIndex) {
      const auto at = positive_axis(entry.index, static_cast<size_t>(size));
      if (!at) return w_.fail(fmt::format("index {} of a dimension of {}", entry.index, size));
      placed = {*at, 1, 1};
    } else if (entry.type == Entry::Type::kList) {
      if (!list_.empty()) return w_.refuse("two lists of indices");
      for (int64_t one : entry.list) {
        const auto at = positive_axis(one, static_cast<size_t>(size));
        if (!at) return w_.fail(fmt::format("index {} of a dimension of {}", one, size));
        list_.push_back(*at);
      }
      list_axis_ = to_.size();
    }
    begin_.push_back(placed.begin);
    size_.push_back(placed.count);
    strides_.push_back(placed.step);
    if (entry.type != Entry::Type::kIndex) to_.push_back(placed.count);
  }

  OpWriter& w_;
  const Operand x_;
  const std::vector<int64_t> from_;
  std::vector<int64_t> begin_, size_, strides_, to_, list_;
  size_t list_axis_ = 0;
};

OpBody get_item(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const Json* value = r.arguments.value("key", 1);
  std::vector<Entry> key;
  const Json list = value && value->is_array() ? *value : Json::array({value ? *value : Json()});
  for (const Json& one : list) {
    const auto entry = read_entry(one);
    if (!entry) {
      r.refuse(fmt::format("an index that is {}", r.arguments.tensor(one)
                                                      ? "a tensor: keras.ops.take and take_along_axis are supported"
                                                      : shown(one)));
      return nullptr;
    }
    key.push_back(*entry);
  }
  return [=](OpWriter& w) -> Operands { return {Getting(w, x.get(w)).run(key)}; };
}

OpBody slice(OpReader& r) {
  const OpArgument x = r.operand("inputs", 0);
  const auto start = r.integers(r.arguments.value("start_indices", 1), "start_indices");
  const auto shape = r.axes("shape");
  if (!start || !shape || start->size() != shape->size()) {
    r.refuse("start indices or a shape that are not known");
    return nullptr;
  }
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    std::vector<int64_t> from = w.dims(in), size = *shape, strides(from.size(), 1);
    if (size.size() != from.size()) w.fail(fmt::format("{} sizes for [{}]", size.size(), fmt::join(from, ",")));
    for (size_t d = 0; !w.failed() && d < from.size(); ++d) {
      if (size[d] == -1) size[d] = from[d] - (*start)[d];
      if (d == 0 && ((*shape)[0] != -1 || (*start)[0] != 0))
        w.refuse("a part of the batch: its start must be 0 and its size -1");
      else if ((*start)[d] < 0 || size[d] < 1 || (*start)[d] > from[d] - size[d])
        w.fail(fmt::format("{} elements from {} of a dimension of {}", size[d], (*start)[d], from[d]));
    }
    return {w.failed() ? in : w.strided_slice(in, *start, size, strides)};
  };
}

// Replaces a block of a tensor by another tensor.
OpBody slice_update(OpReader& r) {
  const OpArgument x = r.operand("inputs", 0), update = r.operand("updates", 2);
  const auto start = r.integers(r.arguments.value("start_indices", 1), "start_indices");
  if (!start) {
    r.refuse("start indices that are not known");
    return nullptr;
  }
  return [=](OpWriter& w) -> Operands {
    const Operands both = w.joint_floats(std::array{x.get(w), update.get(w)});
    const std::vector<int64_t> to = w.dims(both[0]), from = w.dims(both[1]);
    if (!both[0].batched || !both[1].batched || from.size() != to.size() || start->size() != to.size())
      w.fail(fmt::format("[{}] of [{}] at {} indices", fmt::join(from, ","), fmt::join(to, ","), start->size()));
    std::vector<int64_t> pads, one = from;
    for (size_t d = 0; !w.failed() && d < to.size(); ++d) {
      if (d == 0 && (*start)[0] != 0) w.refuse("a part of the batch: its start must be 0");
      const int64_t before = (*start)[d], after = to[d] - from[d] - before;
      if (before < 0 || after < 0)
        w.fail(fmt::format("{} elements from {} of a dimension of {}", from[d], before, to[d]));
      pads.insert(pads.end(), {before, after});
    }
    if (w.failed()) return {both[0]};
    one[0] = 1;
    const Attrs margins{{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}};
    Operand inside = OpWriter::number(1);
    inside = OpWriter::value(w.materialize(inside, one, w.dtype(both[0])));
    inside.batched = false;
    const Operand made = w.select(w.move("pad", inside, margins), w.move("pad", both[1], margins), both[0]);
    return {x.get(w).kind == TensorKind::kInteger ? w.integers(made) : made};
  };
}

// Indices below 0 count from the end.
Operand from_start(OpWriter& w, const Operand& ids, int64_t size) {
  const Operand numbers = w.floats(ids, w.call().precision);
  return w.integers(
      w.select(w.binary("less", numbers, w.number(0)), w.affine(numbers, 1, static_cast<double>(size)), numbers));
}

// Constant indices are checked here. Those of tensors are checked by nothing: an op gives NaN for what is outside.
std::optional<Constant> normalized(OpWriter& w, Constant ids, int64_t size) {
  for (double& one : ids.values) {
    const auto at = positive_axis(static_cast<int64_t>(one), static_cast<size_t>(size));
    if (!at) {
      w.fail(fmt::format("index {} of a dimension of {}", one, size));
      return std::nullopt;
    }
    one = static_cast<double>(*at);
  }
  ids.type = Constant::Type::kInteger;
  return ids;
}

OpBody take(OpReader& r) {
  const OpArgument x = r.operand("x", 0), ids = r.operand("indices", 1);
  const auto axis = r.axes("axis");
  if (!axis || axis->size() != 1) r.refuse("axis=None, which includes the batch");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const size_t rank = w.rank(in);
    const auto at = positive_axis(axis && axis->size() == 1 ? (*axis)[0] : -1, rank);
    if (!at) w.fail(fmt::format("the axis is outside of {} dimensions", rank));
    if (in.batched && ids.tensor) w.refuse("indices that are a tensor with a batch of its own: use take_along_axis");
    if (at && in.batched && *at == 0) w.refuse("axis=0, which is the batch");
    if (w.failed()) return {in};
    const auto d = static_cast<size_t>(*at);
    const int64_t size = w.dims(in)[d];
    if (ids.tensor) {
      if (d != 0) w.refuse("a constant whose first axis is not the one that indices are taken from");
      if (w.failed()) return {w.input(*ids.tensor)};
      Operand made = w.gather(in, from_start(w, ids.get(w), size), d);
      made.batched = true;
      return {made};
    }
    auto list = normalized(w, ids.constant, size);
    if (!list) return {in};
    if (list->shape.rank() > 0) return {w.gather(in, w.constant(*list), d)};
    return {w.without(w.slice(in, d, static_cast<int64_t>(list->values[0]), 1), {d})};
  };
}

OpBody take_along_axis(OpReader& r) {
  const OpArgument x = r.operand("x", 0), ids = r.operand("indices", 1);
  const auto axis = r.axes("axis");
  if (!axis || axis->size() != 1) r.refuse("axis=None, which includes the batch");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w), at = ids.get(w);
    const auto d = w.axis(axis && axis->size() == 1 ? (*axis)[0] : -1, w.rank(in));
    if (!in.batched || !at.batched) w.refuse("a constant: both x and the indices must be tensors");
    if (d && w.rank(at) != w.rank(in)) w.fail("x and the indices must have the same number of dimensions");
    if (w.failed()) return {in};
    // All dimensions but the axis are broadcast.
    std::vector<int64_t> from = w.dims(in), to = w.dims(at);
    const int64_t size = from[*d];
    for (size_t i = 0; i < from.size(); ++i) {
      if (i == *d) continue;
      if (from[i] != to[i] && from[i] != 1 && to[i] != 1)
        w.fail(fmt::format("[{}] does not match [{}]", fmt::join(from, ","), fmt::join(to, ",")));
      from[i] = to[i] = std::max(from[i], to[i]);
    }
    if (w.failed()) return {in};
    const Operand places = w.broadcast(from_start(w, at, size), to);
    Operand made = w.broadcast(w.floats(in), from);
    made.id = w.nodes("take_along", {made.id, places.id}, {{"axis", static_cast<int64_t>(*d)}})[0];
    made.kind = in.kind;
    return {in.kind == TensorKind::kInteger ? w.integers(w.floats(made)) : made};
  };
}

// Returns floats of 0 and 1 with the classes along `axis`.
std::optional<Operand> one_hot_of(OpWriter& w, const Operand& x, int64_t classes, int64_t axis, DType dtype) {
  const auto at = w.axis(axis, w.rank(x) + 1);
  if (!at) return std::nullopt;
  Operand made = w.integers(x);
  made.id = w.nodes("one_hot", {made.id}, {{"depth", classes}, {"dtype", std::string(name_of(dtype))}})[0];
  made.kind = TensorKind::kFloat;
  std::vector<int64_t> perm;
  for (size_t d = 0; d < w.rank(x); ++d) perm.push_back(static_cast<int64_t>(d));
  perm.insert(perm.begin() + static_cast<std::ptrdiff_t>(*at), static_cast<int64_t>(w.rank(x)));
  return w.transpose(made, perm);
}

OpBody hot(OpReader& r, const char* name, bool several) {
  const OpArgument x = r.operand(name, 0);
  const int64_t classes = r.config.integer("num_classes", 1, int64_t{1} << 31);
  const int64_t axis = r.config.integer("axis", -64, 64, -1);
  const TensorKind kind = r.kind("dtype").value_or(TensorKind::kFloat);
  const bool half = !r.half_cast.empty();
  r.config.only("sparse", {false});
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const DType dtype = half ? w.call().compute : w.call().precision;
    auto made = one_hot_of(w, in, classes, axis, dtype);
    if (several && made && w.rank(in) < 2) w.refuse("a maximum over the batch: its input must have two dimensions");
    if (!made || w.failed()) return {in};
    if (several) made = w.reduce("reduce_max", *made, {1}, false);
    if (kind == TensorKind::kInteger) return {w.integers(*made)};
    made->kind = kind;
    return {*made};
  };
}

// The number of constants that are below (or equal to) each element.
OpBody count_below(OpReader& r, const OpArgument& x, const OpArgument& bounds, bool equal) {
  if (bounds.tensor || bounds.constant.shape.rank() != 1 || bounds.constant.values.size() > 1024)
    r.refuse("bounds that are not a list of at most 1,024 numbers");
  return [=](OpWriter& w) -> Operands {
    const Operand in = w.floats(x.get(w), w.call().precision);
    Operand total = w.unary("full_like", in, {{"value", 0.0}});
    for (double bound : bounds.constant.values)
      total = w.add(total, w.binary(equal ? "less_equal" : "less", w.number(bound), in));
    return {w.integers(total)};
  };
}

OpBody digitize(OpReader& r) {
  const OpArgument x = r.operand("x", 0), bins = r.operand("bins", 1);
  return count_below(r, x, bins, true);
}

OpBody search_sorted(OpReader& r) {
  const OpArgument sequence = r.operand("sorted_sequence", 0), values = r.operand("values", 1);
  const bool right = r.config.choice("side", {"left", "right"}, "left") == "right";
  return count_below(r, values, sequence, right);
}

OpBody is_in(OpReader& r) {
  const OpArgument x = r.operand("x1", 0), set = r.operand("x2", 1);
  const bool inverted = r.config.flag("invert", false);
  r.config.ignore({"assume_unique"});
  if (set.tensor || set.constant.values.size() > 1024) r.refuse("a set that is not a list of at most 1,024 numbers");
  return [=](OpWriter& w) -> Operands {
    const Operand in = w.floats(x.get(w));
    Operand made = w.unary("full_like", in, {{"value", 0.0}});
    for (double one : set.constant.values) made = w.binary("maximum", made, w.binary("equal", in, w.number(one)));
    if (inverted) made = w.invert(made);
    made.kind = TensorKind::kTruth;
    return {made};
  };
}

constexpr std::array kOperations = {
    OpClass{"GetItem", get_item},
    OpClass{"Slice", slice},
    OpClass{"SliceUpdate", slice_update},
    OpClass{"Take", take},
    OpClass{"TakeAlongAxis", take_along_axis},
    OpClass{"OneHot", [](OpReader& r) { return hot(r, "x", false); }},
    OpClass{"MultiHot", [](OpReader& r) { return hot(r, "inputs", true); }},
    OpClass{"Digitize", digitize},
    OpClass{"SearchSorted", search_sorted},
    OpClass{"IsIn", is_in},
};

}  // namespace

std::span<const OpClass> indexing_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
