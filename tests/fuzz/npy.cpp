// Opens the input as NumPy's .npy and reads its elements.
#include "formats/npy/npy.h"

#include "tests/fuzz/read_array.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plimsoll::engine;
  const fuzz::InputFile file({data, size});
  const auto array = open_npy(file.path());
  fuzz::check_error(array);
  if (array) fuzz::read_array(*array);
  return 0;
}
