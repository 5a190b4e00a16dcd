// Memories and queues: each memory is packed, checked and saved like any other. A node on another queue than the
// compute queue keeps its values until a node has waited for it.
#include <gtest/gtest.h>

#include "device/host_backend.h"
#include "tests/support/fake_device.h"
#include "tests/support/one_phase.h"

namespace plimsoll::engine::testing {
namespace {

constexpr Bytes kValue = 4096;
constexpr Space kThird{2};

// Two values are in host memory at the same time, one is in a third memory.
const char* const kText = R"(graph "copies"
  %x = input f32[32,32] inputs
  %a = matmul(%x, %x) : f32[32,32] activations
  %a/sent = to_host(%a) : f32[32,32] activations space=host queue=to_host
  %b = matmul(%a, %x) : f32[32,32] activations
  %b/sent = to_host(%b) : f32[32,32] activations space=host queue=to_host
  %c = matmul(%b, %x) : f32[32,32] activations
  %c/sent = to_host(%c) : f32[32,32] activations space=2 queue=to_host
  %a/away = to_host_done(%a/sent, %a) : f32[32,32] activations space=host
  %b/away = to_host_done(%b/sent, %b) : f32[32,32] activations space=host
  %c/away = to_host_done(%c/sent, %c) : f32[32,32] activations space=2
  %d = matmul(%x, %x) : f32[32,32] activations
  %a/fetched = to_device(%a/away) : f32[32,32] activations queue=from_host
  %b/fetched = to_device(%b/away) : f32[32,32] activations queue=from_host
  %c/fetched = to_device(%c/away) : f32[32,32] activations queue=from_host
  %a/back = to_device_done(%a/fetched, %a/away) : f32[32,32] activations
  %b/back = to_device_done(%b/fetched, %b/away) : f32[32,32] activations
  %c/back = to_device_done(%c/fetched, %c/away) : f32[32,32] activations
  %e = matmul(%a/back, %b/back) : f32[32,32] activations
  %f = matmul(%e, %c/back) : f32[32,32] activations
  %g = matmul(%f, %d) : f32[32,32] activations
  output %g
)";

class Spaces : public ::testing::Test {
 protected:
  Spaces()
      : plan_(one_phase_plan(PhaseKind::kEvaluate, 1, require(choose_kernels(graph_of(kText), FakeDevice())),
                             place_phase)) {}

  Placement& place(const std::string& value) { return phase().values[static_cast<size_t>(phase().graph.find(value))]; }
  Node& node(const std::string& output) {
    Graph& graph = phase().graph;
    return graph.nodes[static_cast<size_t>(graph.value(graph.find(output)).producer)];
  }
  PhasePlan& phase() { return plan_.phases[0]; }
  void expect_refused(const std::string& message) const {
    const Status status = validate(plan_);
    ASSERT_FALSE(status) << "wanted: " << message;
    EXPECT_EQ(status.error().code, ErrorCode::kInternal);
    EXPECT_NE(status.error().what.find(message), std::string::npos) << status.error().what;
  }

