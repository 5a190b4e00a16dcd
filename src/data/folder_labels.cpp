#include "data/folder_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace plimsoll::engine {

Result<LabelMode> label_mode(const std::string& path, const DataSpec& spec, const std::vector<std::string>& names,
                             const char* what) {
  if (spec.outputs.size() != 1)
    return fail(ErrorCode::kUsage,
                fmt::format("--data {}: the folders name one class per {}, but the model has {} outputs", path, what,
                            spec.outputs.size()));
  const PortSpec& port = spec.outputs[0];
  const auto classes = static_cast<int64_t>(names.size());
  LabelMode mode = spec.read.label_mode;
  if (mode == LabelMode::kOfModel)
    mode = port.sparse_labels            ? LabelMode::kInteger
           : port.target.elements() == 1 ? LabelMode::kBinary
                                         : LabelMode::kCategorical;
  Error error{ErrorCode::kLabelOutOfRange,
              fmt::format("{}: it has {} class folders: {}{}", path, classes,
                          fmt::join(names.begin(), names.begin() + std::min<int64_t>(classes, 10), ", "),
                          classes > 10 ? ", ..." : ""),
              {},
              {}};
  if (mode == LabelMode::kBinary && classes != 2) return fail(std::move(error.fact("binary labels need exactly two")));
  if (mode == LabelMode::kInteger && port.sparse_labels && port.classes > 0 && classes > port.classes)
    return fail(std::move(error.fact(fmt::format("the model's output '{}' has {} classes", port.name, port.classes))));
  return mode;
}

void write_class(int32_t label, LabelMode mode, int64_t classes, void* into) {
  if (mode == LabelMode::kInteger) {
    std::memcpy(into, &label, sizeof label);
    return;
  }
  auto* const numbers = static_cast<float*>(into);
  if (mode == LabelMode::kBinary) {
    *numbers = static_cast<float>(label);
    return;
  }
  std::fill_n(numbers, classes, 0.0F);
  numbers[label] = 1.0F;
}

Result<uint32_t> seed_of_split(uint64_t seed) {
  if (seed <= UINT32_MAX) return static_cast<uint32_t>(seed);
  return fail(
      Error{ErrorCode::kUsage,
            fmt::format("--seed {}: to cut a folder for validation, the seed must be below 2^32, as in Keras", seed),
            {},
            {"--seed 0"}});
}

FoundArray array_of_rows(std::string label, DType dtype, int64_t records, const std::vector<int64_t>& sample,
                         std::shared_ptr<RowSource> rows, size_t field) {
  FoundArray array;
  array.label = std::move(label);
  array.dtype = dtype;
  array.dims = {records};
  array.dims.insert(array.dims.end(), sample.begin(), sample.end());
  array.rows = std::move(rows);
  array.field = field;
  return array;
}

FoundArray array_of_classes(const std::string& path, LabelMode mode, int64_t classes, int64_t records,
                            std::shared_ptr<RowSource> rows, size_t field) {
  const bool whole = mode == LabelMode::kInteger;
  const std::vector<int64_t> target =
      whole ? std::vector<int64_t>{} : std::vector<int64_t>{mode == LabelMode::kBinary ? 1 : classes};
  return array_of_rows(path + " (labels)", whole ? DType::kInt32 : DType::kFloat32, records, target, std::move(rows),
                       field);
}

}  // namespace plimsoll::engine
