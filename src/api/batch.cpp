#include "api/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/suggest.h"
#include "data/checks.h"

namespace plimsoll::engine {
namespace {

Error shape_error(std::string what) {
  return Error{ErrorCode::kDataShape, std::move(what), {}, {}};
}

// Reads elements of type From, which may be unaligned.
template <typename From, typename To>
void convert_from(const void* source, To* destination, int64_t count) {
  const auto* bytes = static_cast<const std::byte*>(source);
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof value), sizeof value);
    destination[i] = static_cast<To>(value);
  }
}

template <typename To>
void convert_to(DType from, const void* source, To* destination, int64_t count) {
  switch (from) {
    case DType::kFloat32:
      return convert_from<float>(source, destination, count);
    case DType::kFloat64:
      return convert_from<double>(source, destination, count);
    case DType::kInt8:
      return convert_from<int8_t>(source, destination, count);
    case DType::kInt16:
      return convert_from<int16_t>(source, destination, count);
    case DType::kInt32:
      return convert_from<int32_t>(source, destination, count);
    case DType::kInt64:
      return convert_from<int64_t>(source, destination, count);
    case DType::kUInt8:
    case DType::kBool:
      return convert_from<uint8_t>(source, destination, count);
    case DType::kUInt16:
      return convert_from<uint16_t>(source, destination, count);
    case DType::kUInt32:
      return convert_from<uint32_t>(source, destination, count);
    case DType::kUInt64:
      return convert_from<uint64_t>(source, destination, count);
    case DType::kFloat16:
    case DType::kBFloat16:
      for (int64_t i = 0; i < count; ++i) destination[i] = static_cast<To>(element(from, source, i));
  }
}

// The array that one input or output of the model expects.
struct Wanted {
  std::string name;  // of the input or output
  Shape sample;
  std::string label;    // "Batch::x", or "Batch::x 'image'" if there are several inputs
  bool padded = false;  // a sample may have fewer elements
};

std::vector<std::string> names_of(const std::vector<Wanted>& ports) {
  std::vector<std::string> names;
  for (const Wanted& port : ports) names.push_back(port.name);
  return names;
}

// Returns the arrays in the order of the ports.
Result<std::vector<const ArrayView*>> arrange(const Arrays& arrays, const std::vector<Wanted>& ports,
                                              const std::string& what) {
  const auto& list = arrays.list();
  const auto is_named = [](const NamedArray& one) { return !one.name.empty(); };
  const bool named = std::any_of(list.begin(), list.end(), is_named);
  if (list.empty()) return fail(shape_error(fmt::format("{} is not given", ports.empty() ? what : ports[0].label)));
  if (named && !std::all_of(list.begin(), list.end(), is_named))
    return fail(shape_error(fmt::format("{}: either all arrays have names or none has", what)));
  if (list.size() != ports.size())
    return fail(shape_error(fmt::format("{} has {} arrays, the model takes {}", what, list.size(), ports.size()))
                    .fact(fmt::format("its names are {}", fmt::join(names_of(ports), ", "))));
  std::vector<const ArrayView*> ordered(ports.size(), nullptr);
  for (size_t i = 0; i < list.size(); ++i) {
    const auto found =
        named ? std::find_if(ports.begin(), ports.end(), [&](const Wanted& port) { return port.name == list[i].name; })
              : ports.begin() + static_cast<std::ptrdiff_t>(i);
    if (found == ports.end()) {
      const auto names = names_of(ports);
      Error error = shape_error(fmt::format("{}: the model has no '{}'", what, list[i].name));
      error.fact(fmt::format("it has {}", fmt::join(names, ", ")));
      if (const std::string meant = suggestion(list[i].name, names); !meant.empty()) error.remedy("'" + meant + "'");
      return fail(std::move(error));
    }
    const ArrayView*& place = ordered[static_cast<size_t>(found - ports.begin())];
    if (place != nullptr) return fail(shape_error(fmt::format("{}: '{}' is given twice", what, list[i].name)));
    place = &list[i].array;
  }
  return ordered;
}

// Returns the shape of one sample without trailing dimensions of 1, because Keras treats (N,) and (N, 1) alike.
std::vector<int64_t> without_ones(std::vector<int64_t> dims) {
  while (!dims.empty() && dims.back() == 1) dims.pop_back();
  return dims;
}

