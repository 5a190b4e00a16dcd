// Tests that --batch-size auto is the batch that is fastest per sample.
#include "search/auto_batch.h"

#include "levers/split_batch.h"
#include "search/micro_batch.h"
#include "tests/support/problem.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kMost = 64;

SearchRequest of_size(const Problem& problem, int64_t size) {
  SearchRequest request = problem.request;
  request.batch = size;
  return request;
}

// Seconds per sample of the best plan that does not cut the batch; infinity if none fits.
double per_sample(const Problem& problem, int64_t size) {
  SearchRequest whole = of_size(problem, size);
  whole.forbidden = {std::string(kMicroBatch), std::string(kSplit)};
  const SearchResult found = require(search(whole));
  return found.fits ? found.plan.step_seconds / static_cast<double>(size) : INFINITY;
}

struct Case {
  std::string model, device;
};

TEST(AutomaticBatch, IsTheFastestPerSampleThatFits) {
  int with_levers = 0, slower = 0;
  for (const Case& one : {Case{"seed-2", fast_device()}, Case{"seed-2", "rtx-4090-24g"},
                          Case{golden("resnet.keras"), "rtx-4090-24g"}, Case{golden("cnn.keras"), fast_device()}}) {
    Problem problem(one.model, 1, one.device);
    const Bytes least = require(search(of_size(problem, 1))).least_bytes;
    const Bytes most = require(search(of_size(problem, kMost))).plan.peak_bytes();
    for (const int64_t percent : {0, 1, 2, 5, 10, 40, 100}) {
      problem.request.budget = least + percent * (most - least) / 100;
      const auto request_of = [&](int64_t size) { return of_size(problem, size); };
      const BestBatch found = require(best_batch(request_of, kMost));
      const int64_t chosen = found.size;
      int64_t best = 1;
      for (int64_t size = 2; size <= kMost; size *= 2)
        if (per_sample(problem, size) < per_sample(problem, best)) best = size;
      EXPECT_EQ(chosen, best) << one.model << " on " << one.device << " with " << percent << " percent";
      if (found.next_times > 0) {
        EXPECT_NEAR(found.next_times, per_sample(problem, 2 * best) / per_sample(problem, best), 1e-9);
        ++slower;
      }
      SearchRequest plain = of_size(problem, chosen);
      plain.forbidden = {std::string(kMicroBatch), std::string(kSplit), "recompute", "offload"};
      with_levers += chosen > 1 && !require(search(plain)).fits ? 1 : 0;
    }
  }
  EXPECT_GT(with_levers, 0) << "no case needs a lever";
  EXPECT_GT(slower, 0) << "in no case would twice the size fit and take longer";
}

}  // namespace
}  // namespace plimsoll::engine::testing
