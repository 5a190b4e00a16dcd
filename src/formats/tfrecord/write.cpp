#include "formats/tfrecord/write.h"

#include <array>
#include <cstring>

#include "formats/file/file.h"
#include "formats/tfrecord/crc32c.h"

namespace plimsoll::engine {
namespace {

using Buffer = std::vector<std::byte>;

// The number of a field and its wire type 2: a length and that many bytes.
constexpr uint64_t message_tag(int field) {
  return static_cast<uint64_t>(field) << 3 | 2;
}

size_t varint_bytes(uint64_t value) {
  size_t bytes = 1;
  for (; value > 0x7f; value >>= 7) ++bytes;
  return bytes;
}

void put_varint(Buffer& to, uint64_t value) {
  for (; value > 0x7f; value >>= 7) to.push_back(static_cast<std::byte>(value | 0x80));
  to.push_back(static_cast<std::byte>(value));
}

void put_head(Buffer& to, int field, size_t bytes) {
  put_varint(to, message_tag(field));
  put_varint(to, bytes);
}

// The bytes of a message of `bytes` as a field with a one-byte tag.
size_t field_bytes(size_t bytes) {
  return 1 + varint_bytes(bytes) + bytes;
}

void append(Buffer& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

// features { feature { key: name, value { list { value: values } } } }
void ExampleWriter::feature(std::string_view name, int list, std::span<const std::span<const std::byte>> values) {
  size_t in_list = 0;
  for (const auto& value : values) in_list += field_bytes(value.size());
  const size_t in_value = field_bytes(in_list);
  put_head(features_, 1, field_bytes(name.size()) + field_bytes(in_value));
  put_head(features_, 1, name.size());
  append(features_, bytes_of_text(name));
  put_head(features_, 2, in_value);
  put_head(features_, list, in_list);
  for (const auto& value : values) {
    put_head(features_, 1, value.size());
    append(features_, value);
  }
}

void ExampleWriter::bytes(std::string_view name, std::span<const std::byte> value) {
  feature(name, 1, std::array{value});
}

void ExampleWriter::byte_strings(std::string_view name, std::span<const std::string_view> values) {
  std::vector<std::span<const std::byte>> all;
  for (const std::string_view value : values) all.push_back(bytes_of_text(value));
  feature(name, 1, all);
}

void ExampleWriter::floats(std::string_view name, int64_t count, const std::function<float(int64_t)>& element) {
  values_.resize(static_cast<size_t>(count) * sizeof(float));
  for (int64_t i = 0; i < count; ++i) {
    const float value = element(i);
    std::memcpy(values_.data() + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
  }
  feature(name, 2, std::array{std::span<const std::byte>(values_)});
}

void ExampleWriter::integers(std::string_view name, int64_t count, const std::function<int64_t(int64_t)>& element) {
  values_.clear();
  for (int64_t i = 0; i < count; ++i) put_varint(values_, static_cast<uint64_t>(element(i)));
  feature(name, 3, std::array{std::span<const std::byte>(values_)});
}

std::span<const std::byte> ExampleWriter::finish() {
  put_head(buffer_, 1, features_.size());
  append(buffer_, features_);
  return buffer_;
}

void append_record(std::vector<std::byte>& to, std::span<const std::byte> record) {
  const auto length = static_cast<uint64_t>(record.size());
  const uint32_t of_length = masked_crc32c(bytes_of(length)), of_record = masked_crc32c(record);
  append(to, bytes_of(length));
  append(to, bytes_of(of_length));
  append(to, record);
  append(to, bytes_of(of_record));
}

}  // namespace plimsoll::engine
