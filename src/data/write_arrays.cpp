#include "data/write_arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/printable.h"
#include "data/checks.h"
#include "data/string_cells.h"
#include "formats/file/file.h"
#include "formats/npy/npy.h"
#include "formats/tfrecord/write.h"
#include "formats/zip/zip_writer.h"

namespace plimsoll::engine {
namespace {

using Files = Result<std::vector<std::string>>;

int64_t text_width(const StreamedArray& array) {
  return array.sample.back() - static_cast<int64_t>(sizeof(int64_t));
}

// The header of an .npy, and the bytes of its elements.
struct NpyPlan {
  std::string header;
  Bytes bytes = 0;
};
NpyPlan npy_plan(const StreamedArray& array) {
  std::vector<int64_t> dims{array.rows};
  dims.insert(dims.end(), array.sample.begin(), array.sample.end());
  if (!array.text) return {npy_header(array.dtype, dims), array.rows * array.row_bytes()};
  dims.pop_back();
  return {npy_text_header(text_width(array), dims), array.rows * array.strings() * text_width(array)};
}

class Copy {
 public:
  Copy(ArrayStream& from, const WriteOptions& options, int64_t passes_over) : from_(from), options_(options) {
    for (const StreamedArray& one : from.arrays()) total_ += one.rows;
    if (passes_over == 1) total_ = from.arrays()[0].rows;
  }

  // Passes the rows of these arrays on, and counts them.
  Status rows(std::span<const size_t> which, const RowSink& sink) {
    return from_.stream(which, [&](int64_t first, int64_t count, RowBlock block) -> Status {
      PLIMSOLL_TRY(sink(first, count, block));
      done_ += count;
      return options_.progress ? options_.progress(done_, total_) : Status();
    });
  }

  // The rows of an array as .npy holds them.
  Status array(size_t i, const Sink& sink) {
    const StreamedArray& array = from_.arrays()[i];
    if (!array.text) return rows(std::array{i}, [&](int64_t, int64_t, RowBlock block) { return sink(block[0]); });
    std::string padded;
    return rows(std::array{i}, [&](int64_t, int64_t, RowBlock block) {
      return for_cells(array, block[0], [&](std::string_view text) -> Status {
        if (!text.empty() && text.back() == '\0')
          return fail(Error{ErrorCode::kBadDataFile,
                            fmt::format("{}: a string ends with a zero byte, which NumPy's strings cannot", array.name),
                            {},
                            {"OUT.tfrecord"}});
        padded.assign(text);
        padded.resize(static_cast<size_t>(text_width(array)), '\0');
        return sink(bytes_of_text(padded));
      });
    });
  }

 private:
  ArrayStream& from_;
  const WriteOptions& options_;
  int64_t done_ = 0, total_ = 0;
};

std::vector<int64_t> whole_dims(const StreamedArray& array) {
  std::vector<int64_t> dims{array.rows};
  dims.insert(dims.end(), array.sample.begin(), array.sample.end());
  return dims;
}

Bytes all_bytes(const ArrayStream& from) {
  Bytes bytes = 0;
  for (const StreamedArray& one : from.arrays()) bytes += one.rows * one.row_bytes();
  return bytes;
}

Files write_npys(ArrayStream& from, const std::vector<std::string>& paths, const WriteOptions& options) {
  if (paths.size() != from.arrays().size()) {
    std::vector<std::string> names;
    for (const auto& one : from.arrays()) names.push_back(one.name);
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("{} names {} files, but there are {} arrays: {}", fmt::join(paths, ","), paths.size(),
                                  names.size(), fmt::join(names, ", ")),
                      {},
                      {"OUT.npz   holds all of them"}});
  }
  Copy copy(from, options, 0);
  std::vector<AtomicFile> files;
  for (size_t i = 0; i < paths.size(); ++i) {
    const NpyPlan plan = npy_plan(from.arrays()[i]);
    PLIMSOLL_ASSIGN(auto file, AtomicFile::create(paths[i]));
    PLIMSOLL_TRY(file.reserve(static_cast<int64_t>(plan.header.size()) + plan.bytes));
    PLIMSOLL_TRY(file.write(bytes_of_text(plan.header)));
    PLIMSOLL_TRY(copy.array(i, [&](std::span<const std::byte> bytes) { return file.write(bytes); }));
    files.push_back(std::move(file));
  }
  for (AtomicFile& file : files) PLIMSOLL_TRY(file.commit());
  return paths;
}

Files write_npz(ArrayStream& from, const std::string& path, const WriteOptions& options) {
  PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
  ZipWriter zip(file);
  Copy copy(from, options, 0);
  for (size_t i = 0; i < from.arrays().size(); ++i) {
    const StreamedArray& array = from.arrays()[i];
    const NpyPlan plan = npy_plan(array);
    const auto bytes = static_cast<int64_t>(plan.header.size()) + plan.bytes;
    const auto write_entry = [&](const Sink& sink) -> Status {
      PLIMSOLL_TRY(sink(bytes_of_text(plan.header)));
      return copy.array(i, sink);
    };
    PLIMSOLL_TRY(zip.add(array.name + ".npy", bytes, write_entry));
  }
  PLIMSOLL_TRY(zip.finish());
  PLIMSOLL_TRY(file.commit());
  return std::vector<std::string>{path};
}

