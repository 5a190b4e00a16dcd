// What an open WeightsFile holds; shared by reading and writing.
#pragma once

#include <string>
#include <vector>

#include "formats/hdf5/handle.h"
#include "formats/hdf5/region_driver.h"
#include "formats/hdf5/weights_file.h"

namespace plimsoll {

struct WeightsFile::Impl {
  std::string label;
  File input;
  Hdf5Region region;
  Hdf5Id file{-1, H5Fclose};  // last: closed before what it reads from
  std::vector<Dataset> datasets;
};

}  // namespace plimsoll
