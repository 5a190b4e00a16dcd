// Tests which values share memory, and the order in which nodes run.
#include "plan/storage.h"

#include <gtest/gtest.h>

#include <random>

#include "plan/order.h"
#include "tests/support/fake_device.h"
#include "tests/support/one_phase.h"

namespace plimsoll::engine::testing {
namespace {

LoweredGraph lowered(std::string_view text, Bytes workspace = 0) {
  FakeDevice device;
  device.workspace = workspace;
  return require(choose_kernels(graph_of(text), device));
}

bool together(const LoweredGraph& g, const StorageMap& map, const char* a, const char* b) {
  return map.of_value[static_cast<size_t>(g.graph.find(a))] == map.of_value[static_cast<size_t>(g.graph.find(b))];
}

TEST(Storage, AnOutputLiesOverAnInputThatDiesWhereTheOpAllowsIt) {
  const LoweredGraph g = lowered(R"(graph "g"
  %x = input f32[4,8] inputs
  %w = input f32[8,8] weights persistent
  %1 = matmul(%x, %w) : f32[4,8] activations
  %2 = tanh(%1) : f32[4,8] activations
  %3 = matmul(%2, %w) : f32[4,8] activations
  %4 = add(%2, %3) : f32[4,8] activations
  output %4
)");
  const StorageMap map = assign_storage(g);
  EXPECT_TRUE(together(g, map, "1", "2"));   // tanh runs in-place
  EXPECT_FALSE(together(g, map, "2", "3"));  // a product reads its input many times
  EXPECT_FALSE(together(g, map, "x", "1"));
  EXPECT_TRUE(together(g, map, "4", "2") || together(g, map, "4", "3"));
}

TEST(Storage, AnOutputNeverLiesOverWhatIsReadLaterOrPersists) {
  const LoweredGraph g = lowered(R"(graph "g"
  %x = input f32[4,8] inputs
  %w = input f32[4,8] weights persistent
  %1 = tanh(%x) : f32[4,8] activations
  %2 = sigmoid(%1) : f32[4,8] activations
  %3 = add(%1, %2) : f32[4,8] activations
  %4 = tanh(%w) : f32[4,8] activations
  output %3
  output %4
)");
  const StorageMap map = assign_storage(g);
  EXPECT_FALSE(together(g, map, "1", "2"));
  EXPECT_FALSE(together(g, map, "w", "4"));
}

// A fused node writes tile by tile: %s lies over %v only if no later member reads any view of %x.
TEST(Storage, AnOutputNeverLiesOverAViewThatALaterMemberReads) {
  const LoweredGraph g = lowered(R"(graph "g"
  %x = input f32[4,8] inputs
  %v = reshape(%x) {shape=[4,8]} : f32[4,8] activations
  %u = reshape(%x) {shape=[4,8]} : f32[4,8] activations
  %s, %d = fused(%v, %u) : f32[4,8] activations, f32[4,8] activations
  {
    graph "fused"
      %v = input f32[4,8] activations
      %u = input f32[4,8] activations
      %s = add(%v, %u) : f32[4,8] activations
      %d = subtract(%s, %u) : f32[4,8] activations
      output %s
      output %d
  }
  output %s
  output %d
)");
  const StorageMap map = assign_storage(g);
  EXPECT_FALSE(together(g, map, "s", "x"));
  EXPECT_TRUE(together(g, map, "d", "x"));
}

// Values with the same aligned size may differ in bytes: 8 and 7 floats both take one alignment unit.
TEST(Storage, AnOutputLiesOverAnInputOfTheSameBytesOnly) {
  const LoweredGraph g = lowered(R"(graph "g"
  %x = input i32[8] inputs
  %y = input f64[8] inputs
  %1 = cast(%x) {dtype="f64"} : f64[8] activations
  %2 = add(%1, %y) : f64[8] activations
  output %2
)");
  const StorageMap map = assign_storage(g);
  EXPECT_FALSE(together(g, map, "x", "1"));
}

TEST(Storage, AViewLiesInWhatItViewsAndKeepsItAlive) {
  const LoweredGraph g = lowered(R"(graph "g"
  %x = input f32[2,4] inputs
  %w = input f32[8,8] weights persistent
  %1 = tanh(%x) : f32[2,4] activations
  %v = reshape(%1) {shape=[1,8]} : f32[1,8] activations
  %2 = sigmoid(%x) : f32[2,4] activations
  %3 = matmul(%v, %w) : f32[1,8] activations
  output %2
  output %3
)");
  const StorageMap map = assign_storage(g);
  EXPECT_TRUE(together(g, map, "1", "v"));
  EXPECT_EQ(map.storages[static_cast<size_t>(map.of_value[static_cast<size_t>(g.graph.find("1"))])].last, 3);
  EXPECT_FALSE(together(g, map, "2", "1"));
}

TEST(Storage, AnUpdateLiesInItsPersistentValue) {
  const LoweredGraph g = lowered(R"(graph "g"
  %w = input f32[8] weights persistent
  %g = input f32[8] inputs
  %rate = input f32[] inputs persistent
  %new = sgd(%w, %g, %rate) : f32[8] weights
  update %w <- %new
)");
  const StorageMap map = assign_storage(g);
  EXPECT_TRUE(together(g, map, "w", "new"));
  const Storage& storage = map.storages[static_cast<size_t>(map.of_value[static_cast<size_t>(g.graph.find("new"))])];
  EXPECT_EQ(storage.persistent, g.graph.find("w"));
}

TEST(Storage, WorkspacesAreItemsOfTheirNodesAlone) {
  const LoweredGraph g = lowered(R"(graph "g"
  %x = input f32[16] inputs
  %1 = tanh(%x) : f32[16] activations
  output %1
)",
                                 100);
  const std::vector<PackItem> items = pack_items(g, assign_storage(g));
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[1].bytes, align_up(100));
  EXPECT_EQ(items[1].first, 0);
  EXPECT_EQ(items[1].last, 0);
}

