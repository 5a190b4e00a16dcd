#include "data/text_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/digest.h"
#include "data/folder_labels.h"
#include "data/numpy_shuffle.h"
#include "formats/image/folder.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

// The paths and labels of the files, and the order in which they are records.
struct TextFiles {
  ClassFolder folder;
  std::vector<uint32_t> order;
  Bytes longest = 0;

  std::string path_of(int64_t record) const {
    return fmt::format("{}/{}", folder.path, folder.files[order[static_cast<size_t>(record)]]);
  }
  Bytes bytes() const {
    return folder.files.bytes() + static_cast<Bytes>(folder.labels.capacity() * sizeof(int32_t)) +
           static_cast<Bytes>(order.capacity() * sizeof(uint32_t));
  }
  // Of the names, and with `sizes` of the sizes of the files.
  Result<std::string> digest(bool sizes) const {
    Digest digest;
    for (size_t i = 0; i < order.size(); ++i) {
      digest.add(bytes_of_text(folder.files[order[i]]));
      if (!sizes) continue;
      PLIMSOLL_ASSIGN(const File opened, File::open_read(path_of(static_cast<int64_t>(i))));
      const int64_t size = opened.size();
      digest.add(bytes_of(size));
    }
    return digest.text();
  }
};

class FileTexts final : public StringSource {
 public:
  explicit FileTexts(std::shared_ptr<const TextFiles> files) : files_(std::move(files)) {}

  Bytes bytes() const override { return files_->bytes(); }
  Bytes longest() const override { return files_->longest; }

  Status read(size_t, int64_t record, int64_t, std::string& into) override {
    PLIMSOLL_ASSIGN(const File file, File::open_read(files_->path_of(record)));
    if (file.size() > files_->longest)
      return fail(ErrorCode::kBadDataFile, file.path() + ": it grew while it was read");
    into.resize(static_cast<size_t>(file.size()));
    return file.pread_exact(0, std::as_writable_bytes(std::span(into)));
  }

  Result<std::string> digest(size_t) override { return files_->digest(true); }

 private:
  const std::shared_ptr<const TextFiles> files_;
};

class FileLabels final : public RowSource {
 public:
  FileLabels(std::shared_ptr<const TextFiles> files, LabelMode mode) : files_(std::move(files)), mode_(mode) {}

  Bytes bytes() const override { return 0; }  // the texts count the list

  Status read(size_t, int64_t record, void* into) override {
    const uint32_t file = files_->order[static_cast<size_t>(record)];
    write_class(files_->folder.labels[file], mode_, static_cast<int64_t>(files_->folder.classes.size()), into);
    return {};
  }

  Result<std::string> digest(size_t) override { return files_->digest(false); }

 private:
  const std::shared_ptr<const TextFiles> files_;
  const LabelMode mode_;
};

// Finds the size of the largest file. With `skip`, leaves out files that cannot be read; returns how many.
Result<int64_t> look(TextFiles& files, bool skip) {
  std::vector<uint32_t> good;
  for (size_t i = 0; i < files.order.size(); ++i) {
    const auto opened = File::open_read(files.path_of(static_cast<int64_t>(i)));
    const bool fits = opened && opened->size() <= limits::kTextBytes;
    if (fits) {
      files.longest = std::max<Bytes>(files.longest, opened->size());
      good.push_back(files.order[i]);
    } else if (!skip) {
      if (!opened) return fail(opened.error());
      Error error{ErrorCode::kBadDataFile,
                  fmt::format("{}: a text of {}; {} is the limit", opened->path(), format_bytes(opened->size()),
                              format_bytes(limits::kTextBytes)),
                  {},
                  {}};
      return fail(std::move(error.remedy("--on-bad-record skip   leaves it out")));
    }
  }
  const auto bad = static_cast<int64_t>(files.order.size() - good.size());
  files.order = std::move(good);
  return bad;
}

}  // namespace

Result<FoundArrays> open_text_folder(const std::string& path, const DataSpec& spec) {
  if (spec.inputs.size() != 1)
    return fail(ErrorCode::kUsage,
                fmt::format("--data {}: a folder of texts needs a model with one input; this one has {}", path,
                            spec.inputs.size()));
  const auto files = std::make_shared<TextFiles>();
  PLIMSOLL_ASSIGN(files->folder, list_texts(path, spec.needs_targets));
  if (files->folder.files.size() > UINT32_MAX)
    return fail(ErrorCode::kUsage, fmt::format("--data {}: it has more than 2^32 files", path));
  LabelMode mode = LabelMode::kInteger;
  if (spec.needs_targets) {
    PLIMSOLL_ASSIGN(mode, label_mode(path, spec, files->folder.classes, "text"));
  }
  files->order.resize(files->folder.files.size());
  std::iota(files->order.begin(), files->order.end(), 0U);
  if (spec.split_seed) {
    PLIMSOLL_ASSIGN(const uint32_t seed, seed_of_split(*spec.split_seed));
    files->order = numpy_shuffle(static_cast<uint32_t>(files->order.size()), seed);
  }
  PLIMSOLL_ASSIGN(const int64_t bad, look(*files, spec.read.skip_bad_records));
  PLIMSOLL_TRY(tell_left_out(spec.read, path, bad, "texts"));
  const auto records = static_cast<int64_t>(files->order.size());
  if (records == 0) return fail(Error{ErrorCode::kDataEmpty, fmt::format("{}: no text can be read", path), {}, {}});
  const auto classes = static_cast<int64_t>(files->folder.classes.size());
  FoundArrays arrays;
  arrays.folder = true;
  FoundArray texts;
  texts.label = path;
  texts.dims = {records};
  texts.strings = std::make_shared<FileTexts>(files);
  arrays.inputs.push_back(std::move(texts));
  if (!spec.needs_targets) return arrays;
  arrays.targets.push_back(
      array_of_classes(path, mode, classes, records, std::make_shared<FileLabels>(files, mode), 0));
  return arrays;
}

}  // namespace plimsoll::engine
