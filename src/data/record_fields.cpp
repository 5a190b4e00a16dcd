#include "data/record_fields.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "data/image_rows.h"
#include "formats/file/array_source.h"
#include "formats/limits.h"
#include "model/text/text_inputs.h"

namespace plimsoll::engine {
namespace {

bool begins_picture(std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return start.starts_with("\xff\xd8\xff") || start.starts_with("\x89PNG\r\n\x1a\n");
}

Result<RecordField> picture_field(RecordField field, const DataSpec& spec, const Shape& sample) {
  const std::vector<int64_t> dims = sample.rank() == 3 ? sample.dims : image_sample_shape(spec);
  field.as = RecordField::As::kPicture;
  field.dtype = DType::kFloat32;
  field.dims = dims;
  if (spec.read.image_size) std::copy_n(spec.read.image_size->begin(), 2, field.dims.begin());
  if (dims[2] != 1 && dims[2] != 3 && dims[2] != 4)
    return fail(ErrorCode::kDataShape,
                fmt::format("the feature '{}' holds pictures, which have no {} channels", field.feature, dims[2]));
  field.picture = std::make_shared<BilinearRows>(field.dims[0], field.dims[1], static_cast<int>(dims[2]));
  return field;
}

// Raw bytes: their number per element says the dtype, if the shape is known.
Result<RecordField> raw_field(RecordField field, const DescribedFeature& found, const std::optional<DType>& given,
                              const std::optional<Shape>& sample) {
  if (!found.one)
    return fail(ErrorCode::kDataShape,
                fmt::format("the feature '{}' has {} byte strings, expected one", field.feature, found.count));
  const int64_t elements = sample ? sample->elements() : found.count;
  for (const DType dtype : {DType::kUInt8, DType::kFloat32, DType::kFloat64})
    if (!given && found.count == checked_multiply(elements, int64_t{size_of(dtype)})) {
      field.dtype = dtype;
      field.dims = sample ? sample->dims : std::vector<int64_t>{found.count};
      return field;
    }
  field.dtype = given.value_or(DType::kUInt8);
  const int64_t count = found.count / size_of(field.dtype);
  field.dims = {count};
  if (sample && count == elements && found.count % size_of(field.dtype) == 0) field.dims = sample->dims;
  return field;
}

// One byte string per string of a sample.
Result<RecordField> text_field(RecordField field, const DescribedFeature& found) {
  if (found.kind != FeatureKind::kBytes)
    return fail(ErrorCode::kDataShape,
                fmt::format("the feature '{}' has {}, but the model takes strings", field.feature, found.text()));
  field.as = RecordField::As::kText;
  if (!found.one) field.dims = {found.count};
  return field;
}

// `declared`: the shape of a sample if `sample` is not known.
Result<RecordField> variable_field(RecordField field, const FeatureChoice& choice, const std::optional<Shape>& sample,
                                   const PortSpec& port, double padding) {
  field.variable = true;
  field.cuts = choice.length == FeatureLength::kCut;
  field.padding = padding;
  if (sample) {
    field.dims = sample->dims;
    return field;
  }
  field.dims = {0};
  for (size_t i = 1; i < port.declared.size(); ++i) {
    if (!port.declared[i])
      return fail(
          ErrorCode::kDataShape,
          fmt::format("the feature '{}' has a variable length, but the model's input '{}' leaves more sizes open "
                      "than the first",
                      field.feature, port.name));
    field.dims.push_back(*port.declared[i]);
  }
  return field;
}

Result<RecordField> make_field(const FeatureChoice& choice, const RecordSchema& schema, const DataSpec& spec,
                               const PortSpec& port, const std::optional<Shape>& sample, bool input) {
  const DescribedFeature& found = schema.of(choice.feature);
  RecordField field;
  field.feature = choice.feature;
  if (port.text) return text_field(std::move(field), found);
  if (choice.length != FeatureLength::kFixed && found.kind == FeatureKind::kBytes)
    return fail(ErrorCode::kUsage,
                fmt::format("--features {}=...: the feature is {}; lists alone have a variable length", port.name,
                            found.text()));
  if (found.picture && input && !choice.dtype) return picture_field(std::move(field), spec, sample.value_or(Shape()));
  if (found.kind == FeatureKind::kBytes) return raw_field(std::move(field), found, choice.dtype, sample);
  field.as = found.kind == FeatureKind::kFloats ? RecordField::As::kFloats : RecordField::As::kIntegers;
  field.dtype = found.kind == FeatureKind::kFloats ? DType::kFloat32 : DType::kInt64;
  if (choice.length != FeatureLength::kFixed)
    return variable_field(std::move(field), choice, sample, port, spec.read.padding);
  if (input && sample && sample->elements() != found.count) {
    Error error{ErrorCode::kDataShape,
                fmt::format("the feature '{}' has {} in the first record, the model's input '{}' takes {}",
                            field.feature, found.text(), port.name, dims_text(sample->dims)),
                {},
                {}};
    return fail(error.remedy(
        fmt::format("--features {}={}:variable   if records have different lengths", port.name, field.feature)));
  }
  field.dims = {found.count};
  if (sample && sample->elements() == found.count) field.dims = sample->dims;
  return field;
}

Result<FeatureChoice> need_feature(const std::vector<NamedFeature>& named, const RecordSchema& schema,
                                   const std::string& path, const std::string& port, PortRole role, bool single) {
  if (auto choice = choose_feature(named, schema.names, port, role, single)) return *choice;
  const bool input = role == PortRole::kInput || role == PortRole::kText;
  Error error{ErrorCode::kUsage,
              fmt::format("{}: no feature for the model's {} '{}'", path, input ? "input" : "output", port),
              {},
              {}};
  return fail(error.fact("its features: " + schema.text())
                  .remedy(fmt::format("--features {}=FEATURE", single ? (input ? "x" : "y") : port)));
}

}  // namespace

Result<RecordSchema> read_schema(const RecordIndex& index, const std::string& path) {
  if (index.records() == 0) return fail(ErrorCode::kDataEmpty, path + ": it holds no records");
  std::vector<std::byte> heads(static_cast<size_t>(kRecordHead));
  PLIMSOLL_ASSIGN(const auto first, index.find(0, heads));
  std::vector<std::byte> record(static_cast<size_t>(first.place.bytes + kRecordTail));
  PLIMSOLL_TRY(read_record(*first.file, first.place, record));
  RecordSchema schema;
  const auto example = std::span(record).first(static_cast<size_t>(first.place.bytes));
  ExampleReader reader(example);
  while (const auto feature = reader.next()) {
    DescribedFeature found{feature->kind, feature->count().value_or(0), false, false};
    if (const auto bytes = feature->only_bytes())
      found = {feature->kind, static_cast<int64_t>(bytes->size()), true, begins_picture(*bytes)};
    schema.names.emplace_back(feature->name);
    schema.features.push_back(found);
    if (static_cast<int64_t>(schema.names.size()) > limits::kRecordFeatures) break;
  }
  if (reader.ok() && !schema.names.empty()) return schema;
  return fail(ErrorCode::kBadDataFile, fmt::format("{}: its records are no tf.train.Example", path));
}

Result<RecordField> input_field(const std::string& path, const RecordSchema& schema, const DataSpec& spec,
                                const PortSpec& port, bool single, const std::optional<Shape>& sample) {
  PLIMSOLL_ASSIGN(const auto named, parse_features(spec.read.features));
  const PortRole role = port.text ? PortRole::kText : PortRole::kInput;
  PLIMSOLL_ASSIGN(const auto choice, need_feature(named, schema, path, port.name, role, single));
  return make_field(choice, schema, spec, port, sample, true);
}

Result<std::vector<RecordField>> choose_fields(const std::string& path, const RecordSchema& schema,
                                               const DataSpec& spec) {
  PLIMSOLL_ASSIGN(const auto named, parse_features(spec.read.features));
  std::vector<RecordField> fields;
  const auto add = [&](const PortSpec& port, PortRole role, bool single, const Shape& sample) -> Status {
    PLIMSOLL_ASSIGN(const auto choice, need_feature(named, schema, path, port.name, role, single));
    PLIMSOLL_ASSIGN(RecordField field, make_field(choice, schema, spec, port, sample, false));
    fields.push_back(std::move(field));
    return {};
  };
  for (const PortSpec& port : spec.inputs) {
    PLIMSOLL_ASSIGN(RecordField field, input_field(path, schema, spec, port, spec.inputs.size() == 1, port.sample));
    fields.push_back(std::move(field));
  }
  if (!spec.needs_targets) return fields;
  for (const PortSpec& port : spec.outputs)
    PLIMSOLL_TRY(add(port, PortRole::kTarget, spec.outputs.size() == 1, port.target));
  if (spec.outputs.size() != 1) return fields;
  if (const auto weights = choose_feature(named, schema.names, "", PortRole::kWeights, true)) {
    PLIMSOLL_ASSIGN(RecordField field, make_field(*weights, schema, spec, PortSpec(), Shape{}, false));
    fields.push_back(std::move(field));
  }
  return fields;
}

}  // namespace plimsoll::engine
