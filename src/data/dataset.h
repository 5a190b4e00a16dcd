// The arrays of a data set, matched to a model's inputs and outputs and checked against them; no element is read yet.
// Keras's rule on shapes: one trailing dimension of 1 may be missing from an array, or be one too many.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

// What data must offer for one input or output of the model. Inputs have `name` and `sample` alone.
struct PortSpec {
  std::string name;
  Shape sample;                // without the batch dimension
  bool sparse_labels = false;  // outputs: a target is an integer below `classes`
  int64_t classes = 0;
  Shape target;  // outputs: of one sample; [] for one label a sample
};

// Which arrays of a file that holds several splits (Keras's mnist.npz has x_train and x_test) are meant.
enum class Split { kTrain, kValidation, kTest };

struct DataSpec {
  std::vector<PortSpec> inputs, outputs;
  bool needs_targets = true;  // false for prediction: targets and weights are left alone
  Split split = Split::kTrain;
};

enum class Role { kInput, kTarget, kLabels, kWeights };

// One array: rows of equal size one after the other, in a file or in memory.
struct Column {
  std::string label;  // as messages name it: "data.npz: x"
  Role role = Role::kInput;
  TensorType type;                    // of one row: the array's dtype, the model's shape
  int64_t classes = 0;                // kLabels
  std::shared_ptr<const File> file;   // or
  const std::byte* memory = nullptr;  // which the caller keeps alive
  int64_t offset = 0;                 // of row 0

  // Rows first .. first+count-1, into memory for them.
  Status read(int64_t first, int64_t count, void* into) const;
};

struct DataSet {
  int64_t samples = 0;
  std::vector<Column> inputs;
  std::vector<Column> targets;  // one an output; none for prediction
  std::vector<Column> weights;  // none, or one an output; one without file and memory means 1 for every sample
};

// `argument` as --data takes it:
//   x.npy,y.npy[,weights.npy]       one input, one output; IDX files (plain or .gz) may stand for any of the three
//   data.npz, data.safetensors      arrays x, y, sample_weight, or one of the other pairs of npz_names.h; or named
//                                   after the model's inputs and outputs, with sample_weight for all outputs or
//                                   sample_weight_OUTPUT for one
// formats/array_formats.h has all formats.
// P201 bad argument, P202 missing file, P401 bad file, P402 shape, P405 empty, P406 lengths.
Result<DataSet> open_data(const std::string& argument, const DataSpec& spec);

// The shape of one sample for the input of that name; `only`: the model has no other input. For inputs whose model
// leaves sizes open.
Result<std::vector<int64_t>> sample_shape(const std::string& argument, const std::string& input, bool only,
                                          Split split);

// The same over arrays in memory, which must outlive the data set.
struct MemoryArray {
  std::string label;
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> dims;  // with the samples first
};
struct MemoryArrays {
  std::vector<MemoryArray> inputs;
  std::vector<MemoryArray> targets;  // none for prediction
  std::vector<MemoryArray> weights;  // none, one for all outputs, or one an output
};
Result<DataSet> wrap_data(const MemoryArrays& arrays, const DataSpec& spec);

// Where --validation-split cuts: samples [0, at) train, [at, samples) validate. As Keras: the last part, before any
// shuffling, floor(samples * (1 - fraction)); P405 if either part would be empty.
Result<int64_t> validation_split_at(int64_t samples, double fraction);

}  // namespace plimsoll::engine
