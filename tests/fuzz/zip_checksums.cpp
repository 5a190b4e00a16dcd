// Walks an untrusted zip archive. Shares no code with formats/zip.
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

constexpr size_t kEndBytes = 22, kDirectoryBytes = 46, kLocalBytes = 30;
constexpr size_t kMostUnpacked = 4 << 20;

class Archive {
 public:
  explicit Archive(Input input) : bytes_(input.begin(), input.end()) {}

  std::string repaired() {
    const auto end = find_end();
    if (!end) return std::move(bytes_);
    size_t at = number(*end + 16, 4);
    for (size_t i = 0; i < 1000 && at + kDirectoryBytes <= bytes_.size(); ++i) {
      if (number(at, 4) != 0x02014b50) break;
      repair_entry(at);
      at += kDirectoryBytes + number(at + 28, 2) + number(at + 30, 2) + number(at + 32, 2);
    }
    return std::move(bytes_);
  }

 private:
  size_t number(size_t at, size_t width) const {
    size_t value = 0;
    for (size_t i = 0; i < width; ++i) value |= size_t{static_cast<uint8_t>(bytes_[at + i])} << (8 * i);
    return value;
  }

  std::optional<size_t> find_end() const {
    for (size_t back = kEndBytes; back <= bytes_.size(); ++back)
      if (number(bytes_.size() - back, 4) == 0x06054b50) return bytes_.size() - back;
    return std::nullopt;
  }

  void repair_entry(size_t directory) {
    const size_t local = number(directory + 42, 4), packed = number(directory + 20, 4);
    if (local > bytes_.size() || bytes_.size() - local < kLocalBytes) return;
    const size_t begin = local + kLocalBytes + number(local + 26, 2) + number(local + 28, 2);
    if (begin > bytes_.size() || packed > bytes_.size() - begin) return;
    const Input data(reinterpret_cast<const uint8_t*>(bytes_.data()) + begin, packed);
    const auto crc = number(directory + 10, 2) == 8 ? inflated_crc(data) : crc32_z(0, data.data(), data.size());
    for (size_t i = 0; i < 4; ++i) bytes_[directory + 16 + i] = static_cast<char>(crc >> (8 * i));
  }

  static uLong inflated_crc(Input data) {
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return 0;
    stream.next_in = const_cast<Bytef*>(data.data());
    stream.avail_in = static_cast<uInt>(data.size());
    uint8_t out[4096];
    uLong crc = 0;
    int state = Z_OK;
    for (size_t total = 0; state == Z_OK && total < kMostUnpacked; total += sizeof(out)) {
      stream.next_out = out;
      stream.avail_out = sizeof(out);
      state = inflate(&stream, Z_NO_FLUSH);
      crc = crc32_z(crc, out, sizeof(out) - stream.avail_out);
    }
    inflateEnd(&stream);
    return crc;
  }

  std::string bytes_;
};

}  // namespace

std::string with_zip_checksums(Input input) {
  return Archive(input).repaired();
}

}  // namespace plimsoll::engine::fuzz
