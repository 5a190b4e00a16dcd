#include "data/record_rows.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <numeric>

#include "base/checked.h"
#include "data/features.h"
#include "data/image_rows.h"
#include "data/record_index.h"
#include "data/seen_pictures.h"
#include "formats/file/array_source.h"
#include "formats/file/gzip.h"
#include "formats/image/resize.h"
#include "formats/limits.h"
#include "formats/tfrecord/example.h"

namespace plimsoll::engine {
namespace {

// How a feature becomes a row.
struct Field {
  enum class As : uint8_t { kRaw, kPicture, kFloats, kIntegers };
  std::string feature;
  As as = As::kRaw;
  DType dtype = DType::kUInt8;
  std::vector<int64_t> dims;
  std::shared_ptr<BilinearRows> picture;  // for kPicture

  int64_t elements() const { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }
  Bytes bytes() const { return elements() * size_of(dtype); }
};

class RecordRows final : public RowSource {
 public:
  RecordRows(RecordIndex index, std::vector<Field> fields)
      : index_(std::move(index)),
        fields_(std::move(fields)),
        record_(static_cast<size_t>(index_.longest() + kRecordTail)),
        heads_(index_.knows_every_record() ? static_cast<size_t>(kRecordHead) : static_cast<size_t>(kStreamBuffer)),
        ahead_(static_cast<size_t>(kStreamBuffer)) {}

  const RecordIndex& index() const { return index_; }

  // Reads what must be known before the run: the sizes of pictures, and with `skip` every record.
  Status look(bool skip) {
    const bool pictures =
        std::any_of(fields_.begin(), fields_.end(), [](const Field& f) { return f.picture != nullptr; });
    if (!skip && !pictures) return {};
    std::vector<bool> good;
    std::vector<std::vector<std::byte>> trial;
    for (const Field& field : fields_) trial.emplace_back(skip ? static_cast<size_t>(field.bytes()) : 0);
    for (int64_t record = 0; record < index_.records(); ++record) {
      Status status = load(record);
      for (size_t f = 0; status && f < fields_.size(); ++f) {
        if (fields_[f].picture) status = fit_picture(fields_[f]);
        if (status && skip) status = extract(fields_[f], trial[f].data());
      }
      if (!status && !skip)
        return fail(std::move(status.error().remedy(
            "--on-bad-record skip   reads every record once before the run, and leaves damaged ones out")));
      good.push_back(status.has_value());
    }
    if (skip) index_.keep(good);
    loaded_ = -1;
    return {};
  }

  Bytes bytes() const override {
    constexpr Bytes kCode = kMiB;  // pages of libjpeg and libpng that decoding touches
    Bytes bytes = index_.bytes() + static_cast<Bytes>(record_.capacity() + heads_.capacity() + ahead_.capacity());
    bytes += static_cast<Bytes>(buffer_.memory.capacity()) + buffer_.library_bytes;
    for (const Field& field : fields_)
      if (field.picture) bytes += field.picture->bytes() + kCode;
    return bytes;
  }

  Status read(size_t field, int64_t record, void* into) override {
    const std::lock_guard lock(mutex_);
    std::optional<ReadClock> clock;  // it takes as long as a small record
    if (fields_[field].picture) clock.emplace(times_);
    PLIMSOLL_TRY(load(record));
    return extract(fields_[field], into);
  }

  std::optional<Decoding> decoding(size_t field) const override {
    if (!fields_[field].picture || seen_.count == 0) return std::nullopt;
    return Decoding{seen_.work(), seen_.seconds / static_cast<double>(seen_.count), !seen_.resized};
  }

  RowTimes times() const override {
    const std::lock_guard lock(mutex_);
    return times_;
  }

  Result<std::string> digest(size_t field) override {
    return fmt::format("{} {} of {} records", index_.digest(), fields_[field].feature, index_.records());
  }

 private:
  Status load(int64_t record) {
    if (record == loaded_) return {};
    loaded_ = -1;
    PLIMSOLL_ASSIGN(const auto found, index_.find(record, heads_));
    if (found.place.bytes + kRecordTail > static_cast<int64_t>(record_.size()))
      return fail(ErrorCode::kBadDataFile, found.file->path() + ": it changed while it was read");
    PLIMSOLL_TRY(fetch(*found.file, found.place));
    file_ = found.file;
    place_ = found.place;
    loaded_ = record;
    return {};
  }

