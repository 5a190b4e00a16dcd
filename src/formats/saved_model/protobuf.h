// Reads the fields of a serialised protobuf message, without a schema and without copies. The bytes are untrusted: a
// field that does not fit ends the message, and ok() is false from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace plimsoll::engine {

// Reads a varint and moves `bytes` behind it. Returns false if it is longer than `bytes` or than 64 bits.
inline bool take_varint(std::span<const std::byte>& bytes, uint64_t& value) {
  value = 0;
  for (size_t i = 0; i < bytes.size() && i < 10; ++i) {
    const auto byte = std::to_integer<uint64_t>(bytes[i]);
    value |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      bytes = bytes.subspan(i + 1);
      return true;
    }
  }
  return false;
}

class ProtoReader {
 public:
  explicit ProtoReader(std::span<const std::byte> message) : rest_(message) {}

  // Moves to the next field. Returns false at the end, and where the message is damaged.
  bool next() {
    if (rest_.empty() || !ok_) return false;
    uint64_t key = 0;
    ok_ = take_varint(rest_, key);
    field_ = key >> 3;
    number_ = 0;
    bytes_ = {};
    is_bytes_ = (key & 7) == 2;
    enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
    switch (key & 7) {
      case kVarint:
        ok_ = ok_ && take_varint(rest_, number_);
        break;
      case kFixed64:
        take_fixed(8);
        break;
      case kFixed32:
        take_fixed(4);
        break;
      case kBytes:
        ok_ = ok_ && take_varint(rest_, number_) && number_ <= rest_.size();
        if (!ok_) break;
        bytes_ = rest_.first(static_cast<size_t>(number_));
        rest_ = rest_.subspan(static_cast<size_t>(number_));
        break;
      default:  // groups, which no message of ours has
        ok_ = false;
    }
    return ok_;
  }

  bool ok() const { return ok_; }
  uint64_t field() const { return field_; }
  uint64_t number() const { return number_; }                  // a varint or fixed number
  std::span<const std::byte> bytes() const { return bytes_; }  // a text or message; empty for numbers
  bool is_bytes() const { return is_bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  void take_fixed(size_t size) {
    ok_ = ok_ && rest_.size() >= size;
    if (!ok_) return;
    for (size_t i = 0; i < size; ++i) number_ |= std::to_integer<uint64_t>(rest_[i]) << (8 * i);
    rest_ = rest_.subspan(size);
  }

  std::span<const std::byte> rest_, bytes_;
  uint64_t field_ = 0, number_ = 0;
  bool ok_ = true, is_bytes_ = false;
};

}  // namespace plimsoll::engine
