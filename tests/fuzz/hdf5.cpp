// Reads every small dataset of a .keras file's model.weights.h5, and copies everything into a new file, as saving does.
#include <vector>

#include "formats/hdf5/weights_file.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

constexpr Bytes kLargestRead = kMiB;

void read_datasets(const WeightsFile& weights) {
  Bytes left = 4 * kLargestRead;
  for (const Dataset& dataset : weights.datasets()) {
    const Bytes bytes = dataset.type.bytes();
    if (bytes > std::min(kLargestRead, left)) continue;
    left -= bytes;
    // The exact size, so that a write past the end is detected.
    std::vector<std::byte> buffer(static_cast<size_t>(bytes));
    check_error(weights.read_into(dataset.path, dataset.type, buffer.data()));
  }
}

void copy_datasets(const WeightsFile& weights) {
  const std::string path = scratch_folder() + "/copy.h5";
  auto file = AtomicFile::create(path);
  if (!file) found(to_text(file.error()));
  check_error(write_weights(*file, {}, &weights));
}

void run(Input input) {
  scratch_folder();
  const InputFile file(input);
  const auto weights = WeightsFile::open(file.path(), "fuzzed");
  check_error(weights);
  if (!weights) return;
  read_datasets(*weights);
  copy_datasets(*weights);
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({data, size});
  return 0;
}
