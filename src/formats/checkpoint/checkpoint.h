// A training checkpoint: a JSON header from the caller and raw tensors, each with a CRC32.
//
//   offset 0   8 bytes   magic "PLMCKPT1"
//          8   u64       length of the JSON text
//         16   u32       CRC32 of bytes 0..16 and of the JSON text
//         20   u32       zero
//         24   JSON      {"header": the caller's, "tensors": [{"name", "dtype", "shape", "offset", "bytes", "crc32"}]}
//         ...  tensors   each at a multiple of 64, zeros between
//
// All numbers are little-endian. Reading and writing buffer no tensor: bytes go directly from and to the caller's
// memory.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

struct CheckpointTensor {
  std::string name;
  TensorType type;
  const void* data = nullptr;
};

// Writes the file atomically. Fails with P601 or P602 if it cannot be written; an existing file with that name then
// stays unchanged. `before_commit` is called after the new file is complete and before it replaces the old one.
Status write_checkpoint(const std::string& path, const nlohmann::json& header,
                        std::span<const CheckpointTensor> tensors, const std::function<void()>& before_commit = {});

class Checkpoint {
 public:
  struct Entry {
    std::string name;
    TensorType type;
    int64_t offset = 0;
    uint32_t crc32 = 0;
  };

  const nlohmann::json& header() const { return header_; }
  const std::vector<Entry>& tensors() const { return tensors_; }
  const Entry* find(std::string_view name) const;

  // Reads a tensor into `destination`, which must have room for type.bytes(). Fails with P212 if there is no such
  // tensor, its type differs, or its bytes are damaged; the contents of `destination` are then undefined.
  Status read_into(std::string_view name, const TensorType& type, void* destination) const;
  // Reads the whole file. Fails with P212 unless every tensor matches its checksum.
  Status verify() const;

 private:
  friend Result<Checkpoint> open_checkpoint(const std::string& path);
  Status compare(const Entry& entry, uint32_t crc) const;

  File file_;
  nlohmann::json header_;
  std::vector<Entry> tensors_;
};

// Reads and verifies the header. Fails with P212 if it is damaged, with P202 if the file cannot be read.
Result<Checkpoint> open_checkpoint(const std::string& path);

}  // namespace plimsoll::engine
