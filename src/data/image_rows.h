// Pictures in one folder per class, as keras.utils.image_dataset_from_directory reads them: the same order, labels and
// pixels.
#pragma once

#include <string>
#include <vector>

#include "data/match.h"

namespace plimsoll::engine {

// The size of pictures if neither the model nor --image-size says it: that of Keras.
inline constexpr int64_t kImageSide = 256;

// Returns the shape of one picture for these options, without reading any.
std::vector<int64_t> image_sample_shape(const DataSpec& spec);

// Reads the header of every picture, so that damaged files are found before the run and the memory for decoding is
// known. Fails with P401 for a damaged file, P201 if the model or an option does not suit pictures.
Result<FoundArrays> open_image_folder(const std::string& path, const DataSpec& spec);

}  // namespace plimsoll::engine
