// Reads the input as a log, whole and in pieces, and explains it. Both must give the same answer.
#include <algorithm>

#include "explain/report.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

std::string explained(std::string_view text, size_t piece) {
  explain::LogReader reader;
  for (size_t at = 0; at < text.size(); at += piece) reader.feed(text.substr(at, piece));
  const explain::Explanation explanation = explain::explain(reader.finish());
  return explain::explanation_text(explanation) +
         explain::explanation_json(explanation).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plimsoll::engine::fuzz;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string whole = explained(text, std::max<size_t>(size, 1));
  if (explained(text, 7) != whole) found("a log that is explained otherwise when it comes in pieces");
  return 0;
}
