// IDX, plain or gzipped. Bytes after a leading 'z' are gzipped here, so that mutations get past gzip's checksum.
#include "formats/idx/idx.h"

#include <zlib.h>

#include "tests/fuzz/read_array.h"

namespace plimsoll::engine::fuzz {
namespace {

std::vector<uint8_t> gzipped(Input input) {
  z_stream stream{};
  if (deflateInit2(&stream, 1, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) found("zlib");
  std::vector<uint8_t> out(deflateBound(&stream, input.size()));
  stream.next_in = const_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) found("zlib");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void run(Input input) {
  scratch_folder();
  std::vector<uint8_t> bytes(input.begin(), input.end());
  if (!bytes.empty() && bytes[0] == 'z') bytes = gzipped(input.subspan(1));
  const InputFile file(bytes);
  const auto array = open_idx(file.path());
  check_error(array);
  if (array) read_array(*array);
  empty_scratch_folder();
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({data, size});
  return 0;
}
