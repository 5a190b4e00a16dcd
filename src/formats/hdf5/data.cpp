// HDF5 files as data: datasets by path. A dataset whose elements lie in one piece is read in place; one in chunks is
// unpacked once into the cache, because a random row of it costs as much as its chunk.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "formats/array_formats.h"
#include "formats/file/cache.h"
#include "formats/hdf5/cursor.h"
#include "formats/hdf5/elements.h"
#include "formats/hdf5/impl.h"
#include "formats/hdf5/weights_file.h"
#include "formats/limits.h"
#include "formats/npy/npy.h"

namespace plimsoll::engine {
namespace {

// Errors of the reader speak of weights.
template <typename T>
Result<T> as_data(Result<T> result) {
  if (!result && result.error().code == ErrorCode::kBadWeightsFile) result.error().code = ErrorCode::kBadDataFile;
  return result;
}

Result<WeightsFile> open_file(const std::string& path) {
  return as_data(WeightsFile::open(path, path));
}

Result<std::vector<std::string>> hdf5_names(const std::string& path) {
  PLIMSOLL_ASSIGN(const WeightsFile file, open_file(path));
  std::vector<std::string> names;
  for (const Dataset& dataset : file.datasets()) names.push_back(dataset.path);
  return names;
}

Error unreadable(const std::string& path, const Dataset& dataset) {
  Error error{ErrorCode::kBadDataFile,
              fmt::format("{}: the dataset /{} cannot be read: {}", path, dataset.path, dataset.unreadable),
              {},
              {}};
  if (dataset.unreadable == "text")
    return error.remedy(
        "create_dataset(name, data=texts)   without compression, or np.array(texts).astype('S') with it");
  return error.remedy("numbers and text are read: bool, integers, float16, float32, float64, strings");
}

bool lies_as_read(const Hdf5Dataset& stored) {
  if (stored.element.fixed_text) return stored.storage == Hdf5Storage::kContiguous && stored.is_allocated();
  return stored.storage == Hdf5Storage::kContiguous && stored.is_allocated() && stored.element.dtype &&
         stored.element.bytes == size_of(*stored.element.dtype) &&
         (!stored.element.big_endian || stored.element.bytes == 1);
}

// Writes the elements as .npy. Pieces come in the order of the file.
Status unpack(Hdf5Reader& reader, const Hdf5Dataset& stored, const std::string& path) {
  PLIMSOLL_ASSIGN(AtomicFile file, AtomicFile::create(path));
  const bool text = stored.element.fixed_text;
  const std::string header =
      text ? npy_text_header(stored.element.bytes, stored.shape) : npy_header(*stored.element.dtype, stored.shape);
  const auto start = static_cast<int64_t>(header.size());
  if (text) {
    PLIMSOLL_TRY(file.reserve(start + stored.bytes));
    PLIMSOLL_TRY(file.write(bytes_of_text(header)));
    PLIMSOLL_TRY(read_elements(reader, stored, [&](int64_t offset, std::span<const std::byte> piece) {
      return file.write_at(start + offset, piece);
    }));
    PLIMSOLL_TRY(file.skip_to(start + stored.bytes));
    return file.commit();
  }
  const DType dtype = *stored.element.dtype;
  const int64_t bytes = stored.bytes / stored.element.bytes * size_of(dtype);
  PLIMSOLL_TRY(file.reserve(start + bytes));
  PLIMSOLL_TRY(file.write(bytes_of_text(header)));
  std::vector<std::byte> converted;
  const auto place = [&](int64_t offset, std::span<const std::byte> piece) -> Status {
    const int64_t first = offset / stored.element.bytes;
    converted.resize(piece.size() / static_cast<size_t>(stored.element.bytes) * static_cast<size_t>(size_of(dtype)));
    convert_elements(stored.element, piece, dtype, converted.data());
    return file.write_at(start + first * size_of(dtype), converted);
  };
  PLIMSOLL_TRY(read_elements(reader, stored, place));
  PLIMSOLL_TRY(file.skip_to(start + bytes));
  return file.commit();
}

// Calls use(text) for all texts of variable length. Each is in a global heap, which is read once per run of texts.
Status for_texts(const Hdf5Region& region, const Hdf5Dataset& stored,
                 const std::function<Status(std::string_view)>& use) {
  Hdf5Reader reader(region);
  const auto each = static_cast<size_t>(stored.element.bytes);
  std::vector<std::byte> places(each * 1024);
  for (int64_t done = 0; done < stored.bytes;) {
    const auto piece =
        std::span(places).first(static_cast<size_t>(std::min<int64_t>(stored.bytes - done, std::ssize(places))));
    PLIMSOLL_TRY(reader.elements(stored.address + static_cast<uint64_t>(done), piece));
    for (size_t at = 0; at < piece.size(); at += each) {
      Hdf5Cursor cursor(piece.subspan(at, each));
      const uint64_t bytes = cursor.u32(), heap = region.address(cursor), index = cursor.u32();
      if (!cursor.ok()) return reader.damaged("the place of a text is truncated");
      std::string_view text;
      if (bytes > 0) {
        PLIMSOLL_ASSIGN(text, reader.heap_text(heap, index));
      }
      PLIMSOLL_TRY(use(text.substr(0, bytes)));
    }
    done += static_cast<int64_t>(piece.size());
  }
  return {};
}

// Writes texts of variable length as .npy of dtype S, which is as wide as the longest of them.
Status unpack_texts(const Hdf5Region& region, const Hdf5Dataset& stored, const std::string& path) {
  constexpr int64_t kMostGrowth = 64;
  size_t longest = 1, total = 0;
  PLIMSOLL_TRY(for_texts(region, stored, [&](std::string_view text) -> Status {
    longest = std::max(longest, text.size());
    total += text.size();
    return {};
  }));
  const int64_t width = static_cast<int64_t>(longest), count = stored.bytes / stored.element.bytes;
  const auto bytes = checked_multiply(width, count);
  if (!bytes || *bytes > kMostGrowth * (static_cast<int64_t>(total) + kMiB))
    return fail(Error{ErrorCode::kBadDataFile,
                      fmt::format("{}: {} texts, of which the longest has {} bytes, and all together {}", region.label,
                                  count, width, total),
                      {"they are unpacked to one length, which takes too much room"},
                      {"plimsoll's other formats of texts: a folder, TFRecord, CSV"}});
  PLIMSOLL_ASSIGN(AtomicFile file, AtomicFile::create(path));
  const std::string header = npy_text_header(width, stored.shape);
  PLIMSOLL_TRY(file.reserve(static_cast<int64_t>(header.size()) + *bytes));
  PLIMSOLL_TRY(file.write(bytes_of_text(header)));
  std::string padded, waiting;
  PLIMSOLL_TRY(for_texts(region, stored, [&](std::string_view text) -> Status {
    padded.assign(text);
    padded.resize(longest, '\0');
    waiting += padded;
    if (static_cast<Bytes>(waiting.size()) < kStreamBuffer) return {};
    const Status written = file.write(bytes_of_text(waiting));
    waiting.clear();
    return written;
  }));
  PLIMSOLL_TRY(file.write(bytes_of_text(waiting)));
  return file.commit();
}

Result<ArraySource> open_hdf5(const std::string& path, const std::string& name) {
  PLIMSOLL_ASSIGN(const WeightsFile listed, open_file(path));
  const Dataset* dataset = listed.find(name);
  if (dataset == nullptr) {
    Error error{ErrorCode::kBadDataFile, fmt::format("{} has no dataset /{}", path, name), {}, {}};
    for (const Dataset& other : listed.datasets()) error.fact("it has /" + other.path);
    return fail(std::move(error));
  }
  const bool text = dataset->unreadable == "text";
  if (!dataset->unreadable.empty() && !text) return fail(unreadable(path, *dataset));
  const auto& region = listed.region();
  Hdf5Reader reader(region);
  const std::string label = fmt::format("{}:/{}", path, name);
  PLIMSOLL_ASSIGN(const auto header, as_data(read_object_header(reader, dataset->address)));
  PLIMSOLL_ASSIGN(const Hdf5Dataset stored, as_data(describe_dataset(reader, header)));
  const bool variable = stored.element.variable_text;
  if (text && (!stored.unreadable.empty() || stored.element.bytes > limits::kTextBytes ||
               (variable && (stored.storage != Hdf5Storage::kContiguous || !stored.is_allocated()))))
    return fail(unreadable(path, *dataset));
  const auto at = region.offset + region.base + static_cast<int64_t>(stored.address);
  if (lies_as_read(stored) && text) {
    ArraySource array{label, path, at, DType::kUInt8, stored.shape, TextKind::kBytes};
    array.dims.push_back(stored.element.bytes);
    return array;
  }
  if (lies_as_read(stored)) return ArraySource{label, path, at, *stored.element.dtype, stored.shape, {}};
  const auto fill = [&](const std::string& target) -> Status {
    auto unpacked = variable ? unpack_texts(region, stored, target) : unpack(reader, stored, target);
    if (!unpacked && unpacked.error().code == ErrorCode::kBadWeightsFile)
      unpacked.error().code = ErrorCode::kBadDataFile;
    return unpacked;
  };
  PLIMSOLL_ASSIGN(const std::string cached, cached_file(region.file, name, fill));
  PLIMSOLL_ASSIGN(const File unpacked, File::open_read(cached));
  return read_npy(unpacked, 0, unpacked.size(), label);
}

bool is_packed(const std::string& path, const std::string& name) {
  const auto file = open_file(path);
  const Dataset* dataset = file ? file->find(name) : nullptr;
  if (dataset == nullptr || (!dataset->unreadable.empty() && dataset->unreadable != "text")) return true;
  Hdf5Reader reader(file->region());
  const auto header = read_object_header(reader, dataset->address);
  if (!header) return true;
  const auto stored = describe_dataset(reader, *header);
  return !stored || !lies_as_read(*stored);
}

}  // namespace

extern const ArrayFormat kHdf5Format;
constinit const ArrayFormat kHdf5Format = {
    .name = "HDF5",
    .endings = ".h5 .hdf5",
    .begins = [](std::string_view start) { return start.starts_with("\x89HDF\r\n\x1a\n"); },
    .help_pair = "f.h5:/x,/y",
    .help_one = "f.h5:/x",
    .names = hdf5_names,
    .open_named = open_hdf5,
    .packed = is_packed,
    .write_pair = "h5py.File(file, 'w').create_dataset('x', data=inputs)   and 'y'",
    .write_named = "h5py.File(file, 'w').create_dataset(name, data=array)   for each array",
};

}  // namespace plimsoll::engine
