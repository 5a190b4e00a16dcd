#include "formats/json/parse.h"

#include "formats/limits.h"
#include "tests/formats/support.h"

namespace plimsoll::engine {
namespace {

using namespace test;

std::string repeated(std::string_view piece, size_t bytes) {
  std::string text;
  text.reserve(bytes + piece.size());
  while (text.size() < bytes) text += piece;
  return text;
}

TEST(ParseJson, NamesTheFileTheLineAndTheColumn) {
  EXPECT_FAILS(parse_json("{\n  \"a\": ]}", "m.keras: config.json"), kBadConfig,
               "m.keras: config.json: line 2, column 8");
  EXPECT_FAILS(parse_json("{", "p.plan", ErrorCode::kBadPlan), kBadPlan, "p.plan");
}

// Text that would take more memory than any model's JSON is rejected by counting, before parsing.
TEST(ParseJson, ManySmallValuesAreRefused) {
  for (const char* piece : {"[],", "{},", "0,", "\"\",", "[[[],[]],{\"\":{}}],"}) {
    const std::string text = "[" + repeated(piece, 8 * kMiB) + "0]";
    SCOPED_TRACE(piece);
    EXPECT_FAILS(parse_json(text, "many"), kBadConfig, "of memory");
  }
  std::string keys = "{";
  for (int i = 0; i < 600'000; ++i) keys += "\"" + std::to_string(i) + "\":0,";
  EXPECT_FAILS(parse_json(keys + "\"\":0}", "keys"), kBadConfig, "of memory");
}

TEST(ParseJson, DeepAndLongTextsAreRefused) {
  EXPECT_FAILS(parse_json(std::string(limits::kJsonDepth + 1, '['), "deep"), kBadConfig, "nested deeper");
  const std::string deep = std::string(limits::kJsonDepth, '[') + std::string(limits::kJsonDepth, ']');
  EXPECT_OK(parse_json(deep, "deep enough"));
  EXPECT_FAILS(parse_json(std::string(static_cast<size_t>(limits::kJsonBytes) + 1, ' '), "long"), kBadConfig,
               "at most");
}

TEST(ParseJson, BracketsInTextsAreNotCounted) {
  const std::string text = "{\"" + std::string(2000, '[') + "\\\"[[\":\"" + std::string(2000, '{') + "\"}";
  EXPECT_OK(parse_json(text, "quoted"));
}

TEST(ParseJson, OfAKeyThatStandsTwiceTheLastCounts) {
  const auto json = parse_json(R"({"a": 1, "a": 2})", "twice");
  ASSERT_OK(json);
  EXPECT_EQ(json->at("a"), 2);
}

}  // namespace
}  // namespace plimsoll::engine
