// Arrays that were found, against what the model wants: the checks that files and memory share. Private to data/.
#pragma once

#include <optional>

#include "data/dataset.h"

namespace plimsoll::engine {

struct FoundArray {
  std::string label;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> dims;
  std::shared_ptr<const File> file;
  const std::byte* memory = nullptr;
  int64_t offset = 0;
};

struct FoundArrays {
  std::vector<FoundArray> inputs, targets;         // in the order of the spec
  std::vector<std::optional<FoundArray>> weights;  // empty, or one an output; nothing where an output has none
};

Result<DataSet> match_arrays(FoundArrays found, const DataSpec& spec);

}  // namespace plimsoll::engine
