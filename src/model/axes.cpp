#include "model/axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace plimsoll::engine {
namespace {

// The order of axes that has `axes` last and keeps the order of the others.
std::vector<int64_t> order_to_end(size_t rank, const std::vector<int64_t>& axes) {
  std::vector<int64_t> order;
  for (int64_t a = 0; a < static_cast<int64_t>(rank); ++a)
    if (std::find(axes.begin(), axes.end(), a) == axes.end()) order.push_back(a);
  order.insert(order.end(), axes.begin(), axes.end());
  return order;
}

bool is_identity(const std::vector<int64_t>& order) {
  return std::is_sorted(order.begin(), order.end());
}

}  // namespace

std::vector<int64_t> read_axis_list(Config& config, const std::string& key, std::vector<int64_t> otherwise) {
  constexpr size_t kMostAxes = 64;
  const Json* value = config.value(key);
  if (!value) return otherwise;
  std::vector<int64_t> axes;
  bool good = true;
  const auto take = [&](const Json& j) {
    const auto n = as_integer(j);
    good = good && n && axes.size() < kMostAxes;
    if (good) axes.push_back(*n);
  };
  if (value->is_array())
    for (const Json& j : *value) take(j);
  else
    take(*value);
  if (!good)
    config.issues().reject(
        fmt::format("{}: '{}' must be an integer or a list of integers, got {}", config.where(), key, shown(*value)));
  return good ? axes : otherwise;
}

Result<std::vector<int64_t>> checked_axes(const std::vector<int64_t>& axes, const Shape& sample,
                                          const std::string& where) {
  std::vector<int64_t> positive;
  for (int64_t axis : axes) {
    const auto at = positive_axis(axis, sample.rank() + 1);
    if (!at || *at == 0)
      return fail(ErrorCode::kBadGeometry, fmt::format("{}: axis {} is {} of [batch,{}]", where, axis,
                                                       at ? "the batch" : "outside", to_text(sample)));
    positive.push_back(*at);
  }
  std::sort(positive.begin(), positive.end());
  if (std::adjacent_find(positive.begin(), positive.end()) != positive.end())
    return fail(ErrorCode::kBadGeometry, fmt::format("{}: an axis is listed twice", where));
  return positive;
}

ValueId viewed_as(const BuildCall& call, ValueId v, std::vector<int64_t> dims) {
  if (call.shape(v).dims == dims) return v;
  return call.add("reshape", {v}, {{"shape", std::move(dims)}});
}

ValueId broadcast_dims(const BuildCall& call, ValueId y, const std::vector<int64_t>& dims) {
  if (call.shape(y).dims == dims) return y;
  return call.add("broadcast", {y}, {{"shape", dims}});
}

ValueId axes_to_end(const BuildCall& call, ValueId x, const std::vector<int64_t>& axes) {
  const std::vector<int64_t> order = order_to_end(call.shape(x).rank(), axes);
  const ValueId moved = is_identity(order) ? x : call.add("transpose", {x}, {{"perm", order}});
  std::vector<int64_t> dims = call.shape(moved).dims;
  int64_t last = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    last *= dims.back();
    dims.pop_back();
  }
  dims.push_back(last);
  return viewed_as(call, moved, std::move(dims));
}

ValueId axes_back(const BuildCall& call, ValueId y, ValueId x, const std::vector<int64_t>& axes) {
  const std::vector<int64_t> dims = call.shape(x).dims;
  const std::vector<int64_t> order = order_to_end(dims.size(), axes);
  std::vector<int64_t> moved(order.size()), back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    moved[i] = dims[static_cast<size_t>(order[i])];
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  const ValueId apart = viewed_as(call, y, std::move(moved));
  return is_identity(order) ? apart : call.add("transpose", {apart}, {{"perm", back}});
}

ValueId scale_channels(const BuildCall& call, ValueId x, ValueId gamma, ValueId beta) {
  if (gamma == kNone && beta == kNone) return x;
  // A batch_norm_apply of mean 0 and variance 1: it reads one number per channel, in float32 under a mixed policy, and
  // is fused.
  const TensorType type = call.b.graph().type(gamma != kNone ? gamma : beta);
  const auto constant = [&](double value) {
    return call.add("fill", {},
                    {{"shape", type.shape.dims}, {"value", value}, {"dtype", std::string(name_of(type.dtype))}});
  };
  std::vector<ValueId> inputs{x, constant(0), constant(1)};
  for (ValueId v : {gamma, beta})
    if (v != kNone) inputs.push_back(v);
  return call.add("batch_norm_apply", std::move(inputs),
                  {{"epsilon", 0.0}, {"scale", gamma != kNone}, {"center", beta != kNone}});
}

}  // namespace plimsoll::engine
