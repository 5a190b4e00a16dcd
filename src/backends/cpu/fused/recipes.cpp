// Recipes for tile programs: single element-wise ops, channel reductions, and fused bodies.
#include <fmt/format.h>

#include <memory>

#include "backends/cpu/fused/program.h"
#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr double kWorkEfficiency = 0.25;  // share of the peak, for element-wise loops on tiles in cache

Result<TileProgram> program_of(const Problem& p) {
  if (p.node.op == "fused") {
    const Graph& body = *p.node.body;
    return compile_tiles(body, body.nodes, body.inputs, body.outputs);
  }
  return compile_tiles(p.graph, {&p.node, 1}, p.node.inputs, p.node.outputs);
}

std::string kernel_name(const Problem& p) {
  if (p.node.op != "fused") return fmt::format("tiles:{}", p.node.op);
  return fmt::format("tiles:fused[{}]", p.node.body->nodes.size());
}

}  // namespace

Result<Recipe> tile_recipe(const Problem& p) {
  PLIMSOLL_ASSIGN(TileProgram program, program_of(p));
  const auto elements = static_cast<double>(program.elements());
  const double seconds = p.machine.seconds(elements * program.work, kWorkEfficiency, p.traffic());
  const Bytes workspace = tile_workspace(program, p.machine.threads);
  auto shared = std::make_shared<const TileProgram>(std::move(program));
  return own_recipe(kernel_name(p), workspace, seconds, [shared, threads = p.machine.threads](const BoundNode& node) {
    auto run = std::make_shared<TileRun>(*shared, threads, node.inputs, node.outputs, node.workspace);
    return [run] { run->run(); };
  });
}

}  // namespace plimsoll::engine::cpu