std::string safetensors_name(DType dtype) {
  std::string name(name_of(dtype));
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

Files write_safetensors(ArrayStream& from, const std::string& path, const WriteOptions& options) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  int64_t begin = 0;
  for (const StreamedArray& array : from.arrays()) {
    if (array.text)
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("{}: '{}' holds strings, and safetensors has no strings", path, array.name),
                        {},
                        {"OUT.tfrecord, OUT.csv or OUT.npz"}});
    const int64_t end = begin + array.rows * array.row_bytes();
    header[array.name] = {
        {"dtype", safetensors_name(array.dtype)}, {"shape", whole_dims(array)}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
  const auto length = static_cast<uint64_t>(text.size());
  PLIMSOLL_TRY(file.write(bytes_of(length)));
  PLIMSOLL_TRY(file.write(bytes_of_text(text)));
  Copy copy(from, options, 0);
  for (size_t i = 0; i < from.arrays().size(); ++i)
    PLIMSOLL_TRY(copy.array(i, [&](std::span<const std::byte> bytes) { return file.write(bytes); }));
  PLIMSOLL_TRY(file.commit());
  return std::vector<std::string>{path};
}

// All arrays side by side, which needs equal lengths.
Result<std::vector<size_t>> side_by_side(const ArrayStream& from, const std::string& path) {
  std::vector<size_t> all(from.arrays().size());
  std::iota(all.begin(), all.end(), size_t{0});
  const StreamedArray& first = from.arrays()[0];
  for (const StreamedArray& one : from.arrays())
    if (one.rows != first.rows)
      return fail(Error{ErrorCode::kDataLengths,
                        fmt::format("{}: a record holds one row of each array, but '{}' holds {} rows and '{}' {}",
                                    path, first.name, first.rows, one.name, one.rows),
                        {},
                        {"FILE:x_train,y_train   chooses the arrays of a file"}});
  return all;
}

std::string shard_path(const std::string& path, int64_t shard, int64_t shards) {
  if (shards == 1) return path;
  const size_t dot = path.rfind(".tfrecord");
  return fmt::format("{}-{:05}-of-{:05}{}", path.substr(0, dot), shard, shards, path.substr(dot));
}

Files write_records(ArrayStream& from, const std::string& path, const WriteOptions& options) {
  PLIMSOLL_ASSIGN(const auto all, side_by_side(from, path));
  const int64_t rows = from.arrays()[0].rows;
  constexpr int64_t kMostShards = 4096;  // all of them are open until the end
  if (options.shards > std::min(rows, kMostShards))
    return fail(
        Error{ErrorCode::kUsage,
              fmt::format("--shards {}: there are {} rows, and at most {} files", options.shards, rows, kMostShards),
              {},
              {}});
  std::vector<AtomicFile> files;
  std::vector<std::string> paths;
  std::vector<std::byte> record, waiting;
  std::vector<std::string_view> texts;
  const auto flush = [&]() -> Status {
    const Status written = files.back().write(waiting);
    waiting.clear();
    return written;
  };
  Copy copy(from, options, 1);
  const auto write_rows = [&](int64_t first, int64_t count, RowBlock block) -> Status {
    for (int64_t i = 0; i < count; ++i) {
      // Shard s holds the rows from s * rows / shards on.
      const auto shards = static_cast<int64_t>(files.size());
      if (first + i >= shards * rows / options.shards && shards < options.shards) {
        if (!waiting.empty()) PLIMSOLL_TRY(flush());
        paths.push_back(shard_path(path, shards, options.shards));
        PLIMSOLL_ASSIGN(auto file, AtomicFile::create(paths.back()));
        files.push_back(std::move(file));
      }
      ExampleWriter example(record);
      for (size_t k = 0; k < all.size(); ++k) {
        const StreamedArray& array = from.arrays()[all[k]];
        const auto row =
            block[k].subspan(static_cast<size_t>(i * array.row_bytes()), static_cast<size_t>(array.row_bytes()));
        if (array.text) {
          texts.clear();
          PLIMSOLL_TRY(for_cells(array, row, [&](std::string_view text) -> Status {
            texts.push_back(text);
            return {};
          }));
          example.byte_strings(array.name, texts);
        } else if (is_floating(array.dtype) && array.dtype != DType::kFloat64)
          example.floats(array.name, array.elements(),
                         [&](int64_t e) { return static_cast<float>(element(array.dtype, row.data(), e)); });
        else if (array.dtype == DType::kFloat64 || (array.dtype == DType::kUInt8 && array.elements() > 1))
          example.bytes(array.name, row);
        else
          example.integers(array.name, array.elements(),
                           [&](int64_t e) { return integer_element(array.dtype, row.data(), e); });
      }
      append_record(waiting, example.finish());
      if (static_cast<Bytes>(waiting.size()) >= kStreamBuffer) PLIMSOLL_TRY(flush());
    }
    return {};
  };
  PLIMSOLL_TRY(copy.rows(all, write_rows));
  PLIMSOLL_TRY(flush());
  for (AtomicFile& file : files) PLIMSOLL_TRY(file.commit());
  return paths;
}

