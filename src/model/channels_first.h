// `data_format`: every layer over images is written for channels last. With channels_first it is the same layer between
// two transposes.
#pragma once

#include "model/layer.h"

namespace plimsoll::engine {

// Reads the key `data_format`, and returns the layer for it. `layer` takes and returns images with the channels last;
// an output of rank 1 (channels alone) is left as it is.
Layer with_data_format(Config& config, Layer layer);

}  // namespace plimsoll::engine
