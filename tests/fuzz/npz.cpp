// NumPy's .npz with corrected checksums: opens every array, compressed ones through the cache.
#include "formats/npz/npz.h"

#include "tests/fuzz/read_array.h"

namespace plimsoll::engine::fuzz {
namespace {

constexpr size_t kMostArrays = 16;

void run(Input input) {
  scratch_folder();
  const std::string repaired = with_zip_checksums(input);
  const InputFile file({reinterpret_cast<const uint8_t*>(repaired.data()), repaired.size()});
  const auto names = npz_names(file.path());
  check_error(names);
  for (size_t i = 0; names && i < std::min(names->size(), kMostArrays); ++i) {
    const auto array = open_npz(file.path(), (*names)[i]);
    check_error(array);
    if (array) read_array(*array);
  }
  empty_scratch_folder();
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({data, size});
  return 0;
}
