#include "api/batch.h"

#include <fmt/format.h>

#include <cstring>

#include "base/checked.h"
#include "data/checks.h"

namespace plimsoll::engine {
namespace {

Error shape_error(std::string what) {
  return Error{ErrorCode::kDataShape, std::move(what), {}, {}};
}

// "(28, 28, 1)", as Keras writes it.
std::string sample_text(const Shape& sample) {
  if (sample.rank() == 0) return "one number";
  return fmt::format("({}{})", fmt::join(sample.dims, ", "), sample.rank() == 1 ? "," : "");
}

Result<DType> known_dtype(const ArrayView& array, const char* label) {
  if (const auto dtype = dtype_from_name(array.dtype)) return *dtype;
  return fail(shape_error(fmt::format("{}: there is no dtype '{}'", label, array.dtype)));
}

Status check_dtype(const ArrayView& array, const char* label, DType wanted, const std::string& remedy) {
  PLIMSOLL_ASSIGN(const DType dtype, known_dtype(array, label));
  if (dtype == wanted) return {};
  Error error = shape_error(fmt::format("{} is {}, the model takes {}", label, keras_name(dtype), keras_name(wanted)));
  return fail(error.remedy(remedy));
}

Status check_elements(const ArrayView& array, const char* label, int64_t samples, const Shape& sample) {
  if (array.elements == ArrayView::kUnknown) return {};
  const auto wanted = checked_multiply(samples, sample.elements());
  if (wanted && array.elements == *wanted) return {};
  Error error =
      shape_error(fmt::format("{} has {} elements, {} samples of {} have {}", label, array.elements, samples,
                              sample_text(sample), wanted ? fmt::format("{}", *wanted) : "more than can be counted"));
  return fail(std::move(error));
}

Status check_values(const CheckedArray& array, const ArrayView& view, int64_t samples) {
  const auto index = first_bad_element(array, view.data, samples);
  if (!index) return {};
  Error error = bad_element(array, view.data, *index, *index / array.sample.elements());
  if (error.code == ErrorCode::kDataNotFinite) error.remedies = {"remove the sample, or replace the element"};
  return fail(std::move(error));
}

}  // namespace

Status BatchReader::check(const Batch& batch, int64_t most) const {
  if (batch.samples < 1 || batch.samples > most)
    return fail(shape_error(fmt::format("Batch::samples is {}: a batch has from 1 to {} samples", batch.samples, most))
                    .fact(fmt::format("TrainerOptions::batch_size is {}", most)));
  PLIMSOLL_TRY(check_input(batch));
  return check_targets(batch);
}

Status BatchReader::check_input(const Batch& batch) const {
  constexpr const char* kLabel = "Batch::x";
  if (batch.x.data == nullptr) return fail(shape_error("Batch::x is not given"));
  const DType dtype = types_.inputs[0];
  PLIMSOLL_TRY(check_dtype(batch.x, kLabel, dtype,
                           fmt::format("declare what the data are: Input(shape, \"{}\")", batch.x.dtype)));
  PLIMSOLL_TRY(check_elements(batch.x, kLabel, batch.samples, input().sample));
  return check_values({kLabel, dtype, input().sample}, batch.x, batch.samples);
}

Status BatchReader::check_targets(const Batch& batch) const {
  const bool sparse = output().sparse_labels;
  const char* const label = sparse ? "Batch::labels" : "Batch::targets";
  const ArrayView& given = sparse ? batch.labels : batch.targets;
  const ArrayView& other = sparse ? batch.targets : batch.labels;
  if (given.data == nullptr)
    return fail(shape_error(
        fmt::format("{} is not given: this loss reads {}", label, sparse ? "sparse labels" : "targets of float32")));
  if (other.data != nullptr)
    return fail(shape_error(fmt::format("a batch has labels or targets, not both: this loss reads {}", label)));
  PLIMSOLL_ASSIGN(const DType dtype, known_dtype(given, label));
  if (!sparse) PLIMSOLL_TRY(check_dtype(given, label, types_.targets[0], "a std::vector<float>"));
  PLIMSOLL_TRY(check_elements(given, label, batch.samples, output().target));
  return check_values({label, dtype, output().target, sparse, output().classes}, given, batch.samples);
}

void BatchReader::copy(const Batch& batch, int64_t first, int64_t count, const BatchBuffers& into) const {
  const auto rows = [&](const ArrayView& array, Bytes row) {
    return static_cast<const std::byte*>(array.data) + first * row;
  };
  const Bytes x_row = TensorType{types_.inputs[0], input().sample}.bytes();
  std::memcpy(into.inputs[0], rows(batch.x, x_row), static_cast<size_t>(count * x_row));
  const ArrayView& given = output().sparse_labels ? batch.labels : batch.targets;
  const DType from = *dtype_from_name(given.dtype), to = types_.targets[0];
  const int64_t elements = output().target.elements();
  if (from == to) {
    const Bytes row = elements * size_of(from);
    std::memcpy(into.targets[0], rows(given, row), static_cast<size_t>(count * row));
    return;
  }
  // Labels, which were found to lie in [0, 2^31).
  auto* const labels = static_cast<int32_t*>(into.targets[0]);
  for (int64_t i = 0; i < count * elements; ++i)
    labels[i] = static_cast<int32_t>(element(from, given.data, first * elements + i));
}

}  // namespace plimsoll::engine
