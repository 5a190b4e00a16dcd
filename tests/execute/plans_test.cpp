// Several plans in one arena: plans that take turns, and a plan that replaces another.
#include <gtest/gtest.h>

#include "execute/probe.h"
#include "tests/support/compiled.h"
#include "tests/support/run.h"

namespace plimsoll::engine::testing {
namespace {

// Returns a plan for the session of a run, for `batch` samples in micro-batches of `micro`.
Plan plan_for(const ModelRun& run, int64_t batch, int64_t micro, int recompute = 0) {
  SearchRequest request = run.request;
  request.batch = batch;
  request.arena = run.session->kept();
  return compiled(request, micro, recompute);
}

RunOptions options_for(const std::string& device, int64_t batch) {
  RunOptions options;
  options.device = device;
  options.batch_size = batch;
  options.alone = false;
  return options;
}

// Copies the persistent values from one session to another.
void copy_values(const Session& from, Session& to) {
  const HostView values = require(from.look());
  for (const PersistentSlot& slot : from.persistent())
    if (to.has_persistent(slot.name))
      require(to.store(slot.name, [&](const TensorView& view) -> Status {
        std::memcpy(view.data, values[slot.name].data, static_cast<size_t>(view.type.bytes()));
        return {};
      }));
}

double step(ModelRun& run, int64_t first, int64_t count) {
  static ColumnSource data = golden_data("cnn", run.open.model);
  return run.step(data, first, count);
}

TEST(Plans, OfTwoBatchSizesTakeTurnsInOneArenaWithTheLossesOfSeparateRuns) {
  for (const std::string& device : devices()) {
    const auto shared = run_of(golden("cnn.keras"), options_for(device, 8));
    const auto eight = run_of(golden("cnn.keras"), options_for(device, 8));
    const auto twelve = run_of(golden("cnn.keras"), options_for(device, 12));
    const Bytes before = shared->plan().arena_bytes;
    const size_t other = require(shared->session->add_plan(shared->open.model, plan_for(*shared, 12, 12)));
    EXPECT_EQ(shared->plan().batch.effective, 8) << "adding a plan does not take it";
    for (int i = 0; i < 20; ++i) {
      require(shared->session->use(i % 2 == 0 ? 0 : other));
      ModelRun& alone = i % 2 == 0 ? *eight : *twelve;
      ModelRun& previous = i % 2 == 0 ? *twelve : *eight;
      if (i > 0) copy_values(*previous.session, *alone.session);
      alone.state = shared->state;
      const int64_t count = i % 2 == 0 ? 8 : 12;
      EXPECT_EQ(step(*shared, 0, count), step(alone, 0, count)) << device << ", step " << i;
    }
    EXPECT_GT(shared->session->arena_peak_bytes(), before) << "the larger plan runs in a grown arena";
    EXPECT_EQ(shared->session->arena_peak_bytes(), twelve->plan().arena_bytes);
  }
}

TEST(Plans, ThatReplaceOneAnotherGoOnWithTheLossesTheRunWouldHaveHad) {
  for (const std::string& device : devices()) {
    const auto changed = run_of(golden("cnn.keras"), options_for(device, 12));
    const auto same = run_of(golden("cnn.keras"), options_for(device, 12));
    const Bytes whole = changed->plan().arena_bytes;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(step(*changed, 0, 12), step(*same, 0, 12)) << device;

    // Micro-batches add in another order, so results are equal up to rounding. The arena of the dropped plan is
    // released.
    require(changed->session->change_plan(changed->open.model, plan_for(*changed, 12, 4)));
    Probe(*changed->session).fill_pattern();
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(step(*changed, 0, 12), step(*same, 0, 12), 1e-5) << device;
    EXPECT_EQ(Probe(*changed->session).first_changed_byte(changed->plan().arena_bytes), -1);
    EXPECT_EQ(changed->session->arena_peak_bytes(), changed->plan().arena_bytes);

    // Change back: accumulated gradients need no memory any more.
    require(changed->session->change_plan(changed->open.model, plan_for(*changed, 12, 12)));
    EXPECT_EQ(changed->plan().arena_bytes, whole);
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(step(*changed, 0, 12), step(*same, 0, 12), 1e-5) << device;
  }
}

TEST(Plans, WithMoreRecomputeGoOnWithTheSameBits) {
  for (const std::string& device : host_devices()) {
    const auto changed = run_of(golden("resnet.keras"), options_for(device, 8));
    const auto same = run_of(golden("resnet.keras"), options_for(device, 8));
    const ColumnSource data = golden_data("resnet", same->open.model);
    for (const int percent : {0, 15, 0}) {
      require(changed->session->change_plan(changed->open.model, plan_for(*changed, 8, 8, percent)));
      for (int i = 0; i < 3; ++i) EXPECT_EQ(changed->step(data, 0, 8), same->step(data, 0, 8)) << device;
      EXPECT_EQ(changed->session->arena_peak_bytes(), changed->plan().arena_bytes);
    }
  }
}

TEST(Plans, OfAnotherArenaAreRefusedAndTheRunGoesOn) {
  const auto run = run_of(golden("cnn.keras"), options_for(fast_device(), 8));
  const auto same = run_of(golden("cnn.keras"), options_for(fast_device(), 8));
  Plan moved = plan_for(*run, 8, 4);
  std::swap(moved.persistent[0].name, moved.persistent[1].name);
  Plan foreign = compiled(
      [&] {
        SearchRequest request = run->request;
        request.batch = 0;
        request.predict_batch = 8;
        return request;
      }(),
      0, 0);  // made for another arena, with fewer persistent values
  for (const Plan& plan : {moved, foreign}) {
    EXPECT_FALSE(run->session->add_plan(run->open.model, plan));
    EXPECT_FALSE(run->session->change_plan(run->open.model, plan));
  }
  EXPECT_FALSE(run->session->use(1));
  EXPECT_EQ(step(*run, 0, 8), step(*same, 0, 8));
}

// Fails at the bind() or the held_bytes() that is counted down to.
struct Faults {
  int binds_left = -1, looks_left = -1;  // below 0: none fails
};
class FaultyBackend final : public ForwardingBackend {
 public:
  FaultyBackend(std::unique_ptr<Backend> backend, Faults& faults)
      : ForwardingBackend(std::move(backend)), faults_(faults) {}

