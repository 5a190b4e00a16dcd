// Reads the input as a .tflite file, makes its operators ready, and runs small models once.
#include <vector>

#include "formats/tflite/lite_model.h"
#include "shrink/lite/interpreter.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plimsoll::engine;
  constexpr Bytes kMostBytes = 256 * kKiB;  // of a model that is run: it takes milliseconds
  auto model = lite::decode({reinterpret_cast<const std::byte*>(data), size}, "input");
  fuzz::check_error(model);
  if (!model) return 0;
  lite::widen_constants(*model);
  const auto program = lite::Program::create(*model, "input");
  fuzz::check_error(program);
  if (!program || program->buffer_bytes() > kMostBytes || model->operators.size() > 64) return 0;
  program->run(program->make_buffers());
  const auto written = lite::encode(*model);
  fuzz::check_error(written);
  if (written) fuzz::check_error(lite::decode(*written, "written"));
  return 0;
}
