// Parses graph text, as in saved plans, prints it, parses it again to the same text, and verifies it.
#include "ops/op.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

void run(std::string_view text) {
  const auto graph = parse_graph(text);
  check_error(graph);
  if (!graph) return;
  const std::string printed = print(*graph);
  const auto again = parse_graph(printed);
  if (!again) found(to_text(again.error()));
  if (print(*again) != printed) found("a graph that prints as another one");
  (void)verify(*graph);  // kInternal is the expected error for an invalid graph
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
