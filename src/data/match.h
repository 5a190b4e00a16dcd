// Checks arrays against the model's requirements, for files and memory alike. Private to data/.
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
  std::shared_ptr<RowSource> rows = {};
  size_t field = 0;
  std::shared_ptr<StringSource> strings = {};  // set if the elements are strings; `dtype` means nothing then
};

struct FoundArrays {
  std::vector<FoundArray> inputs, targets;         // in the order of the spec
  std::vector<std::optional<FoundArray>> weights;  // empty, or one per output; nullopt if an output has none
  bool folder = false;                             // DataSet::folder
};

// Tells the user how many damaged records are left out. Fails with P401 if they are more than the options allow.
Status tell_left_out(const ReadOptions& read, const std::string& path, int64_t records, const char* what);

Result<DataSet> match_arrays(FoundArrays found, const DataSpec& spec);

}  // namespace plimsoll::engine
