// A checkpoint of TensorFlow ("tensor bundle"): an index of names, and raw tensors in one or several data files. Holds
// the index in memory, about 200 bytes per tensor; elements go directly from the file into the caller's memory.
#pragma once

#include <string>
#include <vector>

#include "formats/file/file.h"
#include "formats/weight_source.h"

namespace plimsoll::engine {

class TensorBundle final : public WeightSource {
 public:
  // Opens PREFIX.index and its data files. Fails with P202 if one cannot be read, P213 if they are damaged.
  static Result<TensorBundle> open(const std::string& prefix);

  struct Entry {
    std::string name;  // "layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    TensorType type;
    bool text = false;       // a text, which read_text() reads
    std::string unreadable;  // empty, or why it cannot be read
    uint64_t shard = 0;
    int64_t offset = 0, bytes = 0;
    uint32_t checksum = 0;  // masked CRC-32C
  };

  const std::string& label() const override { return label_; }
  const std::vector<Entry>& entries() const { return entries_; }  // sorted by name
  std::optional<TensorType> type_of(std::string_view name) const override;
  Status read_into(std::string_view name, const TensorType& type, void* destination) const override;
  // Returns the text of a scalar of that type. Fails with P206 if there is none.
  Result<std::string> read_text(std::string_view name) const;

 private:
  const Entry* find(std::string_view name) const;
  Status take_entry(std::string_view key, std::span<const std::byte> value, uint64_t& shards);
  Status check_places();

  std::string label_;
  std::vector<Entry> entries_;
  std::vector<File> shards_;
};

// CRC-32C of Castagnoli, continued from `crc` (0 at the start), and the form in which TensorFlow stores it.
uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes);
uint32_t masked_crc(uint32_t crc);

}  // namespace plimsoll::engine
