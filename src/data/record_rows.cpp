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
#include "data/image_rows.h"
#include "data/record_fields.h"
#include "data/record_index.h"
#include "data/seen_pictures.h"
#include "formats/file/array_source.h"
#include "formats/file/gzip.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

class RecordRows final : public RowSource {
 public:
  RecordRows(RecordIndex index, std::vector<RecordField> fields)
      : index_(std::move(index)),
        fields_(std::move(fields)),
        record_(static_cast<size_t>(index_.longest() + kRecordTail)),
        heads_(index_.knows_every_record() ? static_cast<size_t>(kRecordHead) : static_cast<size_t>(kStreamBuffer)),
        ahead_(static_cast<size_t>(kStreamBuffer)) {}

  const RecordIndex& index() const { return index_; }

  // Reads what must be known before the run: the sizes of pictures, and with `skip` every record.
  Status look(bool skip) {
    const bool pictures =
        std::any_of(fields_.begin(), fields_.end(), [](const RecordField& f) { return f.picture != nullptr; });
    if (!skip && !pictures) return {};
    std::vector<bool> good;
    std::vector<std::vector<std::byte>> trial;
    for (const RecordField& field : fields_) trial.emplace_back(skip ? static_cast<size_t>(field.bytes()) : 0);
    for (int64_t record = 0; record < index_.records(); ++record) {
      Status status = load(record);
      for (size_t f = 0; status && f < fields_.size(); ++f) {
        if (fields_[f].picture) status = fit_picture(fields_[f]);
        if (status && skip && fields_[f].as == RecordField::As::kText)
          status = check_texts(fields_[f]);
        else if (status && skip)
          status = extract(fields_[f], trial[f].data());
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
    for (const RecordField& field : fields_)
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

  // Replaces `into` by a byte string of a record.
  Status read_text(size_t field, int64_t record, int64_t number, std::string& into) {
    const std::lock_guard lock(mutex_);
    PLIMSOLL_TRY(load(record));
    PLIMSOLL_ASSIGN(const Feature found, feature(fields_[field]));
    const auto bytes = found.bytes_at(number);
    const int64_t count = found.count().value_or(0), wanted = fields_[field].elements();
    if (!bytes || count != wanted)
      return fail(bad(fmt::format("the feature '{}' has {} {}, expected {} byte strings", fields_[field].feature, count,
                                  found.kind == FeatureKind::kBytes ? "byte strings" : name_of(found.kind), wanted)));
    into.assign(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    return {};
  }

  // Returns the elements of a list in the longest record.
  Result<int64_t> longest_list(size_t field, bool skip) {
    int64_t longest = 0;
    for (int64_t record = 0; record < index_.records(); ++record) {
      const Status loaded = load(record);
      if (!loaded && skip) continue;
      PLIMSOLL_TRY(loaded);
      const auto found = feature(fields_[field]);
      if (!found && skip) continue;
      PLIMSOLL_TRY(found);
      longest = std::max(longest, found->count().value_or(0));
    }
    return longest;
  }

  Bytes longest() const { return index_.longest(); }

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

  Result<Feature> feature(const RecordField& field) const {
    bool ok = false;
    const auto found = find_feature(std::span(record_).first(static_cast<size_t>(place_.bytes)), field.feature, ok);
    if (!ok) return fail(bad("it is no tf.train.Example"));
    if (!found && field.variable) return Feature();
    if (!found) return fail(bad(fmt::format("it has no feature '{}'", field.feature)));
    return *found;
  }

  Result<std::span<const std::byte>> only_bytes(const RecordField& field) const {
    PLIMSOLL_ASSIGN(const Feature found, feature(field));
    if (const auto bytes = found.only_bytes()) return *bytes;
    return fail(bad(fmt::format("the feature '{}' is not one byte string", field.feature)));
  }

  Result<EncodedImage> picture(const RecordField& field) const {
    PLIMSOLL_ASSIGN(const auto bytes, only_bytes(field));
    return EncodedImage{file_, place_.offset + (bytes.data() - record_.data()), static_cast<int64_t>(bytes.size()),
                        fmt::format("{}: record {}: {}", file_->path(), loaded_, field.feature), nullptr};
  }

  Status check_texts(const RecordField& field) {
    PLIMSOLL_ASSIGN(const Feature found, feature(field));
    if (found.kind == FeatureKind::kBytes && found.count() == field.elements()) return {};
    return fail(bad(fmt::format("the feature '{}' is not {} byte strings", field.feature, field.elements())));
  }

  Status fit_picture(const RecordField& field) {
    PLIMSOLL_ASSIGN(const EncodedImage image, picture(field));
    PLIMSOLL_ASSIGN(const ImageHeader header, read_image_header(image));
    buffer_.fit(header);
    seen_.add(header, {field.dims[0], field.dims[1], field.dims[2]});
    return {};
  }

  Error wrong_length(const RecordField& field, const Feature& found) const {
    return bad(
        fmt::format("the feature '{}' has {} {}, expected {} {}", field.feature, found.count().value_or(0),
                    name_of(found.kind), field.elements(),
                    name_of(field.as == RecordField::As::kFloats ? FeatureKind::kFloats : FeatureKind::kIntegers)));
  }

  Status extract(const RecordField& field, void* into) {
    if (field.as == RecordField::As::kPicture) {
      PLIMSOLL_ASSIGN(const EncodedImage image, picture(field));
      field.picture->write_to(static_cast<float*>(into));
      return decode_image(image, static_cast<int>(field.dims[2]), buffer_, *field.picture);
    }
    if (field.as == RecordField::As::kRaw) {
      PLIMSOLL_ASSIGN(const auto bytes, only_bytes(field));
      if (static_cast<Bytes>(bytes.size()) != field.bytes())
        return fail(
            bad(fmt::format("the feature '{}' has {} bytes, expected {}", field.feature, bytes.size(), field.bytes())));
      std::memcpy(into, bytes.data(), bytes.size());
      return {};
    }
    PLIMSOLL_ASSIGN(const Feature found, feature(field));
    if (field.variable) return extract_variable(field, found, into);
    const auto count = static_cast<size_t>(field.elements());
    const bool read = field.as == RecordField::As::kFloats ? found.read_floats({static_cast<float*>(into), count})
                                                           : found.read_integers({static_cast<int64_t*>(into), count});
    if (read) return {};
    Error error = wrong_length(field, found);
    return fail(
        error.remedy(fmt::format("--features NAME={}:variable   if records have different lengths", field.feature)));
  }

  // A list of any length. A feature that is absent or of no kind is an empty list, as in tf.io.
  Status extract_variable(const RecordField& field, const Feature& found, void* into) {
    const int64_t room = field.elements();
    const auto taken = found.kind == FeatureKind::kNone ? std::optional<int64_t>(0)
                       : field.as == RecordField::As::kFloats
                           ? found.take_floats({static_cast<float*>(into), static_cast<size_t>(room)})
                           : found.take_integers({static_cast<int64_t*>(into), static_cast<size_t>(room)});
    if (!taken) return fail(wrong_length(field, found));
    const int64_t step = room / std::max<int64_t>(field.dims[0], 1);
    if (step > 0 && *taken % step != 0)
      return fail(bad(fmt::format("the feature '{}' has {} elements, which are no whole steps of {}", field.feature,
                                  *taken, step)));
    if (*taken > room && !field.cuts) {
      Error error = bad(fmt::format("the feature '{}' has {} elements, more than the {} of the model's input",
                                    field.feature, *taken, room));
      return fail(error.remedy(fmt::format("--features NAME={}:cut   leaves out what is too long", field.feature)));
    }
    for (int64_t i = std::min(*taken, room); i < room; ++i)
      if (field.as == RecordField::As::kFloats)
        static_cast<float*>(into)[i] = static_cast<float>(field.padding);
      else
        static_cast<int64_t*>(into)[i] = static_cast<int64_t>(field.padding);
    return {};
  }

  RecordIndex index_;
  std::vector<RecordField> fields_;
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

// The byte strings of one feature. `counts`: no array of numbers counts the memory of the records.
class RecordTexts final : public StringSource {
 public:
  RecordTexts(std::shared_ptr<RecordRows> rows, bool counts) : rows_(std::move(rows)), counts_(counts) {}

  Bytes bytes() const override { return counts_ ? rows_->bytes() : 0; }
  Bytes longest() const override { return rows_->longest(); }
  Status read(size_t field, int64_t record, int64_t number, std::string& into) override {
    return rows_->read_text(field, record, number, into);
  }
  Result<std::string> digest(size_t field) override { return rows_->digest(field); }

 private:
  const std::shared_ptr<RecordRows> rows_;
  const bool counts_;
};

FoundArray found_array(const std::string& path, const RecordField& field, size_t number,
                       std::shared_ptr<RecordRows> rows, int64_t records, const std::shared_ptr<StringSource>& texts) {
  FoundArray array;
  array.label = fmt::format("{}: {}", path, field.feature);
  array.dtype = field.dtype;
  array.dims = {records};
  array.dims.insert(array.dims.end(), field.dims.begin(), field.dims.end());
  if (field.as == RecordField::As::kText)
    array.strings = texts;
  else
    array.rows = std::move(rows);
  array.field = number;
  return array;
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
  PLIMSOLL_ASSIGN(const RecordSchema schema, read_schema(index, path));
  PLIMSOLL_ASSIGN(auto fields, choose_fields(path, schema, spec));
  const auto rows = std::make_shared<RecordRows>(std::move(index), fields);
  PLIMSOLL_TRY(rows->look(skip));
  const int64_t records = rows->index().records(), dropped = rows->index().dropped();
  if (records == 0) return fail(ErrorCode::kDataEmpty, path + ": every record is damaged");
  if (spec.read.note) spec.read.note(fmt::format("{}: {} records; {}", path, records, schema.text()));
  PLIMSOLL_TRY(tell_left_out(spec.read, path, dropped, "records"));
  FoundArrays arrays;
  const bool all_texts = std::all_of(fields.begin(), fields.end(),
                                     [](const RecordField& field) { return field.as == RecordField::As::kText; });
  const auto texts = std::make_shared<RecordTexts>(rows, all_texts);
  for (size_t i = 0; i < fields.size(); ++i) {
    FoundArray array = found_array(path, fields[i], i, rows, records, texts);
    if (i < spec.inputs.size())
      arrays.inputs.push_back(std::move(array));
    else if (i < spec.inputs.size() + spec.outputs.size())
      arrays.targets.push_back(std::move(array));
    else
      arrays.weights.emplace_back(std::move(array));
  }
  return arrays;
}

Result<std::vector<int64_t>> record_sample_shape(const std::vector<std::string>& files, const PortSpec& input,
                                                 bool only, const DataSpec& with) {
  PLIMSOLL_ASSIGN(const RecordIndex first, RecordIndex::build({files[0]}, with.read.skip_bad_records));
  PLIMSOLL_ASSIGN(const RecordSchema schema, read_schema(first, files[0]));
  PLIMSOLL_ASSIGN(RecordField field, input_field(files[0], schema, with, input, only, std::nullopt));
  if (!field.variable) return field.dims;
  PLIMSOLL_ASSIGN(RecordIndex all, RecordIndex::build(files, with.read.skip_bad_records));
  RecordRows rows(std::move(all), {field});
  PLIMSOLL_ASSIGN(const int64_t longest, rows.longest_list(0, with.read.skip_bad_records));
  int64_t step = 1;
  for (size_t i = 1; i < field.dims.size(); ++i) step *= field.dims[i];
  field.dims[0] = std::max<int64_t>(1, longest / std::max<int64_t>(step, 1));
  return field.dims;
}

}  // namespace plimsoll::engine
