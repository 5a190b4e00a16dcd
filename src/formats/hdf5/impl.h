// The contents of an open WeightsFile, shared by reading and writing.
#pragma once

#include <string>
#include <vector>

#include "formats/hdf5/dataset.h"
#include "formats/hdf5/weights_file.h"

namespace plimsoll::engine {

struct WeightsFile::Impl {
  Hdf5Region region;
  std::vector<Dataset> datasets;
  std::vector<std::string> groups;  // paths; the root ("") is not listed
};

}  // namespace plimsoll::engine
