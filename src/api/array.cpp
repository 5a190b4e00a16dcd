// Arrays and data of the public interface.
#include "plimsoll/array.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "api/batch.h"
#include "base/checked.h"
#include "data/random.h"
#include "plimsoll/callback.h"

namespace plimsoll {
namespace {

using engine::DType;

// Returns the number of elements of this shape, or nothing if a length is negative or the product overflows.
std::optional<int64_t> elements_of(const Dims& shape) {
  std::optional<int64_t> elements = 1;
  for (const int64_t d : shape) elements = d < 0 || !elements ? std::nullopt : engine::checked_multiply(*elements, d);
  return elements;
}

template <typename T>
Array array_of(const Dims& shape, const std::vector<T>& values) {
  auto array = Array::copy_of(ArrayView(values, shape));
  return array ? std::move(*array) : Array();
}

bool all_above_zero(const Dims& shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t d) { return d > 0; });
}

}  // namespace

Result<Array> Array::zeros(const Dims& shape, std::string_view dtype) {
  const auto known = engine::dtype_from_name(dtype);
  if (!known) return fail(ErrorCode::kDataShape, fmt::format("unknown dtype '{}'", dtype));
  const auto elements = elements_of(shape);
  const auto bytes = elements ? engine::checked_multiply(*elements, engine::size_of(*known)) : std::nullopt;
  if (!bytes)
    return fail(ErrorCode::kDataShape, fmt::format("{} is not the shape of an array: its elements cannot be counted",
                                                   engine::shape_text(shape)));
  Array array;
  array.dtype_ = engine::keras_name(*known);
  array.shape_ = shape;
  array.elements_ = *elements;
  try {
    array.bytes_.resize(static_cast<size_t>(*bytes));
  } catch (const std::exception&) {  // too long for a vector, or out of memory
    return fail(ErrorCode::kOutOfMemory, fmt::format("the system is out of memory: no {} bytes for an array", *bytes));
  }
  return array;
}

Result<Array> Array::copy_of(const ArrayView& view) {
  PLIMSOLL_TRY(engine::check_view(view, "the array"));
  PLIMSOLL_ASSIGN(Array array, zeros(view.shape(), view.dtype()));
  if (!array.bytes_.empty()) std::memcpy(array.bytes_.data(), view.data(), array.bytes_.size());
  return array;
}

ArrayView Array::rows(int64_t first, int64_t count) const& {
  if (shape_.empty() || shape_[0] < 1) return {};
  first = std::clamp<int64_t>(first, 0, shape_[0]);
  count = std::clamp<int64_t>(count, 0, shape_[0] - first);
  Dims shape = shape_;
  shape[0] = count;
  const int64_t row = elements_ / shape_[0];
  const auto size = static_cast<int64_t>(bytes_.size()) / std::max<int64_t>(elements_, 1);
  return {bytes_.data() + first * row * size, count * row, dtype_, std::move(shape)};
}

Result<void> Array::check(std::string_view wanted) const {
  if (dtype_ == wanted) return {};
  return fail(ErrorCode::kDataShape, fmt::format("the elements are {}, not {}", dtype_, wanted));
}

Array random_uniform(const Dims& shape, uint64_t seed) {
  const auto checked = engine::checked_shape(shape, "random_uniform");
  return checked ? array_of(shape, engine::random_uniform(*checked, seed)) : Array();
}

Array random_integers(int32_t limit, const Dims& shape, uint64_t seed) {
  const auto checked = engine::checked_shape(shape, "random_integers");
  if (!checked || limit < 1 || !all_above_zero(shape)) return {};
  return array_of(shape, engine::random_integers(limit, checked->elements(), seed));
}

std::optional<double> Logs::find(std::string_view name) const {
  for (const MetricValue& metric : metrics_)
    if (metric.name == name) return metric.value;
  return std::nullopt;
}

double Logs::loss() const {
  return find("loss").value_or(std::numeric_limits<double>::quiet_NaN());
}

Data Data::arrays(Arrays x, Arrays y, Arrays sample_weight) {
  Data data;
  data.all_ = {std::move(x), std::move(y), std::move(sample_weight)};
  return data;
}

Data Data::from(DataSource& source) {
  Data data;
  data.source_ = std::shared_ptr<DataSource>(&source, [](DataSource*) {});  // the caller owns the source
  return data;
}

namespace {

class FunctionSource final : public DataSource {
 public:
  explicit FunctionSource(std::function<Result<bool>(int64_t, Batch&)> next) : next_(std::move(next)) {}
  Result<void> begin_epoch(int64_t epoch) override {
    epoch_ = epoch;
    return {};
  }
  Result<bool> next(Batch& batch) override {
    if (!next_) return fail(ErrorCode::kUsage, "Data::from() was given an empty function");
    return next_(epoch_, batch);
  }

 private:
  std::function<Result<bool>(int64_t, Batch&)> next_;
  int64_t epoch_ = 0;
};

}  // namespace

Data Data::from(std::function<Result<bool>(int64_t epoch, Batch& batch)> next) {
  Data data;
  data.source_ = std::make_shared<FunctionSource>(std::move(next));
  return data;
}

}  // namespace plimsoll