  Result<std::unique_ptr<Kernel>> bind(const BoundNode& node) const override {
    if (faults_.binds_left >= 0 && faults_.binds_left-- == 0) return fail(ErrorCode::kOutOfMemory, "no kernel");
    return ForwardingBackend::bind(node);
  }
  Bytes held_bytes() const override {
    if (faults_.looks_left >= 0 && faults_.looks_left-- == 0) return Bytes{1} << 50;
    return ForwardingBackend::held_bytes();
  }

 private:
  Faults& faults_;
};

TEST(Plans, ThatCannotBeAddedOrChangedLeaveTheSessionAsItWas) {
  for (const std::string& device : host_devices()) {
    Faults faults;
    RunOptions options = options_for(device, 8);
    options.wrap_backend = [&](std::unique_ptr<Backend> backend) {
      return std::make_unique<FaultyBackend>(std::move(backend), faults);
    };
    const auto run = run_of(golden("cnn.keras"), options);
    const auto same = run_of(golden("cnn.keras"), options_for(device, 8));
    const auto goes_on = [&](const std::string& what) {
      EXPECT_EQ(run->plan().batch.effective, 8) << what;
      EXPECT_FALSE(run->session->use(1)) << what << " stays in the list";
      EXPECT_EQ(step(*run, 0, 8), step(*same, 0, 8)) << device << ", " << what;
    };
    const Plan larger = plan_for(*run, 12, 12);
    for (const Faults& fault : {Faults{0, -1}, Faults{3, -1}, Faults{-1, 0}}) {
      faults = fault;
      EXPECT_FALSE(run->session->add_plan(run->open.model, larger)) << device;
      goes_on("the plan that was not added");
      faults = fault;
      EXPECT_FALSE(run->session->change_plan(run->open.model, larger)) << device;
      goes_on("the plan that did not replace another");
    }
    EXPECT_EQ(require(run->session->add_plan(run->open.model, larger)), 1U) << "without a fault it is added";
  }
}

TEST(Plans, LayPersistentValuesOutAlikeWhateverTheirPhasesAre) {
  const auto run = run_of(golden("cnn.keras"), options_for(fast_device(), 8));
  SearchRequest request = run->request;
  const Plan whole = compiled(request, 8, 0), cut = compiled(request, 2, 0);
  request.evaluate_batch = request.evaluate_samples = 8;
  const Plan evaluating = compiled(request, 2, 20);
  for (const Plan* other : {&cut, &evaluating})
    for (const PersistentSlot& slot : whole.persistent) {
      ASSERT_NE(other->slot(slot.name), nullptr) << slot.name;
      EXPECT_EQ(other->slot(slot.name)->offset, slot.offset) << slot.name;
    }
}

}  // namespace
}  // namespace plimsoll::engine::testing
