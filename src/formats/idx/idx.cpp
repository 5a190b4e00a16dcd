#include "formats/idx/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "formats/array_formats.h"
#include "formats/file/cache.h"
#include "formats/npy/npy.h"

namespace plimsoll::engine {
namespace {

struct IdxHeader {
  DType dtype = DType::kUInt8;
  std::vector<int64_t> dims;
  Bytes bytes = 0;  // size of the elements
};

std::optional<DType> element_type(uint8_t code) {
  switch (code) {
    case 0x08:
      return DType::kUInt8;
    case 0x09:
      return DType::kInt8;
    case 0x0b:
      return DType::kInt16;
    case 0x0c:
      return DType::kInt32;
    case 0x0d:
      return DType::kFloat32;
    case 0x0e:
      return DType::kFloat64;
    default:
      return std::nullopt;
  }
}

tl::unexpected<Error> bad(const std::string& path, std::string_view what) {
  Error error{ErrorCode::kBadDataFile, fmt::format("{}: {}", path, what), {}, {}};
  return fail(std::move(error.fact("expected: an IDX file, plain or gzipped, like the MNIST data sets")));
}

// A sequential source of bytes: the file, or its decompressed contents.
class Stream {
 public:
  static Result<Stream> open(const File& file) {
    Stream stream(file);
    std::array<std::byte, 2> start{};
    if (file.size() >= 2) PLIMSOLL_TRY(file.pread_exact(0, start));
    if (start[0] != std::byte{0x1f} || start[1] != std::byte{0x8b}) return stream;
    stream.gzip_.reset(::gzopen(file.path().c_str(), "rb"));
    if (stream.gzip_ == nullptr)
      return fail(ErrorCode::kOutOfMemory, fmt::format("{}: zlib could not open it", file.path()));
    return stream;
  }

  bool packed() const { return gzip_ != nullptr; }

  // Returns the number of bytes read: the size of `out`, or fewer at the end.
  Result<size_t> read(std::span<std::byte> out) {
    if (!packed()) {
      const auto size = std::min(out.size(), static_cast<size_t>(file_->size() - position_));
      PLIMSOLL_TRY(file_->pread_exact(position_, out.first(size)));
      position_ += static_cast<int64_t>(size);
      return size;
    }
    size_t done = 0;
    while (done < out.size()) {
      const auto want = std::min<size_t>(out.size() - done, 1u << 30);
      const int got = ::gzread(gzip_.get(), out.data() + done, static_cast<unsigned>(want));
      int code = Z_OK;
      const char* message = ::gzerror(gzip_.get(), &code);
      if (code == Z_BUF_ERROR) return bad(file_->path(), "the gzipped data is truncated");
      if (got < 0 || code != Z_OK) return bad(file_->path(), fmt::format("the gzipped data is damaged: {}", message));
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

 private:
  explicit Stream(const File& file) : file_(&file) {}
  struct CloseGzip {
    void operator()(gzFile file) const { ::gzclose(file); }
  };
  const File* file_;
  int64_t position_ = 0;
  std::unique_ptr<gzFile_s, CloseGzip> gzip_;
};

// The header is two zeros, the element type and the number of dimensions, then each dimension as 32 bits, big-endian.
Result<IdxHeader> read_header(Stream& stream, const std::string& path) {
  std::array<std::byte, 4> magic{};
  PLIMSOLL_ASSIGN(const size_t got, stream.read(magic));
  const auto dtype = element_type(std::to_integer<uint8_t>(magic[2]));
  if (got < magic.size() || magic[0] != std::byte{0} || magic[1] != std::byte{0} || !dtype)
    return bad(path, "it does not begin with the magic number of IDX (0, 0, element type, dimensions)");
  IdxHeader header{*dtype, {}, 0};
  for (int i = std::to_integer<int>(magic[3]); i > 0; --i) {
    std::array<std::byte, 4> word{};
    PLIMSOLL_ASSIGN(const size_t size, stream.read(word));
    if (size < word.size()) return bad(path, "it ends inside its header");
    int64_t dim = 0;
    for (const auto byte : word) dim = dim << 8 | std::to_integer<int64_t>(byte);
    header.dims.push_back(dim);
  }
  const auto bytes = array_bytes(header.dtype, header.dims);
  if (!bytes) return bad(path, fmt::format("the shape {} is too large", dims_text(header.dims)));
  header.bytes = *bytes;
  return header;
}

Error wrong_length(const std::string& path, const IdxHeader& header, const std::string& there) {
  return bad(path, fmt::format("{} of {} needs {} bytes, but there are {}", keras_name(header.dtype),
                               dims_text(header.dims), header.bytes, there))
      .value();
}

void swap_elements(std::span<std::byte> bytes, size_t element) {
  for (size_t at = 0; at + element <= bytes.size(); at += element)
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + element));
}

Status unpack(Stream& stream, const IdxHeader& header, const std::string& source, const std::string& path) {
  PLIMSOLL_ASSIGN(auto writer, NpyWriter::create(path, header.dtype, header.dims));
  std::vector<std::byte> buffer(static_cast<size_t>(kStreamBuffer));
  const auto element = static_cast<size_t>(size_of(header.dtype));
  Bytes left = header.bytes;
  while (left > 0) {
    const std::span piece(buffer.data(), static_cast<size_t>(std::min<Bytes>(left, kStreamBuffer)));
    PLIMSOLL_ASSIGN(const size_t got, stream.read(piece));
    if (got < piece.size())
      return fail(wrong_length(source, header, std::to_string(header.bytes - left + static_cast<Bytes>(got))));
    if (element > 1) swap_elements(piece, element);
    PLIMSOLL_TRY(writer.write(piece));
    left -= static_cast<Bytes>(got);
  }
  // Reading to the end also makes zlib verify the CRC of a gzipped file.
  PLIMSOLL_ASSIGN(const size_t more, stream.read(std::span(buffer.data(), 1)));
  if (more > 0) return fail(wrong_length(source, header, "more"));
  return writer.commit();
}

// Accepts the magic number of gzip or of IDX.
bool begins_idx(std::string_view start) {
  return start.starts_with("\x1f\x8b") || (start[0] == 0 && start[1] == 0 && start[2] >= 8 && start[2] <= 14);
}

}  // namespace

Result<ArraySource> open_idx(const std::string& path) {
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  PLIMSOLL_ASSIGN(Stream stream, Stream::open(file));
  PLIMSOLL_ASSIGN(const IdxHeader header, read_header(stream, path));
  if (!stream.packed()) {
    const int64_t offset = 4 + 4 * static_cast<int64_t>(header.dims.size());
    if (file.size() - offset != header.bytes)
      return fail(wrong_length(path, header, std::to_string(file.size() - offset)));
    if (size_of(header.dtype) == 1) return ArraySource{path, path, offset, header.dtype, header.dims};
  }
  const auto fill = [&](const std::string& target) { return unpack(stream, header, path, target); };
  PLIMSOLL_ASSIGN(const std::string cached, cached_file(file, "idx", fill));
  PLIMSOLL_ASSIGN(const File unpacked, File::open_read(cached));
  return read_npy(unpacked, 0, unpacked.size(), path);
}

extern const ArrayFormat kIdxFormat;
constinit const ArrayFormat kIdxFormat = {
    .name = "IDX (plain or .gz)",
    .endings = "-ubyte -ubyte.gz .idx .idx.gz",
    .begins = begins_idx,
    .help_pair = "an IDX pair",
    .help_one = "an IDX file",
    .open = open_idx,
};

}  // namespace plimsoll::engine
