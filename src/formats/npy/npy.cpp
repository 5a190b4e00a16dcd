#include "formats/npy/npy.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "formats/array_formats.h"
#include "formats/limits.h"
#include "formats/npy/header.h"

namespace plimsoll::engine {

static_assert(std::endian::native == std::endian::little,
              "little-endian arrays are read from the file without conversion");

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint32_t kLongestHeader = 64 * 1024;  // NumPy's own default limit is 10,000 characters

struct DescrRow {
  std::string_view kind;  // the descr without the byte order
  DType dtype;
};
constexpr std::array<DescrRow, 12> kDescrs = {{{"f4", DType::kFloat32},
                                               {"f8", DType::kFloat64},
                                               {"f2", DType::kFloat16},
                                               {"i1", DType::kInt8},
                                               {"i2", DType::kInt16},
                                               {"i4", DType::kInt32},
                                               {"i8", DType::kInt64},
                                               {"u1", DType::kUInt8},
                                               {"u2", DType::kUInt16},
                                               {"u4", DType::kUInt32},
                                               {"u8", DType::kUInt64},
                                               {"b1", DType::kBool}}};

Error bad(const std::string& label, std::string_view what) {
  return Error{ErrorCode::kBadDataFile, fmt::format("{}: {}", label, what), {}, {}};
}

Error unsupported_dtype(const std::string& label, const std::string& descr) {
  std::string_view what = "elements of this type";
  if (descr.starts_with('['))
    what = "structures";
  else if (descr.find('O') != std::string::npos)
    what = "Python objects";  // strings too: np.save pickles them
  else if (descr.find_first_of("USa") != std::string::npos)
    what = "text";
  else if (descr.find_first_of("Mm") != std::string::npos)
    what = "dates or times";
  else if (descr.find('c') != std::string::npos)
    what = "complex numbers";
  auto error = bad(label, fmt::format("the array has dtype '{}'; {} cannot be used for training", descr, what));
  error.fact("expected: bool, int8 to int64, uint8 to uint64, float16, float32 or float64");
  if (descr.find('O') != std::string::npos) error.remedy("np.save(file, array.astype(str))   if they are strings");
  return error.remedy("np.save(file, array.astype('float32'))");
}

Result<DType> dtype_of(const std::string& label, const std::string& descr) {
  if (descr.size() < 2) return fail(unsupported_dtype(label, descr));
  const std::string_view kind = std::string_view("<>|=").find(descr[0]) != std::string_view::npos
                                    ? std::string_view(descr).substr(1)
                                    : std::string_view(descr);
  for (const auto& row : kDescrs) {
    if (row.kind != kind) continue;
    if (descr[0] == '>' && size_of(row.dtype) > 1) {
      auto error = bad(label, fmt::format("the array is big-endian (dtype '{}'), expected little-endian", descr));
      return fail(error.remedy("np.save(file, array.astype(array.dtype.newbyteorder('<')))"));
    }
    return row.dtype;
  }
  return fail(unsupported_dtype(label, descr));
}

// "<U5" is text of 5 characters of 4 bytes each, "|S5" text of 5 bytes. Returns the bytes of one; nullopt if it is no
// text.
std::optional<int64_t> text_bytes(const std::string& descr, TextKind& kind) {
  if (descr.size() < 3 || std::string_view("<|=").find(descr[0]) == std::string_view::npos) return std::nullopt;
  if (descr[1] != 'U' && descr[1] != 'S') return std::nullopt;
  int64_t width = 0;
  const auto [end, error] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), width);
  if (error != std::errc{} || end != descr.data() + descr.size() || width < 0 || width > limits::kTextBytes / 4)
    return std::nullopt;
  kind = descr[1] == 'U' ? TextKind::kUtf32 : TextKind::kBytes;
  return kind == TextKind::kUtf32 ? 4 * width : width;
}

struct Preamble {
  std::string text;         // the dictionary
  int64_t data_offset = 0;  // counted from the start of the .npy
};

Result<Preamble> read_preamble(const File& file, int64_t offset, int64_t bytes, const std::string& label) {
  std::array<std::byte, 12> start{};
  const auto lead = static_cast<size_t>(std::min<int64_t>(bytes, start.size()));
  PLIMSOLL_TRY(file.pread_exact(offset, std::span(start).first(lead)));
  if (lead < 10 || std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0)
    return fail(
        bad(label, "it is not an .npy array: it does not begin with \\x93NUMPY").remedy("np.save(file, array)"));
  const auto byte = [&](size_t i) { return std::to_integer<uint32_t>(start[i]); };
  const uint32_t major = byte(6);
  if (major < 1 || major > 3)
    return fail(bad(label, fmt::format("it has .npy version {}.{}, expected 1.0, 2.0 or 3.0", major, byte(7))));
  const int64_t fixed = major == 1 ? 10 : 12;
  const uint32_t length = byte(8) | byte(9) << 8 | (major == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  if (bytes < fixed + int64_t{length})
    return fail(bad(
        label, fmt::format("it ends inside its header: it has {} bytes, expected {}", bytes, fixed + int64_t{length})));
  if (length > kLongestHeader)
    return fail(bad(label, fmt::format("its header has {} bytes, expected at most {}", length, kLongestHeader)));
  Preamble preamble{std::string(length, '\0'), fixed + int64_t{length}};
  PLIMSOLL_TRY(file.pread_exact(offset + fixed, std::as_writable_bytes(std::span(preamble.text))));
  return preamble;
}

}  // namespace

