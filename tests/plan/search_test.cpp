// Tests which plan a budget selects, on real models.
#include "search/search.h"

#include <fstream>

#include "backends/cuda/cuda.h"
#include "levers/relu_pooling.h"
#include "plan/order.h"
#include "tests/support/compiled.h"
#include "tests/support/problem.h"

namespace plimsoll::engine::testing {
namespace {

const std::vector<std::string>& models() {
  static const std::vector<std::string> list = {golden("cnn.keras"),
                                                golden("resnet.keras"),
                                                golden("mlp.keras"),
                                                golden("oldest.keras"),
                                                "seed-1",
                                                "seed-2",
                                                "seed-3",
                                                "fashion-cnn"};
  return list;
}

TEST(Search, LessBudgetNeverNeedsMoreAndMoreBudgetIsNeverSlower) {
  for (const std::string& model : {golden("oldest.keras"), golden("cnn.keras"), golden("mlp.keras")}) {
    Problem problem(model, 32);
    const SearchResult all = require(search(problem.request));
    std::vector<Bytes> budgets;
    for (const Candidate& candidate : all.candidates)
      for (Bytes delta : {Bytes{-1}, Bytes{0}, Bytes{1}, Bytes{100'000}})
        budgets.push_back(candidate.peak_bytes + delta);
    std::sort(budgets.begin(), budgets.end());
    Bytes peak = 0;
    double seconds = INFINITY;
    for (Bytes budget : budgets) {
      problem.request.budget = budget;
      const SearchResult result = require(search(problem.request));
      EXPECT_EQ(result.fits, budget >= result.least_bytes) << model << " in " << budget;
      if (!result.fits) continue;
      EXPECT_LE(result.plan.peak_bytes(), budget) << model;
      EXPECT_GE(result.plan.peak_bytes(), peak) << model << " in " << budget;
      EXPECT_LE(result.plan.step_seconds, seconds) << model << " in " << budget;
      peak = result.plan.peak_bytes();
      seconds = result.plan.step_seconds;
    }
    EXPECT_LT(seconds, INFINITY) << model;
  }
}

// On a card with a link to the host, so that offload is among the candidates.
TEST(Search, TheSameIsSelectedWhetherTheLeastIsLookedForOrNot) {
  bool offloads = false;
  for (const std::string& model : {golden("resnet.keras"), golden("cnn.keras")}) {
    Problem problem(model, 64);
    problem.backend = make_planned_gpu(require(cuda::card_from_profile("rtx-3060-12g")));
    problem.request.device = &problem.backend->device();
    problem.request.graph.precision = DType::kFloat32;
    problem.request.data = {};
    std::vector<Bytes> budgets;
    const SearchResult unlimited = require(search(problem.request));
    for (const Candidate& candidate : unlimited.candidates) budgets.push_back(candidate.peak_bytes);
    problem.request.budget = unlimited.least_bytes;
    for (const Candidate& candidate : require(search(problem.request)).candidates)
      budgets.push_back(candidate.peak_bytes);
    std::sort(budgets.begin(), budgets.end());
    double seconds = INFINITY;
    for (Bytes budget : budgets) {
      problem.request.budget = budget;
      problem.request.find_least = true;
      const SearchResult all = require(search(problem.request));
      problem.request.find_least = false;
      const SearchResult some = require(search(problem.request));
      ASSERT_TRUE(all.fits && some.fits) << model << " in " << budget;
      EXPECT_EQ(to_json(all.plan), to_json(some.plan)) << model << " in " << budget;
      EXPECT_LE(all.plan.step_seconds, seconds) << model << " in " << budget;
      seconds = all.plan.step_seconds;
      offloads = offloads || all.plan.bytes_in(Space::kHost) > 0;
    }
  }
  EXPECT_TRUE(offloads);
}

// The second device has its own memory, where a staged batch counts against the budget.
const std::vector<std::string>& shared_and_own_memory() {
  static const std::vector<std::string> list = {fast_device(), "rtx-4090-24g"};
  return list;
}

TEST(Search, ABudgetTooSmallSaysTheLeastThatWouldDo) {
  for (const std::string& device : shared_and_own_memory())
    for (const std::string& model : models()) {
      const std::string where = model + " on " + device;
      Problem problem(model, 32, device);
      problem.request.evaluate_batch = model == models()[0] ? 1000 : 0;
      problem.request.budget = kMiB;
      const SearchResult none = require(search(problem.request));
      ASSERT_FALSE(none.fits) << where;
      EXPECT_EQ(none.least_bytes, none.plan.peak_bytes()) << where;
      const Error error = does_not_fit(problem.request, none);
      EXPECT_EQ(error.code, ErrorCode::kDoesNotFit);
      EXPECT_NE(to_text(error).find(std::to_string(none.least_bytes)), std::string::npos) << to_text(error);

      // The remedies are the same if the smallest plan was not requested.
      problem.request.find_least = false;
      EXPECT_EQ(to_text(does_not_fit(problem.request, require(search(problem.request)))), to_text(error)) << where;
      EXPECT_EQ(to_text(error).find(" 0 B"), std::string::npos) << to_text(error);

      problem.request.budget = none.least_bytes;
      const SearchResult least = require(search(problem.request));
      EXPECT_TRUE(least.fits) << where;
      EXPECT_LE(least.plan.peak_bytes(), none.least_bytes) << where;
      problem.request.budget = none.least_bytes - 1;
      EXPECT_FALSE(require(search(problem.request)).fits) << where;
    }
}

TEST(Search, TheLeastDoesNotDependOnTheBudget) {
  for (const std::string& device : shared_and_own_memory())
    for (const std::string& model : models()) {
      Problem problem(model, 32, device);
      problem.request.budget = kMiB;
      const Bytes least = require(search(problem.request)).least_bytes;
      for (const Bytes budget : {least / 2, least - 1, least, 2 * least}) {
        problem.request.budget = budget;
        const SearchResult result = require(search(problem.request));
        EXPECT_EQ(result.fits, budget >= least) << model << " in " << budget;
        // Where a plan fits, the batch is not cut into pieces to find a smaller one.
        if (result.fits)
          EXPECT_GE(result.least_bytes, least) << model << " in " << budget;
        else
          EXPECT_EQ(result.least_bytes, least) << model << " in " << budget;
      }
    }
}

TEST(Search, TheSameRequestGivesTheSamePlan) {
  Problem problem(golden("resnet.keras"), 32);
  EXPECT_EQ(to_json(require(search(problem.request)).plan), to_json(require(search(problem.request)).plan));
}

// Packing is within 2 % of the live set for every phase of every model, whole and split, with and without recompute.
TEST(Search, PackingIsWithinTwoPercentOfTheLiveSet) {
  double worst = 0;
  std::string where;
  for (const std::string& model : models())
    for (const int64_t batch : {32, 128}) {
      Problem problem(model, batch);
      problem.request.per_micro_batch_norm = true;
      problem.request.evaluate_batch = batch;
      for (const int64_t micro : {batch, batch / 4, int64_t{3}})
        for (const int recompute : {0, 10, 40}) {
          const Plan plan = compiled(problem.request, micro, recompute);
          ASSERT_TRUE(validate(plan));
          for (const PhasePlan& phase : plan.phases) {
            const double gap = static_cast<double>(phase.arena_bytes) / static_cast<double>(phase.live_set_bytes) - 1;
            EXPECT_LE(gap, 0.02) << model << " batch " << batch << " micro " << micro << " recompute " << recompute
                                 << " " << to_text(phase.name);
            EXPECT_GE(gap, 0);
            if (gap > worst) worst = gap, where = model + " " + to_text(phase.name);
          }
        }
    }
  std::printf("largest gap %.3f %% (%s)\n", 100 * worst, where.c_str());
}

// Architectures of keras.applications at 64 px, written by tests/golden/model/make.py.
OpenModel application(const std::string& name) {
  std::ifstream file(golden("model/" + name + ".json"));
  ModelOptions compiled;
  compiled.optimizer = "adam";
  compiled.loss = "sparse_categorical_crossentropy";
  const Description description{nlohmann::json::parse(file).at(0).at("config"), nlohmann::json()};
  return require(open_description(description, name, compiled));
}

void expect_order_no_worse(const Problem& problem, const std::string& name) {
  const Graph graph =
      mask_relu_after_pooling(require(train_phase(problem.open.model, 32, problem.request.graph)).graph).graph;
  const LoweredGraph program = require(lower(graph, problem.backend->device()));
  const Bytes before = live_set_of(program), after = live_set_of(reorder_for_memory(program));
  EXPECT_LE(after, before) << name;
  std::printf("%-14s %9s in program order, %9s as run\n", name.c_str(), format_bytes(before).c_str(),
              format_bytes(after).c_str());
}

TEST(Search, TheLiveSetIsNeverAboveThatOfProgramOrder) {
  for (const std::string& model : models()) {
    const Problem problem(model, 32);
    expect_order_no_worse(problem, problem.open.model.name());
  }
  for (const std::string name : {"resnet50", "mobilenet_v2"}) expect_order_no_worse({application(name), 32}, name);
}

// Ten convolutions, each followed by batch normalisation.
OpenModel normalised_convolutions() {
  std::vector<SequentialItem> list = {layers::Input({24, 24, 3})};
  for (int i = 0; i < 10; ++i)
    for (const plimsoll::Layer& layer : {layers::Conv2D(16, {3, 3}, {.padding = "same", .use_bias = false}),
                                         layers::BatchNormalization(), layers::Activation("relu")})
      list.push_back(layer);
  list.push_back(layers::GlobalAveragePooling2D());
  list.push_back(layers::Dense(10, {.activation = "softmax"}));
  const auto model = require(require(sequential(list)).compile({.loss = losses::SparseCategoricalCrossentropy()}));
  return require(open_description(described(model).description, "", {}));
}

// Statistics of the whole batch forbid splitting it. Recompute alone brings such a model to half of its live set.
TEST(Search, HalfTheLiveSetIsEnoughWhereTheBatchMayNotBeCut) {
  Problem problem(normalised_convolutions(), 32);
  const Plan kept = compiled(problem.request, 32);
  problem.request.budget = kept.overhead_bytes + kept.data_bytes + kept.phase(PhaseKind::kTrain)->live_set_bytes / 2;
  const SearchResult result = require(search(problem.request));
  ASSERT_TRUE(result.fits) << result.least_bytes << " of " << problem.request.budget;
  EXPECT_EQ(result.plan.batch.micro, 32);
  ASSERT_EQ(result.plan.levers.size(), 1U);
  EXPECT_EQ(result.plan.levers[0].name, "recompute");
  EXPECT_EQ(result.plan.levers[0].effect, Effect::kBitwise);
  EXPECT_GT(result.least_compute_seconds, 0);
  EXPECT_LE(result.least_compute_seconds, result.plan.compute_seconds);
  EXPECT_LT(result.plan.compute_seconds, 1.03 * result.least_compute_seconds);
  EXPECT_GT(result.plan.levers[0].saves_bytes, 0);
  EXPECT_GT(result.plan.levers[0].costs_seconds, 0);
  EXPECT_LT(result.plan.step_seconds, 1.4 * kept.step_seconds);  // a whole second forward pass would cost a third more
}

// The bytes and seconds of the levers, added one after the other, sum to those of the plan.
TEST(Search, LeversArePricedOneByOne) {
  size_t most = 0;
  for (const std::string& model : models())
    for (const int64_t batch : {3, 32}) {
      Problem problem(model, batch, "h200-141g");
      const SearchResult whole = require(search(problem.request));
      for (const double share : {0.0, 0.3, 0.6, 0.9}) {
        problem.request.budget =
            whole.least_bytes +
            static_cast<Bytes>(share * static_cast<double>(whole.plan.peak_bytes() - whole.least_bytes));
        const SearchResult found = require(search(problem.request));
        Bytes saved = 0;
        double cost = 0;
        for (const LeverUse& lever : found.plan.levers) {
          saved += lever.saves_bytes;
          cost += lever.costs_seconds;
        }
        if (found.plan.levers.empty()) continue;
        EXPECT_EQ(saved, found.unlevered_arena_bytes - found.plan.arena_bytes) << model << " " << share;
        EXPECT_NEAR(cost, found.plan.compute_seconds - found.unlevered_seconds, 1e-12) << model << " " << share;
        most = std::max(most, found.plan.levers.size());
      }
    }
  EXPECT_GT(most, 1U);
}

// If the user splits the batch, no candidate has the whole batch.
TEST(Search, ABatchCutByHandIsPricedAgainstTheWhole) {
  Problem problem("fashion-cnn", 32);
  const SearchResult whole = require(search(problem.request));
  problem.request.micro_batch = 4;
  const SearchResult cut = require(search(problem.request));
  const auto lever = std::find_if(cut.plan.levers.begin(), cut.plan.levers.end(),
                                  [](const LeverUse& l) { return l.name == "micro-batch"; });
  ASSERT_NE(lever, cut.plan.levers.end());
  EXPECT_GT(lever->saves_bytes, 0);
  EXPECT_EQ(cut.unlevered_arena_bytes, whole.unlevered_arena_bytes);
  EXPECT_EQ(cut.bytes_per_sample, whole.bytes_per_sample);
}

TEST(Search, OneSampleKnowsWhatTheNextWouldAdd) {
  const SearchResult one = require(search(Problem("fashion-cnn", 1).request));
  EXPECT_GT(one.bytes_per_sample, 0);
  EXPECT_EQ(one.fixed_bytes + one.bytes_per_sample, one.unlevered_arena_bytes);
}

TEST(Search, EachSettingOfRecomputeLeavesLessForMoreTime) {
  Problem problem(normalised_convolutions(), 32);
  Compiler compiler = require(Compiler::create(problem.request, {}));
  Bytes live = INT64_MAX;
  double seconds = 0;
  int count = 0;
  for (const RecomputePoint& point : compiler.recompute_points()) {
    const Plan plan = compiled(problem.request, 32, point.percent);
    EXPECT_EQ(plan.phase(PhaseKind::kTrain)->live_set_bytes, plan.persistent_bytes + point.live) << point.percent;
    EXPECT_EQ(plan.compute_seconds, point.compute_seconds) << point.percent;
    EXPECT_LT(point.live, live) << point.percent;
    EXPECT_GT(point.compute_seconds, seconds) << point.percent;
    EXPECT_TRUE(validate(plan));
    live = point.live;
    seconds = point.compute_seconds;
    ++count;
  }
  EXPECT_GE(count, 10);
}

TEST(Search, APlanComesBackFromItsTextAsItWas) {
  for (const std::string& device : devices())
    for (const std::string& model : {golden("cnn.keras"), golden("resnet.keras"), golden("mlp.keras")}) {
      Problem problem(model, 8, device);
      problem.request.per_micro_batch_norm = true;
      problem.request.micro_batch = 3;
      problem.request.evaluate_batch = 8;
      const Plan plan = require(search(problem.request)).plan;
      const nlohmann::json json = to_json(plan);
      const Plan read = require(plan_from_json(nlohmann::json::parse(json.dump())));
      EXPECT_EQ(to_json(read), json) << model;
      EXPECT_TRUE(validate(read)) << model;
      ASSERT_EQ(read.phases.size(), plan.phases.size());
      for (size_t i = 0; i < plan.phases.size(); ++i)
        EXPECT_EQ(print(read.phases[i].graph), print(plan.phases[i].graph)) << model;
      EXPECT_EQ(read.peak_bytes(), plan.peak_bytes());
      EXPECT_EQ(read.batch.micro, plan.batch.micro);
    }
}

TEST(Search, DamagedPlansAreRefusedWithoutACrash) {
  Problem problem(golden("mlp.keras"), 8);
  const nlohmann::json whole = to_json(require(search(problem.request)).plan);
  for (const auto& [key, value] : whole.items()) {
    nlohmann::json without = whole;
    without.erase(key);
    const auto read = plan_from_json(without);
    ASSERT_FALSE(read) << key;
    EXPECT_EQ(read.error().code, ErrorCode::kBadPlan) << key;
    nlohmann::json other = whole;
    other[key] = nlohmann::json::array({"what", nullptr});
    EXPECT_FALSE(plan_from_json(other)) << key;
  }
  EXPECT_FALSE(plan_from_json(nlohmann::json()));
  EXPECT_FALSE(plan_from_json(nlohmann::json::array()));
}

TEST(Search, BatchNormalisationForbidsAnAskedForMicroBatch) {
  Problem problem(golden("resnet.keras"), 32);
  problem.request.micro_batch = 8;
  const auto refused = search(problem.request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBatchNormForbidsMicroBatch);
  EXPECT_NE(to_text(refused.error()).find("--batchnorm per-micro-batch"), std::string::npos);

  problem.request.per_micro_batch_norm = true;
  const SearchResult allowed = require(search(problem.request));
  EXPECT_EQ(allowed.plan.batch.micro, 8);
  EXPECT_TRUE(allowed.plan.settings.of(kPerMicroBatchNorm) == 1);
  const auto changes_training = [](const LeverUse& lever) { return lever.effect == Effect::kTraining; };
  EXPECT_TRUE(std::any_of(allowed.plan.levers.begin(), allowed.plan.levers.end(), changes_training));
}

TEST(Search, NothingThatChangesTrainingIsChosenUnasked) {
  Problem problem(golden("resnet.keras"), 32);
  for (Bytes budget : {Bytes{0}, kMiB}) {
    problem.request.budget = budget;
    const SearchResult result = require(search(problem.request));
    EXPECT_EQ(result.plan.batch.micro, 32);
    for (const LeverUse& lever : result.plan.levers) EXPECT_NE(lever.effect, Effect::kTraining);
  }
}

TEST(Search, ForbiddenLeversAreNotUsed) {
  Problem problem("fashion-cnn", 32);
  problem.request.forbidden = {"micro-batch", "recompute", "prefetch"};
  problem.request.budget = kMiB;
  const SearchResult result = require(search(problem.request));
  EXPECT_EQ(result.plan.batch.micro, 32);
  EXPECT_TRUE(result.plan.levers.empty());
  EXPECT_EQ(result.plan.settings.of(kPrefetch), 0);
  EXPECT_EQ(result.candidates.size(), 1U);
}

// A recomputed value that is fused into its reader costs no time, but the kernels' seconds are added in another order.
TEST(Search, KernelsInAnotherOrderAreNoFaster) {
  for (const std::string& model : models()) {
    Problem problem(model, 32, "h200-141g");
    problem.request.graph.precision = Precision(DType::kFloat32, DType::kBFloat16);
    const SearchResult result = require(search(problem.request));
    for (const Candidate& one : result.candidates)
      EXPECT_TRUE(one.seconds == result.plan.compute_seconds || one.seconds - result.plan.compute_seconds > 1e-13)
          << model << ": " << one.seconds - result.plan.compute_seconds;
  }
}

// Eight wide Dense layers with Adam: 12 GiB of weights and optimizer state. Their gradients, 4 GiB, are not needed all
// at once.
TEST(Search, AGpuHoldsOneLargeGradientAtATime) {
  std::vector<SequentialItem> list = {layers::Input({11584})};
  for (int i = 0; i < 8; ++i) list.push_back(layers::Dense(11584, {.activation = "relu"}));
  list.push_back(layers::Dense(10, {.activation = "softmax"}));
  const auto model = require(require(sequential(list)).compile({.loss = losses::SparseCategoricalCrossentropy()}));
  Problem problem(require(open_description(described(model).description, "", {})), 32);
  problem.plan_for("t4-16g");
  problem.request.forbidden = {"recompute", "offload"};
  problem.request.find_least = false;
  const Bytes weight = Bytes{11584} * 11584 * 4;
  for (const int64_t micro : {32, 8}) {
    problem.request.micro_batch = micro;
    problem.request.budget = 0;
    const Plan plan = require(search(problem.request)).plan;
    // Weights and two states; a sum of gradients if the batch is cut; then one gradient, and what is small.
    const Bytes persistent = (micro == 32 ? 3 : 4) * 8 * weight;
    EXPECT_LE(plan.arena_bytes, persistent + weight + 100 * kMiB) << micro;
  }
}

TEST(Search, AStepThatReadsNothingAheadWaitsForItsData) {
  Problem problem("seed-2", 128);
  const Plan ahead = require(search(problem.request)).plan;
  problem.request.forbidden = {"prefetch"};
  const Plan waits = require(search(problem.request)).plan;
  EXPECT_GT(waits.input_seconds, 0);
  EXPECT_EQ(waits.input_seconds, ahead.input_seconds);
  EXPECT_EQ(waits.compute_seconds, ahead.compute_seconds);
  EXPECT_EQ(ahead.step_seconds, std::max(ahead.compute_seconds, ahead.input_seconds));
  EXPECT_NEAR(waits.step_seconds, waits.compute_seconds + waits.input_seconds, 1e-12);
  EXPECT_LT(ahead.step_seconds, waits.step_seconds);
}

// A batch of 128 images of 128 x 128 x 3 floats takes longer over the link than the H200 takes to process it.
TEST(Search, AStepIsNoShorterThanTheCopyOfItsDataToAGpu) {
  Problem problem("seed-2", 128);
  problem.plan_for("h200-141g");
  const Plan plan = require(search(problem.request)).plan;
  const double images = 128.0 * 128 * 128 * 3 * 4;
  EXPECT_GE(plan.input_seconds, images / problem.request.device->host_bytes_per_second());
  EXPECT_LE(plan.input_seconds, 1.01 * images / problem.request.device->host_bytes_per_second());
  EXPECT_EQ(plan.step_seconds, std::max(plan.compute_seconds, plan.input_seconds));
}

// Evaluation batches are split until they need no more memory than training.
TEST(Search, EvaluationNeverNeedsMoreThanTraining) {
  Problem problem(golden("cnn.keras"), 4);
  const Bytes training = require(search(problem.request)).plan.arena_bytes;
  problem.request.evaluate_batch = 1000;
  problem.request.evaluate_samples = 1001;
  problem.request.predict_batch = 0;
  const Plan plan = require(search(problem.request)).plan;
  EXPECT_EQ(plan.arena_bytes, training);
  ASSERT_NE(plan.phase(PhaseKind::kEvaluate), nullptr);
  EXPECT_LT(plan.phase(PhaseKind::kEvaluate)->samples, 1000);
}

TEST(Search, ATailUnforeseenIsPlannedInsideTheArena) {
  for (const int64_t micro : {8, 3}) {
    Problem problem(golden("cnn.keras"), 8);
    problem.request.micro_batch = micro;
    const Plan plan = require(search(problem.request)).plan;
    for (int64_t samples = 1; samples < micro; ++samples) {
      const PhasePlan tail = require(plan_tail(problem.request, plan, plan.gradient_phase(), samples));
      EXPECT_EQ(tail.samples, samples);
      EXPECT_LE(tail.arena_bytes, plan.arena_bytes);
      Plan with = plan;
      with.phases.push_back(tail);
      EXPECT_TRUE(validate(with));
    }
    EXPECT_FALSE(plan_tail(problem.request, plan, plan.gradient_phase(), 64));
  }
}

}  // namespace
}  // namespace plimsoll::engine::testing
