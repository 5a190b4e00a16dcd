// A folder of texts, read as keras.utils.text_dataset_from_directory reads it: each .txt file is one string.
#pragma once

#include <string>

#include "data/match.h"

namespace plimsoll::engine {

Result<FoundArrays> open_text_folder(const std::string& path, const DataSpec& spec);

}  // namespace plimsoll::engine
