// A training checkpoint: a JSON header of the caller's and raw tensors, every one with a CRC32.
//
//   offset 0   8 bytes   magic "PLMCKPT1"
//          8   u64       length of the JSON text
//         16   u32       CRC32 of bytes 0..16 and of the JSON text
//         20   u32       zero
//         24   JSON      {"header": the caller's, "tensors": [{"name", "dtype", "shape", "offset", "bytes", "crc32"}]}
//         ...  tensors   each at a multiple of 64, zeros between
//
// Little-endian throughout. Reading and writing hold no tensor: bytes go straight from and to the caller's memory.
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

// Atomically: P601/P602 when it cannot be written, and then a file of that name stays as it was. `before_commit` is
// called when all of the new file is written and the old one still has the name.
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

  // Reads a tensor into memory of at least its bytes(). P212 when there is no such tensor, its type is another, or its
  // bytes are not those that were written; `destination` then holds nothing of use.
  Status read_into(std::string_view name, const TensorType& type, void* destination) const;
  // Reads all of it: P212 unless every tensor is as it was written.
  Status verify() const;

 private:
  friend Result<Checkpoint> open_checkpoint(const std::string& path);
  Status compare(const Entry& entry, uint32_t crc) const;

  File file_;
  nlohmann::json header_;
  std::vector<Entry> tensors_;
};

// Reads and verifies the header; P212 for any damage found, P202 when the file cannot be read.
Result<Checkpoint> open_checkpoint(const std::string& path);

}  // namespace plimsoll::engine
