// CRC-32C (Castagnoli), and the mask that TFRecord files add to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace plimsoll::engine {

uint32_t crc32c(std::span<const std::byte> bytes);

// TensorFlow stores checksums rotated and shifted, because a checksum of data that hold checksums is weak.
inline uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

}  // namespace plimsoll::engine
