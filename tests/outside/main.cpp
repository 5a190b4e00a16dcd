// A program that knows nothing of Plimsoll but its public headers.
#include <plimsoll/plimsoll.h>

#include <cstdio>

namespace {

plimsoll::Result<int> parse_batch_size(int given) {
  if (given < 1) return plimsoll::fail(plimsoll::ErrorCode::kUsage, "the batch size must be positive");
  return given;
}

}  // namespace

int main() {
  const int batch_size = plimsoll::require(parse_batch_size(8));
  const std::string refused = plimsoll::code_name(parse_batch_size(-3).error().code);
  std::printf("plimsoll %s, batch size %d, error %s\n", PLIMSOLL_VERSION, batch_size, refused.c_str());
}
