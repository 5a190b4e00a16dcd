#include "formats/tfrecord/crc32c.h"

#include <array>
#include <cstring>

namespace plimsoll::engine {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78U;

// Table k gives the remainder of a byte that is followed by k zeros.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    tables[0][i] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t i = 0; i < 256; ++i) tables[k][i] = tables[k - 1][i] >> 8 ^ tables[0][tables[k - 1][i] & 0xff];
  return tables;
}

constexpr Tables kTables = make_tables();

uint32_t by_table(const unsigned char* data, size_t size, uint32_t crc) {
  for (; size >= 8; size -= 8, data += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> (8 * k) & 0xff];
  }
  for (; size > 0; --size, ++data) crc = crc >> 8 ^ kTables[0][(crc ^ *data) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t by_instruction(const unsigned char* data, size_t size, uint32_t start) {
  uint64_t crc = start;
  for (; size >= 8; size -= 8, data += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  auto rest = static_cast<uint32_t>(crc);
  for (; size > 0; --size, ++data) rest = __builtin_ia32_crc32qi(rest, *data);
  return rest;
}
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) {
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~by_instruction(data, bytes.size(), ~0U);
#endif
  return ~by_table(data, bytes.size(), ~0U);
}

}  // namespace plimsoll::engine