  // Reads a record. Records that are read in the order of the file come from larger reads.
  Status fetch(const File& file, const RecordPlace& place) {
    const int64_t bytes = place.bytes + kRecordTail;
    if (ahead_of_ != &file || place.offset < ahead_at_ || place.offset + bytes > ahead_at_ + ahead_bytes_) {
      const bool follows = file_ == &file && place.offset == place_.next() + kRecordHead;
      const int64_t there = std::min(static_cast<int64_t>(ahead_.size()), file.size() - place.offset);
      if (!follows || bytes > there) return read_record(file, place, record_);
      ahead_of_ = nullptr;
      PLIMSOLL_TRY(file.pread_exact(place.offset, std::span(ahead_).first(static_cast<size_t>(there))));
      ahead_of_ = &file;
      ahead_at_ = place.offset;
      ahead_bytes_ = there;
    }
    const auto whole = std::span(record_).first(static_cast<size_t>(bytes));
    std::memcpy(whole.data(), ahead_.data() + (place.offset - ahead_at_), whole.size());
    return check_record(file, place, whole);
  }

  Error bad(const std::string& what) const {
    return {ErrorCode::kBadDataFile,
            fmt::format("{}: record {}, at byte {}: {}", file_->path(), loaded_, place_.offset, what),
            {},
            {}};
  }

  Result<Feature> feature(const Field& field) const {
    bool ok = false;
    const auto found = find_feature(std::span(record_).first(static_cast<size_t>(place_.bytes)), field.feature, ok);
    if (!ok) return fail(bad("it is no tf.train.Example"));
    if (!found) return fail(bad(fmt::format("it has no feature '{}'", field.feature)));
    return *found;
  }

  Result<std::span<const std::byte>> only_bytes(const Field& field) const {
    PLIMSOLL_ASSIGN(const Feature found, feature(field));
    if (const auto bytes = found.only_bytes()) return *bytes;
    return fail(bad(fmt::format("the feature '{}' is not one byte string", field.feature)));
  }

  Result<EncodedImage> picture(const Field& field) const {
    PLIMSOLL_ASSIGN(const auto bytes, only_bytes(field));
    return EncodedImage{file_, place_.offset + (bytes.data() - record_.data()), static_cast<int64_t>(bytes.size()),
                        fmt::format("{}: record {}: {}", file_->path(), loaded_, field.feature), nullptr};
  }

  Status fit_picture(const Field& field) {
    PLIMSOLL_ASSIGN(const EncodedImage image, picture(field));
    PLIMSOLL_ASSIGN(const ImageHeader header, read_image_header(image));
    buffer_.fit(header);
    seen_.add(header, {field.dims[0], field.dims[1], field.dims[2]});
    return {};
  }

  Error wrong_length(const Field& field, const Feature& found) const {
    return bad(fmt::format("the feature '{}' has {} {}, expected {} {}", field.feature, found.count().value_or(0),
                           name_of(found.kind), field.elements(),
                           name_of(field.as == Field::As::kFloats ? FeatureKind::kFloats : FeatureKind::kIntegers)));
  }

  Status extract(const Field& field, void* into) {
    if (field.as == Field::As::kPicture) {
      PLIMSOLL_ASSIGN(const EncodedImage image, picture(field));
      field.picture->write_to(static_cast<float*>(into));
      return decode_image(image, static_cast<int>(field.dims[2]), buffer_, *field.picture);
    }
    if (field.as == Field::As::kRaw) {
      PLIMSOLL_ASSIGN(const auto bytes, only_bytes(field));
      if (static_cast<Bytes>(bytes.size()) != field.bytes())
        return fail(
            bad(fmt::format("the feature '{}' has {} bytes, expected {}", field.feature, bytes.size(), field.bytes())));
      std::memcpy(into, bytes.data(), bytes.size());
      return {};
    }
    PLIMSOLL_ASSIGN(const Feature found, feature(field));
    const auto count = static_cast<size_t>(field.elements());
    const bool read = field.as == Field::As::kFloats ? found.read_floats({static_cast<float*>(into), count})
                                                     : found.read_integers({static_cast<int64_t*>(into), count});
    return read ? Status() : Status(fail(wrong_length(field, found)));
  }

  RecordIndex index_;
  std::vector<Field> fields_;
  SeenPictures seen_;
  mutable std::mutex mutex_;  // of the members below
  RowTimes times_;
  std::vector<std::byte> record_, heads_;
  std::vector<std::byte> ahead_;    // bytes ahead_at_ to ahead_at_ + ahead_bytes_ of a file
  const File* ahead_of_ = nullptr;  // which file; null: none
  int64_t ahead_at_ = 0, ahead_bytes_ = 0;
  ImageBuffer buffer_;
  int64_t loaded_ = -1;  // the record in record_, which is at place_ of file_
  const File* file_ = nullptr;
  RecordPlace place_;
};

// What the first record says about a feature.
struct Described {
  FeatureKind kind = FeatureKind::kNone;
  int64_t count = 0;  // elements, or bytes of the only byte string
  bool one = false;   // one byte string
  bool picture = false;

