// The contents of an open WeightsFile, shared by reading and writing.
#pragma once

#include <string>
#include <vector>

#include "formats/hdf5/dataset.h"
#include "formats/hdf5/weights_file.h"

namespace plimsoll::engine {

struct Hdf5GroupPlace {
  std::string path;
  uint64_t address;  // address of its object header
};

struct WeightsFile::Impl {
  Hdf5Region region;
  std::vector<Dataset> datasets;
  std::vector<Hdf5GroupPlace> groups;  // sorted by path; the root ("") is not listed
};

}  // namespace plimsoll::engine
