// Whole steps with an embedding: planned, bound, recorded and run, with the embedding's gradient and without it.
#include <fmt/format.h>

#include <random>

#include "ops/op.h"
#include "tests/support/one_phase.h"
#include "tests/support/refusing_device.h"
#include "tests/support/run.h"

namespace plimsoll::engine::testing {
namespace {

constexpr int64_t kRows = 1031, kWidth = 24, kTokens = 700;

struct OptimizerText {
  std::string name, states, update;
};

// Training moves the rows that are read towards zero.
Graph training(const OptimizerText& optimizer, const std::string& dtype) {
  const std::string table = fmt::format("{}[{},{}]", dtype, kRows, kWidth);
  std::string text = fmt::format("graph \"train\"\n  %w = input {} weights persistent\n", table);
  std::string outputs = "%w2", types = table + " temporaries", updates = "  update %w <- %w2\n";
  for (char state : optimizer.states) {
    text += fmt::format("  %{} = input {} optimizer persistent\n", state, table);
    outputs += fmt::format(", %{}2", state);
    types += fmt::format(", {} temporaries", table);
    updates += fmt::format("  update %{0} <- %{0}2\n", state);
  }
  text += fmt::format(R"(  %rate = input {0}[] inputs persistent
  %iteration = input i64[] inputs persistent
  %ids = input i32[{1}] inputs
  %y = embedding(%w, %ids) : {0}[{1},{2}] activations
  %dy = affine(%y) {{offset=0.125, scale=0.5}} : {0}[{1},{2}] gradients
  %g = embedding_grad(%dy, %ids) {{rows={3}}} : {4} gradients
  {5} = {6} : {7}
{8})",
                      dtype, kTokens, kWidth, kRows, table, outputs, optimizer.update, types, updates);
  Graph graph = require(parse_graph(text));
  require(verify(graph));
  return graph;
}

// Returns the ids of step `step`. A third of them are 0, like padding; two are not rows of the embedding.
std::vector<int32_t> ids_of(int step) {
  std::mt19937 random(static_cast<unsigned>(step));
  std::vector<int32_t> ids(kTokens);
  for (auto& id : ids) id = random() % 3 == 0 ? 0 : static_cast<int32_t>(random() % kRows);
  ids[1] = -1;
  ids[2] = kRows;
  return ids;
}

// Runs three steps. Returns the embedding and its optimizer state.
template <typename T>
std::map<std::string, std::vector<T>> trained(const Backend& backend, const Device& device, const Graph& graph,
                                              bool by_rows) {
  const LoweredGraph lowered = require(lower(graph, device));
  const auto updates = std::count_if(lowered.graph.nodes.begin(), lowered.graph.nodes.end(),
                                     [](const Node& node) { return node.op.ends_with("_rows"); });
  EXPECT_EQ(updates, by_rows ? 1 : 0) << print(lowered.graph);
  const Plan plan = one_phase_plan(PhaseKind::kTrain, 1, lowered);
  require(validate(plan));
  const PhasePlan& phase = plan.phases[0];
  const auto memory = require(backend.reserve(Space::kDevice, plan.arena_bytes));
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (const PersistentSlot& slot : plan.persistent) {
    std::vector<T> values(static_cast<size_t>(slot.type.shape.elements()), T(0.01));
    if (slot.name == "iteration") continue;
    if (slot.name != "rate")
      for (T& value : values) value = static_cast<T>(std::fabs(normal(random)));
    require(memory->write(slot.offset, values.data(), slot.type.bytes()));
  }
  std::vector<std::unique_ptr<Kernel>> kernels;
  const auto address = [&](ValueId id) { return memory->at(phase.values[static_cast<size_t>(id)].offset); };
  for (size_t n = 0; n < phase.nodes.size(); ++n) {
    const Node& node = phase.graph.nodes[n];
    std::vector<void*> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(address(id));
    for (ValueId id : node.outputs) outputs.push_back(address(id));
    kernels.push_back(
        require(backend.bind({phase.graph, node, phase.nodes[n].kernel, inputs, outputs,
                              memory->at(phase.nodes[n].workspace_offset), phase.nodes[n].workspace_bytes})));
  }
  const auto recorded = require(backend.record(kernels));
  for (int64_t step = 1; step <= 3; ++step) {
    const auto ids = ids_of(static_cast<int>(step));
    require(memory->write(plan.slot("iteration")->offset, &step, sizeof step));
    require(memory->write(phase.values[static_cast<size_t>(phase.graph.find("ids"))].offset, ids.data(), kTokens * 4));
    if (recorded)
      recorded->run();
    else
      for (const auto& kernel : kernels) kernel->run();
    require(backend.finish());
  }
  std::map<std::string, std::vector<T>> results;
  for (const PersistentSlot& slot : plan.persistent) {
    if (slot.type.shape.rank() != 2) continue;
    auto& values = results[slot.name];
    values.resize(static_cast<size_t>(slot.type.shape.elements()));
    require(memory->read(slot.offset, values.data(), slot.type.bytes()));
  }
  return results;
}

const std::vector<OptimizerText> kOptimizers = {
    {"sgd", "", "sgd(%w, %g, %rate)"},
    {"decay", "", "sgd(%w, %g, %rate) {weight_decay=0.1}"},
    {"nesterov", "m", "sgd(%w, %g, %rate, %m) {momentum=0.9, nesterov=true}"},
    {"adam", "mv", "adam(%w, %g, %m, %v, %rate, %iteration) {beta_1=0.9, beta_2=0.999, epsilon=1e-07}"}};

template <typename T>
void expect_same_training(const std::string& device, const OptimizerText& optimizer) {
  const Graph graph = training(optimizer, sizeof(T) == 8 ? "f64" : "f32");
  const auto backend = open_device(device);
  const auto by_rows = trained<T>(*backend, backend->device(), graph, true);
  const auto dense = trained<T>(*backend, RefusingDevice(backend->device(), "_rows"), graph, false);
  for (const auto& [name, values] : dense) {
    T worst = 0;
    for (size_t i = 0; i < values.size(); ++i) worst = std::max(worst, std::fabs(values[i] - by_rows.at(name)[i]));
    EXPECT_EQ(worst, 0) << device << " " << optimizer.name << " " << name;
  }
}

TEST(RowUpdates, TrainAsWithTheWholeGradient) {
  for (const OptimizerText& optimizer : kOptimizers) expect_same_training<double>("reference", optimizer);
}

TEST(RowUpdates, TrainAsWithTheWholeGradientOnTheGpu) {
  if (devices().back() != "gpu") GTEST_SKIP() << "no GPU here";
  for (const OptimizerText& optimizer : kOptimizers) expect_same_training<float>("gpu", optimizer);
}

}  // namespace
}  // namespace plimsoll::engine::testing