  std::string text() const {
    if (picture) return "a picture";
    if (kind == FeatureKind::kBytes && !one) return fmt::format("{} byte strings", count);
    return fmt::format("{} {}", count, name_of(kind));
  }
};

struct Schema {
  std::vector<std::string> names;
  std::vector<Described> features;

  const Described& of(const std::string& name) const {
    return features[static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
  }
  std::string text() const {
    std::string text;
    for (size_t i = 0; i < names.size(); ++i)
      text += fmt::format("{}{}: {}", i == 0 ? "" : ", ", names[i], features[i].text());
    return text;
  }
};

bool begins_picture(std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return start.starts_with("\xff\xd8\xff") || start.starts_with("\x89PNG\r\n\x1a\n");
}

Result<Schema> read_schema(const RecordIndex& index, const std::string& path) {
  if (index.records() == 0) return fail(ErrorCode::kDataEmpty, path + ": it holds no records");
  std::vector<std::byte> heads(static_cast<size_t>(kRecordHead));
  PLIMSOLL_ASSIGN(const auto first, index.find(0, heads));
  std::vector<std::byte> record(static_cast<size_t>(first.place.bytes + kRecordTail));
  PLIMSOLL_TRY(read_record(*first.file, first.place, record));
  Schema schema;
  const auto example = std::span(record).first(static_cast<size_t>(first.place.bytes));
  ExampleReader reader(example);
  while (const auto feature = reader.next()) {
    Described found{feature->kind, feature->count().value_or(0), false, false};
    if (const auto bytes = feature->only_bytes())
      found = {feature->kind, static_cast<int64_t>(bytes->size()), true, begins_picture(*bytes)};
    schema.names.emplace_back(feature->name);
    schema.features.push_back(found);
    if (static_cast<int64_t>(schema.names.size()) > limits::kRecordFeatures) break;
  }
  if (reader.ok() && !schema.names.empty()) return schema;
  return fail(ErrorCode::kBadDataFile, fmt::format("{}: its records are no tf.train.Example", path));
}

Result<Field> picture_field(Field field, const DataSpec& spec, const Shape& sample) {
  const std::vector<int64_t> dims = sample.rank() == 3 ? sample.dims : image_sample_shape(spec);
  field.as = Field::As::kPicture;
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
Result<Field> raw_field(Field field, const Described& found, const std::optional<DType>& given,
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

Result<Field> make_field(const FeatureChoice& choice, const Schema& schema, const DataSpec& spec,
                         const std::optional<Shape>& sample, bool input) {
  const Described& found = schema.of(choice.feature);
  Field field;
  field.feature = choice.feature;
  if (found.picture && input && !choice.dtype) return picture_field(std::move(field), spec, sample.value_or(Shape()));
  if (found.kind == FeatureKind::kBytes) return raw_field(std::move(field), found, choice.dtype, sample);
  field.as = found.kind == FeatureKind::kFloats ? Field::As::kFloats : Field::As::kIntegers;
  field.dtype = found.kind == FeatureKind::kFloats ? DType::kFloat32 : DType::kInt64;
  field.dims = {found.count};
  if (sample && sample->elements() == found.count) field.dims = sample->dims;
  return field;
}

Result<FeatureChoice> need_feature(const std::vector<NamedFeature>& named, const Schema& schema,
                                   const std::string& path, const std::string& port, PortRole role, bool single) {
  if (auto choice = choose_feature(named, schema.names, port, role, single)) return *choice;
  const bool input = role == PortRole::kInput;
  Error error{ErrorCode::kUsage,
              fmt::format("{}: no feature for the model's {} '{}'", path, input ? "input" : "output", port),
              {},
              {}};
  return fail(error.fact("its features: " + schema.text())
                  .remedy(fmt::format("--features {}=FEATURE", single ? (input ? "x" : "y") : port)));
}

FoundArray found_array(const std::string& path, const Field& field, size_t number, std::shared_ptr<RowSource> rows,
                       int64_t records) {
  FoundArray array;
  array.label = fmt::format("{}: {}", path, field.feature);
  array.dtype = field.dtype;
  array.dims = {records};
  array.dims.insert(array.dims.end(), field.dims.begin(), field.dims.end());
  array.rows = std::move(rows);
  array.field = number;
  return array;
}

Result<std::vector<Field>> choose_fields(const std::string& path, const Schema& schema, const DataSpec& spec) {
  PLIMSOLL_ASSIGN(const auto named, parse_features(spec.read.features));
  std::vector<Field> fields;
  const auto add = [&](const PortSpec& port, PortRole role, bool single, const Shape& sample) -> Status {
    PLIMSOLL_ASSIGN(const auto choice, need_feature(named, schema, path, port.name, role, single));
    PLIMSOLL_ASSIGN(Field field, make_field(choice, schema, spec, sample, role == PortRole::kInput));
    fields.push_back(std::move(field));
    return {};
  };
  for (const PortSpec& port : spec.inputs)
    PLIMSOLL_TRY(add(port, PortRole::kInput, spec.inputs.size() == 1, port.sample));
  if (!spec.needs_targets) return fields;
  for (const PortSpec& port : spec.outputs)
    PLIMSOLL_TRY(add(port, PortRole::kTarget, spec.outputs.size() == 1, port.target));
  if (spec.outputs.size() != 1) return fields;
  if (const auto weights = choose_feature(named, schema.names, "", PortRole::kWeights, true)) {
    PLIMSOLL_ASSIGN(Field field, make_field(*weights, schema, spec, Shape{}, false));
    fields.push_back(std::move(field));
  }
  return fields;
}

}  // namespace

Result<std::vector<std::string>> record_files(const std::string& argument) {
  std::vector<std::string> files;
  std::error_code ignored;
  if (std::filesystem::exists(argument, ignored)) {
    files.push_back(argument);
  } else {
    glob_t found{};
    if (::glob(argument.c_str(), 0, nullptr, &found) == 0)
      files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
  }
  if (files.empty() || std::filesystem::is_directory(files[0], ignored)) return std::vector<std::string>();
  if (files[0].find(".tfrecord") != std::string::npos) return files;
  PLIMSOLL_ASSIGN(const File file, File::open_read(files[0]));
  std::array<char, kRecordHead> start{};
  if (file.size() < static_cast<int64_t>(start.size())) return std::vector<std::string>();
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(start))));
  if (!begins_record({start.data(), start.size()})) files.clear();
  return files;
}

Result<FoundArrays> open_records(const std::vector<std::string>& files, const DataSpec& spec) {
  const bool skip = spec.read.skip_bad_records;
  const std::string path = files.size() == 1 ? files[0] : fmt::format("{} and {} more", files[0], files.size() - 1);
  PLIMSOLL_ASSIGN(RecordIndex index, RecordIndex::build(files, skip));
  PLIMSOLL_ASSIGN(const Schema schema, read_schema(index, path));
  PLIMSOLL_ASSIGN(auto fields, choose_fields(path, schema, spec));
  const auto rows = std::make_shared<RecordRows>(std::move(index), fields);
  PLIMSOLL_TRY(rows->look(skip));
  const int64_t records = rows->index().records(), dropped = rows->index().dropped();
  if (records == 0) return fail(ErrorCode::kDataEmpty, path + ": every record is damaged");
  if (spec.read.note) spec.read.note(fmt::format("{}: {} records; {}", path, records, schema.text()));
  PLIMSOLL_TRY(tell_left_out(spec.read, path, dropped, "records"));
  FoundArrays arrays;
  for (size_t i = 0; i < fields.size(); ++i) {
    FoundArray array = found_array(path, fields[i], i, rows, records);
    if (i < spec.inputs.size())
      arrays.inputs.push_back(std::move(array));
    else if (i < spec.inputs.size() + spec.outputs.size())
      arrays.targets.push_back(std::move(array));
    else
      arrays.weights.emplace_back(std::move(array));
  }
  return arrays;
}

Result<std::vector<int64_t>> record_sample_shape(const std::vector<std::string>& files, const std::string& input,
                                                 bool only, const DataSpec& with) {
  PLIMSOLL_ASSIGN(const RecordIndex index, RecordIndex::build({files[0]}, with.read.skip_bad_records));
  PLIMSOLL_ASSIGN(const Schema schema, read_schema(index, files[0]));
  PLIMSOLL_ASSIGN(const auto named, parse_features(with.read.features));
  PLIMSOLL_ASSIGN(const auto choice, need_feature(named, schema, files[0], input, PortRole::kInput, only));
  PLIMSOLL_ASSIGN(const Field field, make_field(choice, schema, with, std::nullopt, true));
  return field.dims;
}

}  // namespace plimsoll::engine
