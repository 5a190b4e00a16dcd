// Reads consecutive little-endian fields from untrusted bytes. After the end, every field is zero and ok() stays false,
// so callers read a whole structure and then check once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace plimsoll::engine {

class Hdf5Cursor {
 public:
  explicit Hdf5Cursor(std::span<const std::byte> bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  size_t left() const { return rest_.size(); }

  std::span<const std::byte> bytes(uint64_t count) {
    if (count > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const auto taken = rest_.first(static_cast<size_t>(count));
    rest_ = rest_.subspan(static_cast<size_t>(count));
    return taken;
  }
  void skip(uint64_t count) { bytes(count); }

  // Reads an unsigned integer of `size` bytes, at most 8.
  uint64_t number(size_t size) {
    if (size > sizeof(uint64_t)) {
      ok_ = false;
      return 0;
    }
    uint64_t value = 0;
    size_t shift = 0;
    for (const std::byte byte : bytes(size)) {
      value |= std::to_integer<uint64_t>(byte) << shift;
      shift += 8;
    }
    return value;
  }
  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }

  // Reads an address of `size` bytes. All bits set means "nowhere", for every size.
  uint64_t address(size_t size) {
    const uint64_t value = number(size);
    const bool nowhere = size < sizeof(uint64_t) && value == (uint64_t{1} << (8 * size)) - 1;
    return nowhere ? ~uint64_t{0} : value;
  }

  std::string_view text(uint64_t count) {
    const auto taken = bytes(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  bool signature(std::string_view expected) { return text(expected.size()) == expected && ok_; }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace plimsoll::engine