std::string csv_field(DType dtype, const std::byte* row, int64_t i) {
  if (dtype == DType::kFloat64) return fmt::format("{}", element(dtype, row, i));
  if (is_floating(dtype)) return fmt::format("{}", static_cast<float>(element(dtype, row, i)));
  return fmt::format("{}", integer_element(dtype, row, i));
}

// In quotes, in which a quote is doubled.
void append_quoted(std::string_view text, std::string& line) {
  line += '"';
  for (const char c : text) {
    if (c == '"') line += '"';
    line += c;
  }
  line += '"';
}

Files write_csv(ArrayStream& from, const std::string& path, const WriteOptions& options) {
  PLIMSOLL_ASSIGN(const auto all, side_by_side(from, path));
  constexpr int64_t kMostColumns = 1 << 20;
  int64_t columns = 0;
  std::string line;
  for (const StreamedArray& array : from.arrays()) {
    const int64_t fields = array.text ? array.strings() : array.elements();
    columns += fields;
    if (columns > kMostColumns)
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("{}: a line would have more than {} columns", path, kMostColumns),
                        {},
                        {"OUT.npz"}});
    // A reader takes a column with one of these names as the label.
    const std::string name = array.name == "y" ? "label" : array.name;
    for (int64_t i = 0; i < fields; ++i)
      line += fmt::format("{}{}{}", line.empty() ? "" : ",", name, fields == 1 ? "" : fmt::format("_{}", i));
  }
  PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
  PLIMSOLL_TRY(file.write(bytes_of_text(line + "\n")));
  Copy copy(from, options, 1);
  const auto write_lines = [&](int64_t, int64_t count, RowBlock block) -> Status {
    line.clear();
    for (int64_t i = 0; i < count; ++i) {
      for (size_t k = 0; k < all.size(); ++k) {
        const StreamedArray& array = from.arrays()[all[k]];
        if (array.text) {
          bool first = k == 0;
          const auto row =
              block[k].subspan(static_cast<size_t>(i * array.row_bytes()), static_cast<size_t>(array.row_bytes()));
          PLIMSOLL_TRY(for_cells(array, row, [&](std::string_view text) -> Status {
            line += std::exchange(first, false) ? "" : ",";
            append_quoted(text, line);
            return {};
          }));
          continue;
        }
        for (int64_t e = 0; e < array.elements(); ++e)
          line += (k + static_cast<size_t>(e) == 0 ? "" : ",") +
                  csv_field(array.dtype, block[k].data() + i * array.row_bytes(), e);
      }
      line += '\n';
    }
    return file.write(bytes_of_text(line));
  };
  PLIMSOLL_TRY(copy.rows(all, write_lines));
  PLIMSOLL_TRY(file.commit());
  return std::vector<std::string>{path};
}

using Writer = Files (*)(ArrayStream&, const std::string&, const WriteOptions&);

Writer writer_of(const std::string& target) {
  if (target.ends_with(".npz")) return write_npz;
  if (target.ends_with(".safetensors")) return write_safetensors;
  if (target.ends_with(".tfrecord")) return write_records;
  if (target.ends_with(".csv")) return write_csv;
  return nullptr;
}

std::vector<std::string> parts_of(const std::string& target) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= target.size();) {
    const size_t end = std::min(target.find(',', begin), target.size());
    parts.push_back(target.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

Status check_target(const std::string& target) {
  if (writer_of(target) != nullptr) return {};
  const auto parts = parts_of(target);
  for (size_t i = 0; i < parts.size(); ++i)
    if (std::find(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i), parts[i]) !=
        parts.begin() + static_cast<std::ptrdiff_t>(i))
      return fail(Error{ErrorCode::kUsage, fmt::format("{}: the file {} is named twice", target, parts[i]), {}, {}});
  if (std::all_of(parts.begin(), parts.end(),
                  [](const std::string& one) { return one.size() > 4 && one.ends_with(".npy"); }))
    return {};
  return fail(Error{ErrorCode::kUsage,
                    fmt::format("{}: its ending does not name a format that can be written", target),
                    {"formats: OUT.npz, X.npy,Y.npy, OUT.safetensors, OUT.tfrecord, OUT.csv"},
                    {}});
}

Files write_arrays(ArrayStream& from, const std::string& target, const WriteOptions& options) {
  PLIMSOLL_TRY(check_target(target));
  if (const Writer writer = writer_of(target)) {
    if (!target.ends_with(".csv")) PLIMSOLL_TRY(check_free_space(target, all_bytes(from)));
    return writer(from, target, options);
  }
  return write_npys(from, parts_of(target), options);
}

}  // namespace plimsoll::engine
