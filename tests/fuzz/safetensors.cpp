// Hugging Face's .safetensors through the table of formats: the header, and the elements of every array.
#include "formats/array_formats.h"
#include "tests/fuzz/read_array.h"

namespace plimsoll::engine::fuzz {
namespace {

constexpr size_t kMostArrays = 16;

void run(Input input) {
  const ArrayFormat& format = *array_format_of_name("x.safetensors");
  const InputFile file(input);
  const auto names = format.names(file.path());
  check_error(names);
  for (size_t i = 0; names && i < std::min(names->size(), kMostArrays); ++i) {
    const auto array = format.open_named(file.path(), (*names)[i]);
    check_error(array);
    if (array) read_array(*array);
  }
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({data, size});
  return 0;
}