Result<ArraySource> read_npy(const File& file, int64_t offset, int64_t bytes, const std::string& label) {
  PLIMSOLL_ASSIGN(const Preamble preamble, read_preamble(file, offset, bytes, label));
  auto header = parse_npy_header(preamble.text);
  if (!header) return fail(bad(label, header.error().what));
  ArraySource array{label, file.path(), offset + preamble.data_offset, DType::kFloat32, std::move(header->shape)};
  if (const auto width = text_bytes(header->descr, array.text)) {
    array.dtype = DType::kUInt8;
    array.dims.push_back(*width);
  } else {
    PLIMSOLL_ASSIGN(array.dtype, dtype_of(label, header->descr));
  }
  if (header->fortran_order && array.dims.size() > (array.text == TextKind::kNumbers ? 1 : 2)) {
    auto error = bad(label, fmt::format("the array {} is in Fortran order (column-major), expected row-major",
                                        dims_text(array.dims)));
    return fail(error.remedy("np.save(file, np.ascontiguousarray(array))"));
  }
  const auto wanted = array_bytes(array.dtype, array.dims);
  if (!wanted) return fail(bad(label, fmt::format("the shape {} is too large", dims_text(array.dims))));
  if (bytes - preamble.data_offset < *wanted) {
    auto error =
        bad(label, fmt::format("it is truncated: {} of {} needs {} bytes, but there are {}", keras_name(array.dtype),
                               dims_text(array.dims), *wanted, bytes - preamble.data_offset));
    return fail(error.remedy("copy or write the file again"));
  }
  return array;
}

Result<ArraySource> open_npy(const std::string& path) {
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  return read_npy(file, 0, file.size(), path);
}

namespace {

std::string header_of(const std::string& descr, const std::vector<int64_t>& dims) {
  auto text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, dims_text(dims));
  const bool is_long = text.size() + 11 + 64 > 0xffff;
  const size_t fixed = is_long ? 12 : 10;
  text.append((64 - (fixed + text.size() + 1) % 64) % 64, ' ');
  text += '\n';
  std::string out(kMagic);
  out += is_long ? '\2' : '\1';
  out += '\0';
  for (size_t i = 0; i < fixed - 8; ++i) out += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return out + text;
}

}  // namespace

std::string npy_header(DType dtype, const std::vector<int64_t>& dims) {
  std::string descr = "<V2";  // bfloat16
  for (const auto& row : kDescrs)
    if (row.dtype == dtype) descr = fmt::format("{}{}", size_of(dtype) > 1 ? '<' : '|', row.kind);
  return header_of(descr, dims);
}

std::string npy_text_header(int64_t width, const std::vector<int64_t>& dims) {
  return header_of(fmt::format("|S{}", width), dims);
}

Result<NpyWriter> NpyWriter::create(const std::string& path, DType dtype, const std::vector<int64_t>& dims) {
  const auto bytes = array_bytes(dtype, dims);
  if (!bytes) return fail(ErrorCode::kInternal, fmt::format("{}: the shape {} is too large", path, dims_text(dims)));
  PLIMSOLL_ASSIGN(auto file, AtomicFile::create(path));
  const auto header = npy_header(dtype, dims);
  const int64_t end = static_cast<int64_t>(header.size()) + *bytes;
  PLIMSOLL_TRY(file.reserve(end));
  PLIMSOLL_TRY(file.write(bytes_of_text(header)));
  return NpyWriter(std::move(file), end);
}

Status NpyWriter::write(std::span<const std::byte> data) {
  return file_.write(data);
}

Status NpyWriter::commit() {
  if (file_.position() != end_)
    return fail(ErrorCode::kInternal, fmt::format("{}: {} bytes were written, but its shape needs {}", file_.target(),
                                                  file_.position(), end_));
  return file_.commit();
}

extern const ArrayFormat kNpyFormat;
constinit const ArrayFormat kNpyFormat = {
    .name = ".npy",
    .endings = ".npy",
    .begins = [](std::string_view start) { return start.starts_with(kMagic.substr(0, 4)); },
    .help_pair = "x.npy,y.npy[,weights.npy]",
    .help_one = "x.npy",
    .open = open_npy,
};

}  // namespace plimsoll::engine
