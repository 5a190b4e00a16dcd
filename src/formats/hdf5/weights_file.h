// The HDF5 file inside a .keras file (or a bare .weights.h5): datasets by path, read and written without the HDF5
// library. Elements go straight from the file into the caller's memory. Reading is safe from several threads.
//
// Read are the structures of HDF5 1.6 to 2.0 that h5py writes for numbers: all superblocks, object headers and groups;
// compact, contiguous and chunked datasets (but not chunks of datasets with unlimited dimensions in the format
// from 1.10 on), with the filters deflate, shuffle and fletcher32. Links to other places and other files are not
// followed.
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
  std::string path;        // "layers/conv2d/vars/0"
  TensorType type;         // a scalar has no dimensions; a dimension may be 0
  std::string unreadable;  // empty, or why read_into cannot read it: "text", "its elements lie in another file"
  uint64_t address = 0;    // of its object header, in the file it was read from
  bool kept = false;       // write_weights() can copy it, whether or not read_into() can read it
  int64_t kept_bytes = 0;  // of its elements in such a copy
  int64_t type_bytes = 0;  // of the description of its elements there
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

  // `destination` takes type.bytes(). The shape must be the file's (P207); the dtype may be another one: values are
  // converted.
  // P206 when there is no such dataset, P213 when it cannot be read.
  Status read_into(std::string_view path, const TensorType& type, void* destination) const;

 private:
  friend class WeightsTree;  // of write_weights()
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

// Writes an HDF5 file at the position of `file` and moves that to its end: the entries, and the groups and datasets of
// `source` (may be null) that no entry replaces. Entries under "optimizer/" replace all datasets of the source's
// "optimizer/". The same contents make the same bytes. P601/P602.
//
// Left behind are the source's attributes, but for the mark of bfloat16, and datasets that are not `kept`: elements
// that refer to other places of the file (text of any length, references), structures and arrays as elements, and what
// is not stored in the file itself. Copied datasets become contiguous.
Status write_weights(AtomicFile& file, std::span<const WeightEntry> entries, const WeightsFile* source);

// The bytes that write_weights() will need, or a little more.
int64_t expected_weights_bytes(std::span<const WeightEntry> entries, const WeightsFile* source);

}  // namespace plimsoll::engine
