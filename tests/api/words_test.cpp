// Tests that errors from code shared with the program name the options of the C++ interface instead of flags.
#include "api/words.h"

#include <gtest/gtest.h>

#include <new>

namespace plimsoll::engine::testing {
namespace {

std::string what(const std::string& text) {
  return in_api_words({ErrorCode::kUsage, text, {}, {}}).what;
}
std::vector<std::string> remedies(const std::vector<std::string>& list) {
  return in_api_words({ErrorCode::kUsage, "", {}, list}).remedies;
}

TEST(ApiWords, FlagsBecomeOptions) {
  EXPECT_EQ(what("--micro-batch 4 would change it"), "options.micro_batch = 4 would change it");
  EXPECT_EQ(what("--micro-batch 8: too large"), "options.micro_batch = 8: too large");
  EXPECT_EQ(remedies({"--budget 48MiB   what the smallest plan needs"}),
            std::vector<std::string>{"options.budget = \"48MiB\"   what the smallest plan needs"});
  EXPECT_EQ(remedies({"--budget 48MiB, and remove --micro-batch"}),
            std::vector<std::string>{"options.budget = \"48MiB\", and remove options.micro_batch"});
  EXPECT_EQ(remedies({"a smaller --budget, or a higher limit (ulimit -v)"}),
            std::vector<std::string>{"a smaller options.budget, or a higher limit (ulimit -v)"});
  EXPECT_EQ(remedies({"--input-shape 224,224,3   the shape of one sample"}),
            std::vector<std::string>{"options.input_shape = {224,224,3}   the shape of one sample"});
  EXPECT_EQ(remedies({"--optimizer adam"}), std::vector<std::string>{"another optimizer: optimizers::Adam()"});
}

TEST(ApiWords, RemediesThatNeedAFlagWithoutAnOptionAreLeftOut) {
  EXPECT_EQ(remedies({"--epochs 3", "--tensorboard DIR --budget 40MiB   needs 39 MiB", "plimsoll doctor"}),
            std::vector<std::string>{"plimsoll doctor"});
  EXPECT_EQ(what("--device gpu:3: the driver shows 1 GPU"), "options.device = \"gpu:3\": the driver shows 1 GPU");
  EXPECT_EQ(in_api_words({ErrorCode::kUsage, "", {"--memory-growth is on"}, {}}).facts.front(), "memory-growth is on");
}

TEST(ApiWords, FlagsOfOtherProgramsAndPlainDashesStay) {
  EXPECT_EQ(remedies({"in a container: start it with --gpus all"}),
            std::vector<std::string>{"in a container: start it with --gpus all"});
  EXPECT_EQ(what("a -- b, --, ---x, -v"), "a -- b, --, ---x, -v");
  EXPECT_EQ(what("--"), "--");
  EXPECT_EQ(what(""), "");
}

TEST(ApiWords, ExceptionsBecomeErrors) {
  const auto thrown = [](auto exception) { return at_border([&]() -> Result<int> { throw exception; }); };
  EXPECT_EQ(thrown(std::bad_alloc()).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(thrown(std::runtime_error("odd")).error().code, ErrorCode::kInternal);
  EXPECT_EQ(*at_border([]() -> Result<int> { return 3; }), 3);
}

}  // namespace
}  // namespace plimsoll::engine::testing
