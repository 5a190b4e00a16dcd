#include "ops/util.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kLargestAttribute = int64_t{1} << 31;

bool is_kind(const Attr& attr, std::string_view kind) {
  if (kind == "integer") return std::holds_alternative<int64_t>(attr);
  if (kind == "real") return std::holds_alternative<double>(attr);
  if (kind == "flag") return std::holds_alternative<bool>(attr);
  if (kind == "text") return std::holds_alternative<std::string>(attr);
  return std::holds_alternative<AttrList>(attr);
}

}  // namespace

bool InferCheck::require(bool ok, std::string_view wanted) {
  if (error_) return false;
  if (ok) return true;
  std::string got;
  for (const TensorType& type : in_) got += (got.empty() ? "" : ", ") + to_text(type);
  error_ = Error{
      ErrorCode::kBadGeometry, fmt::format("{}: {}; got {}", op_, wanted, got.empty() ? "no inputs" : got), {}, {}};
  return false;
}

bool InferCheck::inputs(size_t least, size_t most) {
  const std::string count = least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
  return require(in_.size() >= least && in_.size() <= most, fmt::format("takes {} inputs", count));
}

bool InferCheck::floats(std::initializer_list<size_t> which) {
  bool ok = true;
  for (size_t i : which) {
    if (i >= in_.size()) continue;
    ok = ok && is_floating(in_[i].dtype) && wide(in_[i].dtype) == wide(in_[*which.begin()].dtype);
  }
  return require(ok, "inputs must be floating-point numbers of one dtype, or half precision with float32");
}

bool InferCheck::all_floats() {
  bool ok = true;
  for (const TensorType& type : in_) ok = ok && is_floating(type.dtype) && type.dtype == in_.front().dtype;
  return require(ok, "inputs must be floating-point numbers of one dtype");
}

bool InferCheck::mixed_floats() {
  bool ok = true;
  for (const TensorType& type : in_) ok = ok && is_floating(type.dtype) && wide(type.dtype) == wide(in_.front().dtype);
  return require(ok, "inputs must be floating-point numbers of one dtype, or half precision with float32");
}

bool InferCheck::rank(size_t input, size_t rank) {
  return require(shape(input).rank() == rank, fmt::format("input {} must have {} dimensions", input, rank));
}

bool InferCheck::same_shape(size_t a, size_t b) {
  return require(shape(a) == shape(b), fmt::format("inputs {} and {} must have the same shape", a, b));
}

bool InferCheck::channels(size_t vector, size_t of) {
  const bool ok = shape(vector).rank() == 1 && shape(of).rank() >= 1 && shape(vector)[0] == shape(of).back();
  return require(ok, fmt::format("input {} must have one element per channel of input {}", vector, of));
}

bool InferCheck::scalar(size_t input) {
  return require(shape(input).rank() == 0, fmt::format("input {} must be a scalar", input));
}

bool InferCheck::type(size_t input, DType dtype) {
  return require(in_[input].dtype == dtype, fmt::format("input {} must be {}", input, name_of(dtype)));
}

bool InferCheck::has(const std::string& key, std::string_view kind) {
  const auto found = attrs_.items().find(key);
  return require(found != attrs_.items().end() && is_kind(found->second, kind),
                 fmt::format("needs attribute {} ({})", key, kind));
}

bool InferCheck::list(const std::string& key, size_t length, int64_t least) {
  if (!has(key, "list")) return false;
  const auto& values = attrs_.list(key);
  const bool in_range =
      std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= least && v <= kLargestAttribute; });
  return require(values.size() == length && in_range,
                 fmt::format("{}=[{}] must be {} numbers of at least {}", key, fmt::join(values, ","), length, least));
}

bool InferCheck::integer(const std::string& key, int64_t least) {
  if (!has(key, "integer")) return false;
  const int64_t v = attrs_.integer(key);
  return require(v >= least && v <= kLargestAttribute, fmt::format("{}={} must be at least {}", key, v, least));
}

bool InferCheck::real(const std::string& key) {
  return has(key, "real");
}

Result<Types> InferCheck::outputs(Types types) {
  if (error_) return failed();
  for (const TensorType& type : types)
    if (auto checked = checked_shape(type.shape.dims, op_); !checked) return tl::make_unexpected(checked.error());
  return types;
}

}  // namespace plimsoll::engine
