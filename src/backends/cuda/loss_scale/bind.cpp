// Binds loss-scaling nodes to launches.
#include "backends/cuda/loss_scale/launch.h"

#include <vector>

#include "backends/cuda/driver/binding.h"
#include "backends/cuda/reduce/pieces.h"

namespace plimsoll::engine::cuda {

BoundKernel bind_count_not_finite(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  std::vector<CountTable> tables;
  int64_t all = 0;
  for (size_t i = 0; i < view.inputs(); ++i) {
    if (i % CountTable::kMost == 0) tables.emplace_back();
    CountTable& table = tables.back();
    const int64_t elements = view.in_shape(i).elements(), blocks = count_blocks(elements);
    table.of[table.tensors++] = {input(node, i), elements, table.blocks, element_of(view.in_dtype(i))};
    table.blocks += static_cast<int>(blocks);
    all += blocks;
  }
  auto* counts = static_cast<unsigned*>(node.workspace);
  return make_kernel([=, tables = std::move(tables), to = output<float>(node, 0), counter = context.counters,
                      stream = context.stream] {
    unsigned* next = counts;
    for (const CountTable& table : tables) {
      launch_count_not_finite(table, next, counts, &table == &tables.back() ? all : 0, to, counter, stream);
      next += table.blocks;
    }
  });
}

BoundKernel bind_loss_scale(Context& context, const BoundNode& node) {
  const std::string& op = node.node.op;
  const cudaStream_t stream = context.stream;
  if (op == "applied_updates")
    return make_kernel([=, iteration = input<const int64_t>(node, 0), skipped = input<const int64_t>(node, 1),
                        to = output<int64_t>(node, 0)] { launch_applied_updates(iteration, skipped, to, stream); });
  if (op == "count_periods")
    return make_kernel([=, count = input<const int64_t>(node, 0), period = view_of(node).attrs().integer("period"),
                        periods = output<int64_t>(node, 0), pending = output<float>(node, 1)] {
      launch_count_periods(count, period, periods, pending, stream);
    });
  if (op == "scheduled_rate")
    return make_kernel(
        [=, rate = input<const float>(node, 0), other = input<const float>(node, 1),
         skipped = input<const int64_t>(node, 2), known = input<const int64_t>(node, 3),
         to = output<float>(node, 0)] { launch_scheduled_rate(rate, other, skipped, known, to, stream); });
  assert(op == "loss_scale");
  const LossScaleStep step{input<const float>(node, 0),
                           input<const float>(node, 3),
                           input<const int64_t>(node, 1),
                           input<const int64_t>(node, 2),
                           view_of(node).attrs().integer("growth_steps"),
                           output<float>(node, 0),
                           output<int64_t>(node, 1),
                           output<int64_t>(node, 2)};
  return make_kernel([=] { launch_loss_scale(step, stream); });
}

}  // namespace plimsoll::engine::cuda