// A random graph of element-wise nodes and products, with updates of some weights.
std::string random_graph(std::mt19937& random) {
  std::string text = "graph \"g\"\n  %x = input f32[8,8] inputs\n  %s = input f32[] inputs persistent\n";
  const int weights = 1 + static_cast<int>(random() % 3);
  for (int w = 0; w < weights; ++w) text += "  %w" + std::to_string(w) + " = input f32[8,8] weights persistent\n";
  std::vector<std::string> made = {"x"};
  const auto pick = [&] {
    return "%" + (random() % 3 == 0 ? "w" + std::to_string(random() % static_cast<unsigned>(weights))
                                    : made[random() % made.size()]);
  };
  const int nodes = 5 + static_cast<int>(random() % 25);
  for (int n = 0; n < nodes; ++n) {
    const std::string name = "n" + std::to_string(n);
    const unsigned kind = random() % 4;
    if (kind == 0)
      text += "  %" + name + " = matmul(" + pick() + ", " + pick() + ") : f32[8,8] activations\n";
    else if (kind == 1)
      text += "  %" + name + " = add(" + pick() + ", " + pick() + ") : f32[8,8] activations\n";
    else if (kind == 2)
      text += "  %" + name + " = tanh(" + pick() + ") : f32[8,8] activations\n";
    else
      text += "  %" + name + " = reshape(" + pick() + ") {shape=[8,8]} : f32[8,8] activations\n";
    made.push_back(name);
  }
  // Gradients come first, then updates, so that no node reads an old weight, or a view of one, after its update.
  std::string updates, steps;
  for (int w = 0; w < weights; ++w) {
    const std::string number = std::to_string(w);
    text += "  %g" + number + " = sigmoid(%" + made[random() % made.size()] + ") : f32[8,8] gradients\n";
    steps += "  %new" + number + " = sgd(%w" + number + ", %g" + number + ", %s) : f32[8,8] weights\n";
    updates += "  update %w" + number + " <- %new" + number + "\n";
  }
  return text + "  %last = tanh(%" + made.back() + ") : f32[8,8] activations\n" + steps + "  output %last\n" + updates;
}

TEST(Order, IsNeverWorseThanProgramOrderAndNeverWrong) {
  std::mt19937 random(8);
  int better = 0;
  for (int round = 0; round < 300; ++round) {
    const LoweredGraph program = lowered(random_graph(random));
    const LoweredGraph order = reorder_for_memory(program);
    EXPECT_LE(live_set_of(order), live_set_of(program));
    better += live_set_of(order) < live_set_of(program);
    ASSERT_EQ(order.graph.nodes.size(), program.graph.nodes.size());
    ASSERT_EQ(order.kernels.size(), program.kernels.size());
    ASSERT_TRUE(verify(order.graph)) << print(program.graph);
    // The text must keep the numbers of the values, because a saved plan refers to values by number.
    EXPECT_EQ(require(parse_graph(print(order.graph))).find("n0"), order.graph.find("n0"));

    const Plan plan = one_phase_plan(PhaseKind::kApply, 0, program);
    const Status valid = validate(plan);
    ASSERT_TRUE(valid) << to_text(valid.error()) << print(plan.phases[0].graph);
    const Plan read = require(plan_from_json(nlohmann::json::parse(to_json(plan).dump())));
    EXPECT_TRUE(validate(read)) << print(plan.phases[0].graph);
  }
  EXPECT_GT(better, 10);
}

}  // namespace
}  // namespace plimsoll::engine::testing
