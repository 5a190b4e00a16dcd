// Hugging Face's .safetensors (https://huggingface.co/docs/safetensors). Eight bytes give the length of the header. The
// header is JSON with the type, shape and offsets of each array. The arrays follow, little-endian and row-major, and
// are read in place. Opening a file holds its header in memory: at most limits::kConfigBytes and what parse_json
// allows.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "formats/array_formats.h"
#include "formats/file/file.h"
#include "formats/json/parse.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr std::string_view kMetadata = "__metadata__";  // a key with texts about the file; not an array

struct ElementType {
  std::string_view name;
  DType dtype;
};
constexpr std::array<ElementType, 13> kElementTypes = {{{"F32", DType::kFloat32},
                                                        {"F64", DType::kFloat64},
                                                        {"F16", DType::kFloat16},
                                                        {"BF16", DType::kBFloat16},
                                                        {"I8", DType::kInt8},
                                                        {"I16", DType::kInt16},
                                                        {"I32", DType::kInt32},
                                                        {"I64", DType::kInt64},
                                                        {"U8", DType::kUInt8},
                                                        {"U16", DType::kUInt16},
                                                        {"U32", DType::kUInt32},
                                                        {"U64", DType::kUInt64},
                                                        {"BOOL", DType::kBool}}};

struct Container {
  Json arrays;             // name -> {dtype, shape, data_offsets}
  int64_t data_begin = 0;  // the position that data_offsets count from
  int64_t data_bytes = 0;
};

Error bad_tensors(const std::string& label, std::string_view what) {
  return Error{ErrorCode::kBadDataFile, fmt::format("{}: {}", label, what), {}, {}};
}

Result<Container> read_container(const std::string& path) {
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  std::array<unsigned char, kLengthBytes> start{};
  if (file.size() < kLengthBytes)
    return fail(bad_tensors(path, fmt::format("it has {} bytes, too few for a .safetensors file", file.size())));
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(start))));
  uint64_t length = 0;
  for (size_t i = 0; i < start.size(); ++i) length |= uint64_t{start[i]} << (8 * i);
  const int64_t after = file.size() - kLengthBytes;
  if (length > static_cast<uint64_t>(after))
    return fail(bad_tensors(
        path, fmt::format("it ends inside its header: {} bytes follow the length, expected {}", after, length)));
  if (length > static_cast<uint64_t>(limits::kConfigBytes))
    return fail(
        bad_tensors(path, fmt::format("its header has {} bytes, expected at most {}", length, limits::kConfigBytes)));
  std::string text(static_cast<size_t>(length), '\0');
  PLIMSOLL_TRY(file.pread_exact(kLengthBytes, std::as_writable_bytes(std::span(text))));
  Container container{{}, kLengthBytes + static_cast<int64_t>(length), after - static_cast<int64_t>(length)};
  PLIMSOLL_ASSIGN(container.arrays, parse_json(text, path + ": header", ErrorCode::kBadDataFile));
  if (!container.arrays.is_object()) return fail(bad_tensors(path, "its header is not a JSON object of arrays"));
  container.arrays.erase(std::string(kMetadata));
  return container;
}

// Returns the list's integers; nullopt unless all are integers from 0 up and the list has `size` elements (if given).
std::optional<std::vector<int64_t>> sizes_of(const Json& array, const char* key, std::optional<size_t> size = {}) {
  const auto found = array.find(key);
  if (found == array.end() || !found->is_array() || (size && found->size() != *size)) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const Json& one : *found) {
    if (!one.is_number_unsigned() || one.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    sizes.push_back(static_cast<int64_t>(one.get<uint64_t>()));
  }
  return sizes;
}

Result<DType> dtype_of_tensor(const std::string& label, const Json& array) {
  const auto found = array.find("dtype");
  const std::string name = found != array.end() && found->is_string() ? found->get<std::string>() : "";
  for (const ElementType& type : kElementTypes)
    if (type.name == name) return type.dtype;
  auto error = bad_tensors(label, fmt::format("the array has dtype '{}', which cannot be used for training", name));
  error.fact("expected: BOOL, I8 to I64, U8 to U64, F16, BF16, F32 or F64");
  return fail(error.remedy("save_file({name: array.astype('float32'), ...}, file)"));
}

Result<std::vector<std::string>> safetensors_names(const std::string& path) {
  PLIMSOLL_ASSIGN(const Container container, read_container(path));
  std::vector<std::string> names;
  for (const auto& [name, ignored] : container.arrays.items()) names.push_back(name);
  return names;
}

Result<ArraySource> open_safetensors(const std::string& path, const std::string& name) {
  PLIMSOLL_ASSIGN(const Container container, read_container(path));
  const std::string label = fmt::format("{}: {}", path, name);
  const auto found = container.arrays.find(name);
  if (found == container.arrays.end() || !found->is_object())
    return fail(bad_tensors(label, "the header has no array with this name"));
  ArraySource source{label, path, 0, DType::kFloat32, {}};
  PLIMSOLL_ASSIGN(source.dtype, dtype_of_tensor(label, *found));
  auto dims = sizes_of(*found, "shape");
  const auto range = sizes_of(*found, "data_offsets", 2);
  if (!dims || !range)
    return fail(bad_tensors(label, "its header entry needs a shape and data_offsets with two integers, none negative"));
  source.dims = std::move(*dims);
  const auto bytes = array_bytes(source.dtype, source.dims);
  if (!bytes) return fail(bad_tensors(label, fmt::format("the shape {} is too large", dims_text(source.dims))));
  const int64_t begin = (*range)[0], end = (*range)[1];
  if (begin > end || end - begin != *bytes)
    return fail(bad_tensors(label, fmt::format("{} of {} needs {} bytes, but data_offsets are {} to {}",
                                               keras_name(source.dtype), dims_text(source.dims), *bytes, begin, end)));
  if (end > container.data_bytes)
    return fail(
        bad_tensors(label, fmt::format("it is truncated: the array ends at byte {} of the data, which has {} bytes",
                                       end, container.data_bytes))
            .remedy("copy or write the file again"));
  source.offset = container.data_begin + begin;
  return source;
}

}  // namespace

extern const ArrayFormat kSafetensorsFormat;
constinit const ArrayFormat kSafetensorsFormat = {
    .name = ".safetensors",
    .endings = ".safetensors",
    // Matches a header below 16 MiB that begins with its brace.
    .begins = [](std::string_view start) { return start.substr(3, 6) == std::string_view("\0\0\0\0\0{", 6); },
    .help_pair = "a .safetensors",
    .help_one = "a .safetensors",
    .names = safetensors_names,
    .open_named = open_safetensors,
    .write_pair = "safetensors.numpy.save_file({'x': inputs, 'y': targets}, file)",
    .write_named = "safetensors.numpy.save_file({name: array, ...}, file)",
};

}  // namespace plimsoll::engine
