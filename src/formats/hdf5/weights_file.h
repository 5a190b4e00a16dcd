// The HDF5 file inside a .keras file (or a bare .weights.h5): datasets by path, read and written without the HDF5
// library. Elements go directly from the file into the caller's memory. Several threads may read at once.
//
// The reader supports the structures of HDF5 1.6 to 2.0 that h5py writes for numbers: all superblocks, object headers
// and groups; compact, contiguous and chunked datasets; the filters deflate, shuffle and fletcher32. It does not
// support chunks of datasets with unlimited dimensions in the format from 1.10 on. It does not follow soft and external
// links.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "formats/file/file.h"
#include "formats/weight_source.h"

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

class WeightsFile final : public WeightSource {
 public:
  // Lists all datasets and reads none. Fails with P213 if the file is not HDF5 or is damaged. `label` is its name in
  // messages.
  static Result<WeightsFile> open(const std::string& path, const std::string& label);
  // Same, for an HDF5 file at [offset, offset + bytes) of `file`.
  static Result<WeightsFile> open(File file, int64_t offset, int64_t bytes, const std::string& label);
  WeightsFile(WeightsFile&&) noexcept;
  WeightsFile& operator=(WeightsFile&&) noexcept;
  ~WeightsFile() override;

  const std::string& label() const override;
  const std::vector<Dataset>& datasets() const;  // in Keras's order: "vars/2" before "vars/10"
  const Dataset* find(std::string_view path) const;
  std::vector<const Dataset*> under(std::string_view group) const;  // in the same order

  bool has_group(std::string_view path) const;
  const struct Hdf5Region& region() const;  // for readers of single datasets

  std::optional<TensorType> type_of(std::string_view path) const override;
  Status read_into(std::string_view path, const TensorType& type, void* destination) const override;

 private:
  friend class WeightsTree;  // used by write_weights()
  friend class GroupTexts;
  struct Impl;
  explicit WeightsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Hdf5Reader;

// Reads texts in the attributes of groups. The limits on what is read apply to all calls together.
class GroupTexts {
 public:
  explicit GroupTexts(const WeightsFile& file);
  ~GroupTexts();

  // Returns the texts of the attribute, one if it is a scalar; nullopt if there is no such group or no such attribute.
  // Fails with P213 if the attribute is not text.
  Result<std::optional<std::vector<std::string>>> read(std::string_view group, std::string_view attribute);

 private:
  const WeightsFile& file_;
  std::unique_ptr<Hdf5Reader> reader_;
  int64_t bytes_ = 0;  // of all texts so far
};

// A text, or a list of texts, to write as the attribute of a group.
struct TextAttribute {
  std::string group, name;
  std::vector<std::string> texts;
  bool list = false;  // long lists are split as Keras splits them: name0, name1, ...
};

// One dataset to write, from memory that the caller owns.
struct WeightEntry {
  std::string path;
  TensorType type;
  const void* data = nullptr;
};

// Writes an HDF5 file at the position of `file` and moves the position to its end. It contains the entries, and the
// groups and datasets of `source` (may be null) that no entry replaces. Entries under "optimizer/" replace all datasets
// of the source's "optimizer/", and those under "optimizer_weights/" all there. The same contents give the same bytes.
// Fails with P601 or P602. `attributes` are those of Keras's legacy files; their groups are made if necessary.
//
// Not copied from the source: attributes, except the bfloat16 mark; and datasets that are not `kept`. Those are
// datasets whose elements refer to other places of the file (variable-length text, references), whose elements are
// structures or arrays, or which are not stored in the file itself. Copied datasets become contiguous.
Status write_weights(AtomicFile& file, std::span<const WeightEntry> entries, const WeightsFile* source,
                     std::span<const TextAttribute> attributes = {});

// Returns the bytes that write_weights() will need, or slightly more.
int64_t expected_weights_bytes(std::span<const WeightEntry> entries, const WeightsFile* source,
                               std::span<const TextAttribute> attributes = {});

}  // namespace plimsoll::engine
