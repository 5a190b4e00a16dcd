// A saved plan is untrusted input: the plan is compiled again from its settings, and refused if it is not the same.
#include "search/given_plan.h"

#include <fmt/format.h>

#include "tests/support/problem.h"

namespace plimsoll::engine::testing {
namespace {

struct AmpleProblem : Problem {
  explicit AmpleProblem(const std::string& model, int64_t batch = 8) : Problem(model, batch, host_devices().front()) {
    request.budget = 64 * kGiB;
  }
};

Plan from_text(const Plan& plan) {
  return require(plan_from_json(nlohmann::json::parse(to_json(plan).dump())));
}

void expect_accepted(const Problem& problem, const Plan& plan, const std::string& what) {
  const GivenPlan given{from_text(plan), "a.plan", false};
  ASSERT_TRUE(check_plan(given)) << what;
  const auto accepted = accept_plan(given, problem.request);
  ASSERT_TRUE(accepted) << what << ": " << to_text(accepted.error());
  EXPECT_EQ(to_json(accepted->result.plan), to_json(plan)) << what;
  EXPECT_EQ(accepted->note, "") << what;
}

TEST(GivenPlan, IsMadeAgainToTheByte) {
  for (const std::string& model : {golden("cnn.keras"), golden("resnet.keras"), golden("mlp.keras")})
    for (const std::optional<int64_t> micro : {std::optional<int64_t>(), std::optional<int64_t>(3)})
      for (const int64_t partial : {0, 4, 5})
        for (const int64_t evaluated : {0, 8, 11}) {
          AmpleProblem problem(model);
          problem.request.per_micro_batch_norm = true;
          problem.request.micro_batch = micro;
          problem.request.partial_window = partial;
          problem.request.evaluate_batch = evaluated == 0 ? 0 : 8;
          problem.request.evaluate_samples = evaluated;
          expect_accepted(
              problem, require(search(problem.request)).plan,
              fmt::format("{}, micro {}, partial {}, evaluate {}", model, micro.value_or(0), partial, evaluated));
        }
}

TEST(GivenPlan, IsMadeAgainWithEveryLeverItUses) {
  std::set<std::string> seen;
  for (const std::string& model : {golden("resnet.keras"), golden("cnn.keras"), std::string("seed-1")})
    for (const bool on_card : {false, true}) {
      AmpleProblem problem(model, 64);
      if (on_card) problem.plan_for("rtx-3060-12g");
      const SearchResult all = require(search(problem.request));
      for (int part = 0; part <= 16; ++part) {
        problem.request.budget = all.least_bytes + part * (all.plan.peak_bytes() - all.least_bytes) / 16;
        const SearchResult found = require(search(problem.request));
        if (!found.fits) continue;
        for (const LeverUse& lever : found.plan.levers) seen.insert(lever.name);
        expect_accepted(problem, found.plan, fmt::format("{} in {}", model, problem.request.budget));
      }
    }
  EXPECT_TRUE(seen.count("recompute") && seen.count("offload")) << "the budgets reach too few levers";
}

TEST(GivenPlan, WithoutPrefetchStaysWithout) {
  AmpleProblem problem(golden("cnn.keras"));
  problem.request.forbidden = {"prefetch"};
  const Plan plan = require(search(problem.request)).plan;
  problem.request.forbidden.clear();
  expect_accepted(problem, plan, "no prefetch");
}

using Edit = std::function<void(nlohmann::json& plan)>;

void replace(nlohmann::json& text, const std::string& from, const std::string& to) {
  std::string graph = text;
  const size_t at = graph.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text = graph.replace(at, from.size(), to);
}

// Each of these edits of a plan once crashed the program or was accepted. Each must be reported as an error of the
// file.
TEST(GivenPlan, ThatWasEditedIsRefused) {
  constexpr static int64_t kFar = -(int64_t{1} << 40), kMost = INT64_MAX;
  const auto graph = [](nlohmann::json& plan) -> nlohmann::json& { return plan["phases"][0]["graph"]; };
  const auto slot = [](const char* name, int64_t offset) {
    return nlohmann::json::array({name, "f32", nlohmann::json::array(), "optimizer", "", offset});
  };
  const std::vector<std::pair<std::string, Edit>> edits = {
      {"slots whose sum wraps, then one far below",
       [&](auto& p) {
         p["persistent"].push_back(slot("a", kMost - 255));
         p["persistent"].push_back(slot("learning_rate/if_skipped", kFar));
       }},
      {"a slot below the arena", [&](auto& p) { p["persistent"].push_back(slot("a", kFar)); }},
      {"a slot in the transients", [&](auto& p) { p["persistent"].push_back(slot("a", p["persistent_bytes"])); }},
      {"a slot that no graph reads",
       [&](auto& p) {
         const int64_t end = p["persistent_bytes"];
         p["persistent"].push_back(slot("a", end));
         p["persistent_bytes"] = end + kAlignment;
       }},
      {"a type of one element", [&](auto& p) { replace(graph(p), "softmax_cross_entropy", "softmax"); }},
      {"an unknown op", [&](auto& p) { replace(graph(p), " = matmul(", " = nosuchop("); }},
      {"an op without inputs",
       [&](auto& p) {
         std::string text = graph(p);
         const size_t open = text.find("matmul(") + 7;
         graph(p) = text.erase(open, text.find(')', open) - open);
       }},
      {"an attribute of another type", [&](auto& p) { replace(graph(p), "shape=[", "shape=3 was=["); }},
      {"a missing attribute", [&](auto& p) { replace(graph(p), "shape=[", "form=["); }},
      {"a phase without samples", [](auto& p) { p["phases"][1]["samples"] = 0; }},
      {"data of all bytes there are", [](auto& p) { p["data_bytes"] = kMost; }},
      {"an overhead of all bytes there are", [](auto& p) { p["overhead_bytes"] = kMost; }},
      {"an overhead smaller than it is", [](auto& p) { p["overhead_bytes"] = 0; }},
      {"bytes that are no whole number", [](auto& p) { p["arena_bytes"] = 1e300; }},
      {"bytes above 2^63", [](auto& p) { p["arena_bytes"] = ~uint64_t{0}; }},
      {"a level of recompute there is not", [](auto& p) { p["settings"]["recompute"] = 1 << 30; }},
      {"another level of recompute", [](auto& p) { p["settings"]["recompute"] = 1; }},
      {"a share that nobody offers", [](auto& p) { p["settings"]["offload"] = 1; }},
      {"a setting that is no whole number", [](auto& p) { p["settings"]["offload"] = 1e-300; }},
      {"a setting below off", [](auto& p) { p["settings"]["prefetch"] = -1; }},
      {"more read ahead than any plan does", [](auto& p) { p["settings"]["prefetch"] = 1000; }},
      {"a cut into more than the batch", [](auto& p) { p["settings"]["micro-batch"] = 9; }},
      {"a cut that its phases do not have", [](auto& p) { p["settings"]["micro-batch"] = 4; }},
      {"a lever that nobody has", [](auto& p) { p["settings"]["magic"] = 1; }},
      {"an unknown kernel", [](auto& p) { p["phases"][0]["nodes"][0][0] = "no-such-kernel"; }},
      {"a larger workspace", [](auto& p) { p["phases"][0]["nodes"][0][2] = kMost - 255; }},
      {"a lifetime of all nodes", [](auto& p) { p["phases"][0]["values"].back()[2] = 1 << 30; }},
  };
  AmpleProblem problem(golden("cnn.keras"));
  problem.request.evaluate_batch = 8;
  const nlohmann::json whole = to_json(require(search(problem.request)).plan);
  for (const auto& [what, edit] : edits) {
    nlohmann::json edited = whole;
    edit(edited);
    ASSERT_NE(edited, whole) << what;
    for (const bool of_checkpoint : {false, true}) {
      const auto read = plan_from_json(edited);
      if (!read) {
        EXPECT_EQ(read.error().code, ErrorCode::kBadPlan) << what;
        continue;
      }
      const GivenPlan given{*read, "file", of_checkpoint};
      if (const Status valid = check_plan(given); !valid) {
        EXPECT_EQ(valid.error().code, of_checkpoint ? ErrorCode::kBadCheckpoint : ErrorCode::kBadPlan) << what;
        continue;
      }
      const auto accepted = accept_plan(given, problem.request);
      // A consistent but different plan is never executed. For a checkpoint, the plan compiled here is used, with a
      // note.
      if (accepted) {
        EXPECT_TRUE(of_checkpoint) << what;
        EXPECT_NE(accepted->note, "") << what;
        EXPECT_TRUE(validate(accepted->result.plan)) << what;
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
