#include "base/suggest.h"

#include <gtest/gtest.h>

namespace plimsoll::engine {
namespace {

using Names = std::vector<std::string>;

const Names kCards = {"a100-80g", "a100-40g", "t4-16g", "rtx-4090-24g", "rtx-3060-12g"};
const Names kCommands = {"plan", "fit", "evaluate", "predict", "doctor"};

TEST(Suggest, NamesWithoutTheirEnding) {
  EXPECT_EQ(nearest_names("t4", kCards), Names{"t4-16g"});
  EXPECT_EQ(nearest_names("a100", kCards), (Names{"a100-80g", "a100-40g"}));
  EXPECT_EQ(nearest_names("RTX 3060", kCards), Names{"rtx-3060-12g"});
  EXPECT_EQ(nearest_names("4090", kCards), Names{"rtx-4090-24g"});
  EXPECT_EQ(nearest_names("eval", kCommands), Names{"evaluate"});
}

TEST(Suggest, SlipsOfTheFingers) {
  EXPECT_EQ(nearest_names("paln", kCommands), Names{"plan"});  // two letters swapped
  EXPECT_EQ(nearest_names("evalute", kCommands), Names{"evaluate"});
  EXPECT_EQ(nearest_names("--batch_size", {"--batchnorm", "--batch-size"}), Names{"--batch-size"});
  EXPECT_EQ(suggestion("acuracy", {"accuracy", "mae"}), "accuracy");
}

TEST(Suggest, NothingWhereNothingIsNear) {
  EXPECT_TRUE(nearest_names("abacus", kCards).empty());
  EXPECT_TRUE(nearest_names("rmsprop", {"sgd", "adam", "adamw"}).empty());
  EXPECT_TRUE(nearest_names("", kCards).empty());
  EXPECT_TRUE(nearest_names(std::string(100000, 'a'), kCards).empty());
  EXPECT_EQ(suggestion("x", {}), "");
}

}  // namespace
}  // namespace plimsoll::engine
