// Reads and validates a saved plan. An accepted plan is written and read again, and must give the same text.
#include "plan/plan.h"

#include "formats/json/parse.h"
#include "tests/fuzz/fuzz.h"

namespace plimsoll::engine::fuzz {
namespace {

void run(std::string_view text) {
  const auto json = parse_json(text, "fuzzed", ErrorCode::kBadPlan);
  check_error(json);
  if (!json) return;
  const auto plan = plan_from_json(*json);
  check_error(plan);
  if (!plan || !validate(*plan)) return;
  const std::string written = to_json(*plan).dump();
  const auto again = plan_from_json(nlohmann::json::parse(written));
  if (!again) found(to_text(again.error()));
  if (to_json(*again).dump() != written) found("a plan that reads back as another one");
}

}  // namespace
}  // namespace plimsoll::engine::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plimsoll::engine::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
