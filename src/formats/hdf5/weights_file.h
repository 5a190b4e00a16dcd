// The HDF5 file inside a .keras file (or a bare .weights.h5): datasets by path.
// Elements go straight from the file into the caller's memory. Calls are serialised by one lock, as HDF5 wants it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "formats/file/file.h"

namespace plimsoll {

struct Dataset {
  std::string path;        // "layers/conv2d/vars/0"
  TensorType type;         // a scalar has no dimensions; a dimension may be 0
  std::string unreadable;  // empty, or why read_into cannot read it: "text", "external storage"
};

class WeightsFile {
 public:
  // Lists all datasets, reads none. P213 when it is not HDF5 or is damaged. `label` is what messages call the file.
  static Result<WeightsFile> open(const std::string& path, const std::string& label);
  // The same for an HDF5 file that lies at [offset, offset + bytes) of `file`.
  static Result<WeightsFile> open(File file, int64_t offset, int64_t bytes, const std::string& label);
  WeightsFile(WeightsFile&&) noexcept;
  WeightsFile& operator=(WeightsFile&&) noexcept;
  ~WeightsFile();

  const std::string& label() const;
  const std::vector<Dataset>& datasets() const;  // sorted as Keras counts: "vars/2" before "vars/10"
  const Dataset* find(std::string_view path) const;
  std::vector<const Dataset*> under(std::string_view group) const;  // in the same order

  // `destination` takes type.bytes(). The shape must be the file's (P207); the dtype may be another one, HDF5 converts.
  // P206 when there is no such dataset, P213 when it cannot be read.
  Status read_into(std::string_view path, const TensorType& type, void* destination) const;

 private:
  friend Status write_weights(AtomicFile& file, std::span<const struct WeightEntry> entries, const WeightsFile* source);
  struct Impl;
  explicit WeightsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One dataset to write, from memory the caller owns.
struct WeightEntry {
  std::string path;
  TensorType type;
  const void* data = nullptr;
};

// Writes an HDF5 file at the position of `file` and moves that to its end: the entries, and everything of `source` (may
// be null) that no entry replaces, with the attributes of its groups and datasets. Entries under "optimizer/" replace
// all of the source's "optimizer/". P601/P602.
Status write_weights(AtomicFile& file, std::span<const WeightEntry> entries, const WeightsFile* source);

// Close to the bytes that write_weights() will need, on the safe side.
int64_t expected_weights_bytes(std::span<const WeightEntry> entries, const WeightsFile* source);

}  // namespace plimsoll
