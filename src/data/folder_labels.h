// Labels that the names of folders give, as keras.utils makes them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/match.h"

namespace plimsoll::engine {

// Returns which labels the model takes. `what` is "picture". Fails with P404 if the folders do not suit the model.
Result<LabelMode> label_mode(const std::string& path, const DataSpec& spec, const std::vector<std::string>& classes,
                             const char* what);
// Writes the label of one sample.
void write_class(int32_t label, LabelMode mode, int64_t classes, void* into);

// Returns the seed that puts files into order before they are cut for validation. Fails if Keras would not take it.
Result<uint32_t> seed_of_split(uint64_t seed);

FoundArray array_of_rows(std::string label, DType dtype, int64_t records, const std::vector<int64_t>& sample,
                         std::shared_ptr<RowSource> rows, size_t field);
FoundArray array_of_classes(const std::string& path, LabelMode mode, int64_t classes, int64_t records,
                            std::shared_ptr<RowSource> rows, size_t field);

}  // namespace plimsoll::engine