// Checks shape and dtype. `samples` is the number of samples in the arrays before this one, or 0 for the first array.
Result<BoundArray> bind_array(const ArrayView& view, const Wanted& port, int64_t& samples) {
  if (!view.given()) return fail(shape_error(port.label + " is not given"));
  PLIMSOLL_ASSIGN(const DType dtype, check_view(view, port.label));
  const auto& dims = view.shape();
  std::vector<int64_t> wanted = port.sample.dims;
  const bool fewer = port.padded && dims.size() == 2 && dims[1] >= 1 && dims[1] < wanted[0];
  if (fewer) wanted[0] = dims[1];
  if (dims.empty() || without_ones({dims.begin() + 1, dims.end()}) != without_ones(wanted)) {
    wanted.insert(wanted.begin(), dims.empty() ? 1 : dims[0]);
    Error error = shape_error(
        fmt::format("{} has the shape {}, the model takes {}", port.label, shape_text(dims), shape_text(wanted)));
    if (dims.size() == 1 && port.sample.rank() > 0 && dims[0] % port.sample.elements() == 0) {
      wanted[0] = dims[0] / port.sample.elements();
      error.remedy(
          fmt::format("give the shape of a flat container: ArrayView(values, {{{}}})", fmt::join(wanted, ", ")));
    }
    return fail(std::move(error));
  }
  if (samples > 0 && dims[0] != samples)
    return fail(
        shape_error(fmt::format("{} has {} samples, the arrays before it have {}", port.label, dims[0], samples)));
  samples = dims[0];
  return BoundArray{static_cast<const std::byte*>(view.data()), dtype, fewer ? dims[1] : 0};
}

Status check_elements(const BoundArray& array, const CheckedArray& as, int64_t samples) {
  const auto index = first_bad_element(as, array.data, samples);
  if (!index) return {};
  Error error = bad_element(as, array.data, *index, *index / as.sample.elements());
  if (error.code == ErrorCode::kDataNotFinite) error.remedies = {"remove the sample, or replace the element"};
  return fail(std::move(error));
}

// Any dtype is converted to a float input, as in Keras. An input that is declared as integer accepts only that dtype.
Status check_conversion(DType from, DType to, const std::string& label) {
  if (from == to || is_floating(to)) return {};
  return fail(shape_error(fmt::format("{} is {}, the model takes {}", label, keras_name(from), keras_name(to)))
                  .remedy(fmt::format("declare the dtype of the data: layers::Input(shape, {{.dtype = \"{}\"}})",
                                      keras_name(from))));
}

std::vector<Wanted> wanted_outputs(const Model& model, const char* what) {
  std::vector<Wanted> ports;
  for (const Port& port : model.outputs())
    if (port.has_loss) ports.push_back({port.name, port.target, what, port.padded_labels});
  if (ports.size() > 1)
    for (Wanted& port : ports) port.label += fmt::format(" '{}'", port.name);
  return ports;
}

// Copies samples whose ends are missing, and fills them with 0.
void copy_padded(const BoundArray& array, int64_t first, int64_t count, DType to, int64_t elements, int64_t at,
                 void* slot) {
  for (int64_t i = 0; i < count; ++i) {
    std::byte* const row = static_cast<std::byte*>(slot) + (at + i) * elements * size_of(to);
    std::memset(row, 0, static_cast<size_t>(elements * size_of(to)));
    convert_elements(array.dtype, array.data + (first + i) * array.stored * size_of(array.dtype), to, row,
                     array.stored);
  }
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& dims) {
  return fmt::format("({}{})", fmt::join(dims, ", "), dims.size() == 1 ? "," : "");
}

Result<DType> check_view(const ArrayView& view, const std::string& label) {
  const auto dtype = dtype_from_name(view.dtype());
  if (!dtype) return fail(shape_error(fmt::format("{}: unknown dtype '{}'", label, view.dtype())));
  std::optional<int64_t> elements = 1;
  for (const int64_t d : view.shape()) elements = d < 0 || !elements ? std::nullopt : checked_multiply(*elements, d);
  if (elements && *elements == view.elements()) return *dtype;
  return fail(shape_error(fmt::format("{}: an array of the shape {} has {} elements, this one has {}", label,
                                      shape_text(view.shape()),
                                      elements ? fmt::format("{}", *elements) : "no such number of", view.elements())));
}

void convert_elements(DType from, const void* source, DType to, void* destination, int64_t count) {
  if (from == to) {
    std::memcpy(destination, source, static_cast<size_t>(count * size_of(to)));
    return;
  }
  if (to == DType::kFloat64)
    convert_to(from, source, static_cast<double*>(destination), count);
  else if (to == DType::kInt32)
    convert_to(from, source, static_cast<int32_t*>(destination), count);
  else
    convert_to(from, source, static_cast<float*>(destination), count);
}

Status BatchReader::bind_inputs(const Batch& batch, BoundBatch& bound) const {
  const auto& inputs = model_.inputs();
  std::vector<Wanted> ports;
  for (const Port& port : inputs)
    ports.push_back(
        {port.name, port.sample, inputs.size() == 1 ? "Batch::x" : fmt::format("Batch::x '{}'", port.name)});
  PLIMSOLL_ASSIGN(const auto arrays, arrange(batch.x, ports, "Batch::x"));
  for (size_t i = 0; i < ports.size(); ++i) {
    PLIMSOLL_ASSIGN(const BoundArray array, bind_array(*arrays[i], ports[i], bound.samples));
    PLIMSOLL_TRY(check_conversion(array.dtype, types_.inputs[i], ports[i].label));
    bound.inputs.push_back(array);
  }
  return {};
}

