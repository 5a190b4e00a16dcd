// The decisions at the end of an epoch must be those of Keras's callbacks for the same values.
// tests/golden/callbacks.json contains what Keras 3.15 did; tests/keras/test_callbacks.py checks that the file is
// right.
#include "execute/callbacks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/program.h"
#include "tests/support/run.h"

namespace plimsoll::engine::testing {
namespace {

std::vector<Tally> tallies() {
  std::vector<Tally> list(3);
  list[0].name = "loss";
  list[1].name = "mae";
  list[2].name = "accuracy";
  list[2].larger_is_better = true;
  return list;
}

CallbackOptions options_of(const nlohmann::json& row) {
  const std::string metric = row.at("metric");
  CallbackOptions options;
  options.early_stopping = EarlyStopping{metric, row.at("patience"), true};
  options.reduce_lr = ReduceLrOnPlateau{metric, row.at("patience"), row.at("factor")};
  options.save_best = SaveBest{metric, "best.keras"};
  return options;
}

// Compares the decisions with a row of the table. If `resumed`, a new object takes over the state before every epoch.
void expect_keras(const nlohmann::json& row, bool resumed) {
  const CallbackOptions options = options_of(row);
  auto callbacks = std::make_unique<Callbacks>(options, tallies());
  int64_t stopped = -1, best_epoch = 0;
  std::vector<int64_t> saved;
  double rate = 0.1;
  for (size_t epoch = 0; epoch < row.at("values").size(); ++epoch) {
    if (resumed) {
      auto next = std::make_unique<Callbacks>(options, tallies());
      std::vector<std::string> notes;
      const auto text = callbacks->to_json().dump();
      ASSERT_TRUE(next->from_json(nlohmann::json::parse(text), notes));
      EXPECT_TRUE(notes.empty());
      callbacks = std::move(next);
    }
    const double value = *number_from_json(row.at("values")[epoch]);
    const auto now = static_cast<int64_t>(epoch);
    const EpochDecision decision = callbacks->end_of_epoch(now, {{row.at("metric").get<std::string>(), value}}, rate);
    rate = decision.learning_rate;
    EXPECT_EQ(static_cast<float>(rate), row.at("rates")[epoch].get<float>()) << row << " epoch " << epoch;
    if (decision.save_model) saved.push_back(now);
    if (stopped < 0 && decision.keep_weights) {
      best_epoch = now;
      callbacks->best_step = now;
    }
    if (stopped < 0 && decision.stop) stopped = now;
  }
  EXPECT_EQ(stopped, row.at("stopped").get<int64_t>()) << row;
  EXPECT_EQ(best_epoch, row.at("best_epoch").get<int64_t>()) << row;
  EXPECT_EQ(saved, row.at("saved").get<std::vector<int64_t>>()) << row;
}

TEST(Callbacks, DecideAsKerasDoes) {
  const auto table = nlohmann::json::parse(text_of(golden("callbacks.json")));
  ASSERT_EQ(table.size(), 72U);
  for (const auto& row : table) expect_keras(row, false);
}

TEST(Callbacks, DecideTheSameWhenResumedBeforeEachEpoch) {
  for (const auto& row : nlohmann::json::parse(text_of(golden("callbacks.json")))) expect_keras(row, true);
}

TEST(Callbacks, LeaveBehindWhatAnotherMetricSaid) {
  CallbackOptions loss, accuracy;
  loss.early_stopping = EarlyStopping{"loss", 1, false};
  accuracy.early_stopping = EarlyStopping{"accuracy", 1, false};
  Callbacks before(loss, tallies()), after(accuracy, tallies());
  before.end_of_epoch(0, {{"loss", 1}}, 0.1);
  EXPECT_TRUE(before.end_of_epoch(1, {{"loss", 2}}, 0.1).stop);
  std::vector<std::string> notes;
  EXPECT_TRUE(after.from_json(before.to_json(), notes));
  EXPECT_EQ(notes.size(), 1U);
  EXPECT_FALSE(after.stopped());
}

TEST(Callbacks, GoOnWithALargerPatience) {
  CallbackOptions options;
  options.early_stopping = EarlyStopping{"loss", 1, false};
  Callbacks before(options, tallies());
  before.end_of_epoch(0, {{"loss", 1}}, 0.1);
  before.end_of_epoch(1, {{"loss", 2}}, 0.1);
  std::vector<std::string> notes;
  Callbacks same(options, tallies());
  EXPECT_TRUE(same.from_json(before.to_json(), notes));
  EXPECT_TRUE(same.stopped());
  options.early_stopping->patience = 3;
  Callbacks patient(options, tallies());
  EXPECT_TRUE(patient.from_json(before.to_json(), notes));
  EXPECT_FALSE(patient.stopped());
}

TEST(Callbacks, RefuseWhatIsNoState) {
  CallbackOptions options;
  options.early_stopping = EarlyStopping{"loss", 1, true};
  options.reduce_lr = ReduceLrOnPlateau{"loss", 1, 0.5};
  for (const char* text : {"3", "[]", R"({"early_stopping": 3})",
                           R"({"early_stopping": {"metric": "loss", "waited": -1}, "best_step": 1})",
                           R"({"early_stopping": {"metric": "loss", "waited": 1e300}, "best_step": 1})",
                           R"({"early_stopping": {"metric": "loss", "waited": 1, "best": []}, "best_step": 1})",
                           R"({"early_stopping": {"metric": "loss", "waited": 1, "best": 1}, "best_step": "1"})",
                           R"({"reduce_lr": []})", R"({"reduce_lr": {"metric": "loss"}})"}) {
    Callbacks callbacks(options, tallies());
    std::vector<std::string> notes;
    EXPECT_FALSE(callbacks.from_json(nlohmann::json::parse(text), notes)) << text;
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
