// Tests that a remedy gives what it promises: its flags, typed, make a plan of exactly these bytes and this time.
#include "search/remedies.h"

#include <fmt/format.h>

#include "search/half_precision.h"
#include "search/micro_batch.h"
#include "tests/support/problem.h"

namespace plimsoll::engine::testing {
namespace {

// The request after the remedy's flags are typed and its budget is set.
SearchRequest with(const Remedy& remedy, SearchRequest request) {
  if (remedy.flags.find("--batchnorm per-micro-batch") != std::string::npos) request.per_micro_batch_norm = true;
  if (remedy.flags.find("--precision mixed_bfloat16") != std::string::npos)
    request.graph.precision.compute = DType::kBFloat16;
  for (const std::string& flag : remedy.leave_out) {
    if (flag == "--micro-batch") request.micro_batch.reset();
    if (flag.find("--forbid") != std::string::npos) request.forbidden.clear();
  }
  if (remedy.budget > 0) request.budget = remedy.budget;
  return request;
}

// Returns the number of remedies with this budget.
size_t expect_kept_promises(const SearchRequest& request, const std::string& where) {
  const SearchResult none = require(search(request));
  if (none.fits) return 0;
  const std::vector<Remedy> list = remedies(request, none);
  for (const Remedy& remedy : list) {
    const std::string text = where + ": " + to_text(remedy);
    const SearchResult found = require(search(with(remedy, request)));
    EXPECT_TRUE(found.fits) << text;
    EXPECT_EQ(found.plan.peak_bytes(), remedy.peak_bytes) << text;
    EXPECT_EQ(found.plan.step_seconds, remedy.step_seconds) << text;
    EXPECT_NEAR(remedy.times, found.plan.step_seconds / none.unlevered_step_seconds(), 1e-12) << text;
  }
  return list.size();
}

TEST(Remedies, GiveTheBytesAndTheTimeThatTheyPromise) {
  for (const std::string& device : {fast_device(), std::string("rtx-4090-24g")})
    for (const std::string& model : {golden("resnet.keras"), golden("cnn.keras"), std::string("seed-2")}) {
      Problem problem(model, 64, device);
      problem.request.budget = kMiB;
      const Bytes least = require(search(problem.request)).least_bytes;
      for (const Bytes budget : {kMiB, least - 1}) {
        problem.request.budget = budget;
        EXPECT_GT(expect_kept_promises(problem.request, fmt::format("{} on {} in {}", model, device, budget)), 0U);
      }
    }
}

TEST(Remedies, GiveWhatTheyPromiseWithoutTheUsersLimits) {
  Problem problem("seed-2", 64, "rtx-4090-24g");
  problem.request.forbidden = {std::string(kMicroBatch), "recompute"};
  problem.request.budget = 500 * kMiB;
  EXPECT_GT(expect_kept_promises(problem.request, "forbidden"), 1U);
  problem.request.forbidden.clear();
  problem.request.micro_batch = 48;
  EXPECT_GT(expect_kept_promises(problem.request, "--micro-batch"), 1U);
}

// If the smallest plan takes much longer, a larger budget with a faster plan is proposed as well.
TEST(Remedies, NameTheBudgetOfAFasterPlanIfTheSmallestIsSlow) {
  int slow = 0;
  for (const std::string& model : {std::string("seed-1"), std::string("seed-2"), std::string("fashion-cnn")})
    for (const int64_t batch : {16, 64}) {
      Problem problem(model, batch, "rtx-4090-24g");
      problem.request.forbidden = {std::string(kMicroBatch)};
      problem.request.data = {};  // otherwise a step may take as long as the copy of its data
      problem.request.budget = kMiB;
      const SearchResult none = require(search(problem.request));
      std::vector<Remedy> budgets;
      for (const Remedy& remedy : remedies(problem.request, none))
        if (remedy.flags.empty() && remedy.leave_out.empty()) budgets.push_back(remedy);
      ASSERT_FALSE(budgets.empty()) << model;
      if (budgets[0].times <= 1.5) continue;
      ++slow;
      ASSERT_EQ(budgets.size(), 2U) << model;
      EXPECT_GT(budgets[1].budget, budgets[0].budget) << model;
      EXPECT_LE(budgets[1].times, 1.5) << model;
    }
  EXPECT_GT(slow, 0) << "no smallest plan is slow";
}

}  // namespace
}  // namespace plimsoll::engine::testing