Status BatchReader::bind_targets(const Batch& batch, BoundBatch& bound) const {
  const std::vector<Wanted> ports = wanted_outputs(model_, "Batch::y");
  PLIMSOLL_ASSIGN(const auto arrays, arrange(batch.y, ports, "Batch::y"));
  for (size_t i = 0; i < ports.size(); ++i) {
    PLIMSOLL_ASSIGN(const BoundArray array, bind_array(*arrays[i], ports[i], bound.samples));
    bound.targets.push_back(array);
  }
  return {};
}

Status BatchReader::bind_weights(const Batch& batch, BoundBatch& bound) const {
  const size_t outputs = bound.targets.size();
  if (batch.sample_weight.empty()) {
    if (types_.sample_weights) bound.weights.assign(outputs, {});
    return {};
  }
  if (!types_.sample_weights)
    return fail(shape_error("Batch::sample_weight is given, but the model was planned without sample weights")
                    .remedy("options.sample_weights = true"));
  std::vector<Wanted> ports = wanted_outputs(model_, "Batch::sample_weight");
  for (Wanted& port : ports) {
    port.sample = Shape();
    port.padded = false;
  }
  const bool one_for_all = batch.sample_weight.list().size() == 1 && batch.sample_weight.list()[0].name.empty();
  if (one_for_all) ports.resize(1);
  PLIMSOLL_ASSIGN(const auto arrays, arrange(batch.sample_weight, ports, "Batch::sample_weight"));
  static const Shape kOneNumber;
  for (size_t i = 0; i < ports.size(); ++i) {
    PLIMSOLL_ASSIGN(const BoundArray array, bind_array(*arrays[i], ports[i], bound.samples));
    PLIMSOLL_TRY(check_elements(array, {ports[i].label, array.dtype, kOneNumber}, bound.samples));
    bound.weights.push_back(array);
  }
  if (one_for_all) bound.weights.resize(outputs, bound.weights[0]);
  return {};
}

Result<BoundBatch> BatchReader::bind(const Batch& batch, int64_t most, bool targets) const {
  BoundBatch bound;
  PLIMSOLL_TRY(bind_inputs(batch, bound));
  if (bound.samples < 1 || (most > 0 && bound.samples > most))
    return fail(shape_error(most > 0
                                ? fmt::format("a batch has from 1 to {} samples, this one has {}", most, bound.samples)
                                : "there are no samples")
                    .fact(most > 0 ? fmt::format("Options::batch_size is {}", most) : "the first dimension is 0"));
  if (targets) {
    PLIMSOLL_TRY(bind_targets(batch, bound));
    PLIMSOLL_TRY(bind_weights(batch, bound));
  }
  const auto& inputs = model_.inputs();
  for (size_t i = 0; i < bound.inputs.size(); ++i) {
    const std::string label = inputs.size() == 1 ? "Batch::x" : fmt::format("Batch::x '{}'", inputs[i].name);
    CheckedArray array{label, bound.inputs[i].dtype, inputs[i].sample, false, inputs[i].classes};
    array.is_ids = inputs[i].classes > 0;
    PLIMSOLL_TRY(check_elements(bound.inputs[i], array, bound.samples));
  }
  size_t next = 0;
  const std::vector<Wanted> ports = wanted_outputs(model_, "Batch::y");
  for (const Port& port : model_.outputs()) {
    if (!port.has_loss || next >= bound.targets.size()) continue;
    const BoundArray& array = bound.targets[next];
    const Shape target = array.stored > 0 ? Shape{array.stored} : port.target;
    PLIMSOLL_TRY(check_elements(
        array, {ports[next].label, array.dtype, target, port.sparse_labels, port.classes, port.ignored_class},
        bound.samples));
    ++next;
  }
  return bound;
}

void BatchReader::copy(const BoundBatch& batch, int64_t first, int64_t count, int64_t at,
                       const BatchBuffers& into) const {
  const auto rows = [&](const BoundArray& array, DType to, int64_t elements, void* slot) {
    if (slot == nullptr) return;
    if (array.stored > 0) return copy_padded(array, first, count, to, elements, at, slot);
    convert_elements(array.dtype, array.data + first * elements * size_of(array.dtype), to,
                     static_cast<std::byte*>(slot) + at * elements * size_of(to), count * elements);
  };
  for (size_t i = 0; i < into.inputs.size() && i < batch.inputs.size(); ++i)
    rows(batch.inputs[i], types_.inputs[i], model_.inputs()[i].sample.elements(), into.inputs[i]);
  size_t next = 0;
  for (const Port& port : model_.outputs()) {
    if (!port.has_loss) continue;
    if (next < into.targets.size() && next < batch.targets.size())
      rows(batch.targets[next], types_.targets[next], port.target.elements(), into.targets[next]);
    if (next < into.weights.size()) {
      if (next < batch.weights.size() && batch.weights[next].data != nullptr)
        rows(batch.weights[next], DType::kFloat32, 1, into.weights[next]);
      else
        std::fill_n(into.weights[next] + at, count, 1.0f);
    }
    ++next;
  }
}

}  // namespace plimsoll::engine