  Plan plan_;
};

TEST_F(Spaces, EachMemoryIsPackedOnItsOwn) {
  EXPECT_EQ(print(phase().graph), kText);
  const std::vector<PlanMemory> beside = {{Space::kHost, "host", 2 * kValue}, {kThird, "2", kValue}};
  EXPECT_EQ(plan_.beside, beside);
  EXPECT_EQ(plan_.bytes_in(kThird), kValue);
  EXPECT_EQ(plan_.memories()[0], (PlanMemory{Space::kDevice, "host", plan_.arena_bytes}));
  EXPECT_EQ(place("c/sent").offset, 0);
  EXPECT_NE(place("a/sent").offset, place("b/sent").offset);
  EXPECT_EQ(place("a/away"), place("a/sent"));
  EXPECT_TRUE(validate(plan_)) << to_text(validate(plan_).error());
}

TEST_F(Spaces, APlanFromAFileHasTheSameMemories) {
  const Plan read = require(plan_from_json(to_json(plan_)));
  EXPECT_EQ(read.memories(), plan_.memories());
  EXPECT_EQ(read.phases[0].values, phase().values);
  EXPECT_EQ(print(read.phases[0].graph), kText);
  auto json = to_json(plan_);
  json["phases"][0]["beside"][0][0] = "99";
  EXPECT_FALSE(plan_from_json(json));
}

TEST_F(Spaces, TheValidatorLooksThroughEveryMemory) {
  const Plan good = plan_;
  place("a/sent").space = place("a/away").space = kThird;
  expect_refused("'a/sent' is in another memory than its graph says");
  plan_ = good;
  for (const char* name : {"a/sent", "a/away"}) place(name).offset = place("b/sent").offset;
  expect_refused("overlap at");
  plan_ = good;
  place("c/sent").offset = place("c/away").offset = kValue;
  expect_refused("outside the 4096 bytes of memory '2'");
  plan_ = good;
  phase().beside[1].bytes += kValue;
  expect_refused("8192 bytes of memory '2', but its highest value or workspace ends at 4096");
  plan_ = good;
  plan_.beside[1].bytes += kValue;
  expect_refused("8192 bytes of memory '2', but its phases need 4096");
  plan_ = good;
  plan_.beside.pop_back();
  expect_refused("no bytes of memory '2'");
  plan_ = good;
  plan_.beside.push_back({Space{3}, "3", kValue});
  expect_refused("memory '3' is used by no phase");
  for (const SpaceBytes wrong : {SpaceBytes{Space::kDevice, kValue}, SpaceBytes{kThird, kValue},
                                 SpaceBytes{Space{200}, kValue}, SpaceBytes{Space{3}, INT64_MAX}}) {
    plan_ = good;
    phase().beside.push_back(wrong);
    expect_refused("bytes of memory '");
  }
}

TEST_F(Spaces, OtherNodesThanCopiesTouchTheDevicesMemoryAlone) {
  node("e").inputs[1] = phase().graph.find("b/away");
  expect_refused("(matmul) uses 'b/away' in memory 'host'");
}

TEST_F(Spaces, ACopyOnAQueueOfItsOwnIsUnderWayUntilItIsWaitedFor) {
  const Plan good = plan_;
  const NodeId begun = phase().graph.value(phase().graph.find("a/sent")).producer;
  place("a").last = begun;
  expect_refused("'a' is used by node");
  plan_ = good;
  place("a/sent").last = begun;
  expect_refused("'a/sent' is used by node");
  // A node that reads the copy without waiting for it would see an incomplete copy.
  plan_ = good;
  node("a/fetched").inputs[0] = phase().graph.find("a/sent");
  expect_refused("starts a copy of 'a', but no node waits for it");
  plan_ = good;
  node("a/away").inputs[1] = phase().graph.find("b");
  expect_refused("starts a copy of 'a', but no node waits for it");
}

TEST_F(Spaces, AQueueIsForCopiesOfItsDirection) {
  const Plan good = plan_;
  node("a/sent").queue = Queue::kFromHost;
  expect_refused("copies 'a' from memory 'device' to 'host' on queue from_host");
  plan_ = good;
  for (const char* name : {"d", "a/away"}) {
    plan_ = good;
    node(name).queue = Queue::kToHost;
    expect_refused("is on queue to_host, which is only for copies");
  }
  plan_ = good;
  node("a/sent").queue = Queue::kCompute;  // slower, but correct
  EXPECT_TRUE(validate(plan_)) << to_text(validate(plan_).error());
}

TEST(HostBackendMemory, IsRefusedWhereItDoesNotReach) {
  class Plain final : public HostBackend {
   public:
    const Device& device() const override { return device_; }
    Result<std::unique_ptr<Kernel>> bind(const BoundNode&) const override { return std::unique_ptr<Kernel>(); }

   private:
    FakeDevice device_;
  };
  const Plain backend;
  EXPECT_TRUE(backend.reserve(Space::kDevice, kValue));
  EXPECT_TRUE(backend.reserve(Space::kHost, kValue));
  const auto refused = backend.reserve(kThird, kValue);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBadPlan);
}

}  // namespace
}  // namespace plimsoll::engine::testing
