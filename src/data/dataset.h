// The arrays of a data set, matched to a model's inputs and outputs and checked against them. No element is read yet.
// As in Keras, one trailing dimension of 1 may be missing or additional.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "data/read_options.h"
#include "data/rows.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

// Requirements on the data for one input or output of the model. Inputs use only `name` and `sample`.
struct PortSpec {
  std::string name;
  Shape sample;                // without the batch dimension
  bool sparse_labels = false;  // outputs: a target is an integer from 0 to classes - 1
  int64_t classes = 0;
  Shape target;                                       // outputs: shape of one target; [] for one label per sample
  std::optional<int64_t> ignored_class = {};          // outputs: a label that is valid although it is no class
  bool padded_labels = false;                         // outputs: a sample may have fewer labels; 0 fills the rest
  std::shared_ptr<const struct TextInput> text = {};  // inputs: made from strings; the data name its `source`
  std::vector<std::optional<int64_t>> declared = {};  // inputs: the sizes that the model declares, if known
};

// Selects the arrays of a file that holds several splits (Keras's mnist.npz has x_train and x_test).
enum class Split { kTrain, kValidation, kTest };

struct DataSpec {
  std::vector<PortSpec> inputs, outputs;
  bool needs_targets = true;  // false for prediction: targets and weights are ignored
  Split split = Split::kTrain;
  ReadOptions read;
  // Set if the data will be cut for validation: data that are sorted by class are put into an order that depends on
  // this seed first.
  std::optional<uint64_t> split_seed = {};
};

enum class Role { kInput, kTarget, kLabels, kWeights };

// One array of equally sized rows: in a file, in memory, or made from records.
struct Column {
  std::string label;  // the name in messages: "data.npz: x"
  Role role = Role::kInput;
  TensorType type;      // type of one row: the array's dtype, the model's shape
  int64_t classes = 0;  // for kLabels only
  std::optional<int64_t> ignored_class = {};
  std::shared_ptr<const File> file;   // set if the array is in a file
  const std::byte* memory = nullptr;  // set if the array is in memory, which the caller keeps alive
  int64_t offset = 0;                 // offset of row 0
  int64_t stored = 0;                 // elements of a row if the array has fewer than `type`; 0 fills the rest
  std::shared_ptr<RowSource> rows;    // set if the rows are made from records
  size_t field = 0;                   // which field of a record

  Bytes stored_bytes() const { return stored > 0 ? stored * size_of(type.dtype) : type.bytes(); }  // of a row
  bool exists() const { return file || memory != nullptr || rows; }

  // Reads rows first .. first+count-1 into `into`.
  Status read(int64_t first, int64_t count, void* into) const;

 private:
  Status read_padded(int64_t first, int64_t count, std::byte* into) const;
  Status read_stored(int64_t first, int64_t count, void* into) const;
};

struct DataSet {
  int64_t samples = 0;
  std::vector<Column> inputs;
  std::vector<Column> targets;  // one per output; empty for prediction
  // Empty, or one per output; a column without file and memory means a weight of 1 for every sample.
  std::vector<Column> weights;
  bool folder = false;  // of pictures: validation_split_at() cuts it as keras.utils does
};

// Opens `argument`, in the syntax of --data:
//   x.npy,y.npy[,weights.npy]       one input, one output; IDX files (plain or .gz) may stand for any of the three
//   DIR                             pictures in one folder per class (data/image_rows.h)
//   data.npz, data.safetensors      arrays x, y, sample_weight, or one of the other pairs of npz_names.h; or named
//                                   after the model's inputs and outputs, with sample_weight for all outputs or
//                                   sample_weight_OUTPUT for one
// formats/array_formats.h lists all formats.
// Fails with P201 for a bad argument, P202 for a missing file, P401 for a bad file, P402 for a wrong shape, P405 if
// there are no samples, P406 if the lengths differ.
Result<DataSet> open_data(const std::string& argument, const DataSpec& spec);

// An array under the name that it has in its file, or x, y or sample_weight.
struct NamedColumn {
  std::string name;
  int64_t rows = 0;
  Column column;
  bool text = false;  // its elements are strings, as cells of data/string_cells.h
};
// Opens `argument` without a model: inputs, targets if there are any, and sample weights if there are any. `all`: every
// array of a file that names its arrays; they may differ in length. Otherwise only the arrays that a model with one
// input and one output would take, which are equally long.
Result<std::vector<NamedColumn>> open_columns(const std::string& argument, const ReadOptions& read, bool all);

// Returns the help text of --data.
std::string data_help(bool with_targets);

// Returns the shape of one sample for the input with that name, for models that leave input sizes open. `only` says
// that the model has no other input. `with` has the split and the options to read with.
// An input that is made from strings has the length of the longest sample, and finding that reads all of them.
Result<std::vector<int64_t>> sample_shape(const std::string& argument, const PortSpec& input, bool only,
                                          const DataSpec& with);

// Same, for arrays in memory, which must outlive the data set.
struct MemoryArray {
  std::string label;
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> dims;  // the first dimension counts the samples
};
struct MemoryArrays {
  std::vector<MemoryArray> inputs;
  std::vector<MemoryArray> targets;  // empty for prediction
  std::vector<MemoryArray> weights;  // empty, one for all outputs, or one per output
};
Result<DataSet> wrap_data(const MemoryArrays& arrays, const DataSpec& spec);

// Returns where --validation-split cuts: samples [0, at) train and [at, samples) validate. As in Keras, the last part
// validates, before any shuffling, and at = floor(samples * (1 - fraction)); of a folder, floor(samples * fraction)
// samples validate. Fails with P405 if a part would be empty.
Result<int64_t> validation_split_at(int64_t samples, double fraction, bool folder = false);

}  // namespace plimsoll::engine
