// Opens a checkpoint whose header checksum has been corrected, reads its small tensors, and then reads its plan as
// --resume does.
#include "formats/checkpoint/checkpoint.h"

#include <zlib.h>

#include <cstring>
#include <vector>

#include "plan/plan.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

constexpr size_t kPreambleBytes = 24, kChecksumAt = 16;

std::vector<uint8_t> with_checksum(Input input) {
  std::vector<uint8_t> bytes(input.begin(), input.end());
  if (bytes.size() < kPreambleBytes) return bytes;
  uint64_t json_bytes = 0;
  std::memcpy(&json_bytes, bytes.data() + 8, sizeof(json_bytes));
  if (json_bytes > bytes.size() - kPreambleBytes) return bytes;
  uLong crc = crc32_z(0, bytes.data(), kChecksumAt);
  crc = crc32_z(crc, bytes.data() + kPreambleBytes, json_bytes);
  const auto low = static_cast<uint32_t>(crc);
  std::memcpy(bytes.data() + kChecksumAt, &low, sizeof(low));
  return bytes;
}

void read_tensors(const Checkpoint& checkpoint) {
  Bytes left = 4 * kMiB;
  for (const auto& entry : checkpoint.tensors()) {
    const Bytes bytes = entry.type.bytes();
    if (bytes > std::min<Bytes>(kMiB, left)) continue;
    left -= bytes;
    std::vector<std::byte> buffer(static_cast<size_t>(bytes));
    check_error(checkpoint.read_into(entry.name, entry.type, buffer.data()));
  }
}

void read_plan(const nlohmann::json& header) {
  if (!header.is_object() || !header.contains("plan")) return;
  const auto plan = plan_from_json(header.at("plan"));
  check_error(plan);
  if (plan) (void)validate(*plan);  // kInternal is what a wrong plan gives, by contract
}

void run(Input input) {
  const InputFile file(with_checksum(input));
  const auto checkpoint = open_checkpoint(file.path());
  check_error(checkpoint);
  if (!checkpoint) return;
  read_tensors(*checkpoint);
  read_plan(checkpoint->header());
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({data, size});
  return 0;
}
