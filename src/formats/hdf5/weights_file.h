// The HDF5 file inside a .keras file (or a bare .weights.h5): datasets by path, read and written without the HDF5
// library. Elements go directly from the file into the caller's memory. Several threads may read at once.
//
// The reader supports the structures of HDF5 1.6 to 2.0 that h5py writes for numbers: all superblocks, object headers
// and groups; compact, contiguous and chunked datasets; the filters deflate, shuffle and fletcher32. It does not
// support chunks of datasets with unlimited dimensions in the format from 1.10 on. It does not follow soft and external
// links.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

struct Dataset {
  std::string path;  // "layers/conv2d/vars/0"
  TensorType type;   // a scalar has no dimensions; a dimension may be 0
  // Empty, or the reason why read_into cannot read it: "text", "its elements lie in another file".
  std::string unreadable;
  uint64_t address = 0;    // address of its object header, in the file it was read from
  bool kept = false;       // write_weights() can copy it, even if read_into() cannot read it
  int64_t kept_bytes = 0;  // size of its elements in such a copy
  int64_t type_bytes = 0;  // size of its datatype message in such a copy
};

class WeightsFile {
 public:
  // Lists all datasets and reads none. Fails with P213 if the file is not HDF5 or is damaged. `label` is its name in
  // messages.
  static Result<WeightsFile> open(const std::string& path, const std::string& label);
  // Same, for an HDF5 file at [offset, offset + bytes) of `file`.
  static Result<WeightsFile> open(File file, int64_t offset, int64_t bytes, const std::string& label);
  WeightsFile(WeightsFile&&) noexcept;
  WeightsFile& operator=(WeightsFile&&) noexcept;
  ~WeightsFile();

  const std::string& label() const;
  const std::vector<Dataset>& datasets() const;  // in Keras's order: "vars/2" before "vars/10"
  const Dataset* find(std::string_view path) const;
  std::vector<const Dataset*> under(std::string_view group) const;  // in the same order

  // Writes type.bytes() to `destination`. The shape must match the file (P207). The dtype may differ: values are
  // converted. Fails with P206 if there is no such dataset, P213 if it cannot be read.
  Status read_into(std::string_view path, const TensorType& type, void* destination) const;

 private:
  friend class WeightsTree;  // used by write_weights()
  struct Impl;
  explicit WeightsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One dataset to write, from memory that the caller owns.
struct WeightEntry {
  std::string path;
  TensorType type;
  const void* data = nullptr;
};

// Writes an HDF5 file at the position of `file` and moves the position to its end. It contains the entries, and the
// groups and datasets of `source` (may be null) that no entry replaces. Entries under "optimizer/" replace all datasets
// of the source's "optimizer/". The same contents give the same bytes. Fails with P601 or P602.
//
// Not copied from the source: attributes, except the bfloat16 mark; and datasets that are not `kept`. Those are
// datasets whose elements refer to other places of the file (variable-length text, references), whose elements are
// structures or arrays, or which are not stored in the file itself. Copied datasets become contiguous.
Status write_weights(AtomicFile& file, std::span<const WeightEntry> entries, const WeightsFile* source);

// Returns the bytes that write_weights() will need, or slightly more.
int64_t expected_weights_bytes(std::span<const WeightEntry> entries, const WeightsFile* source);

}  // namespace plimsoll::engine
