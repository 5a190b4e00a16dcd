#include "report/keras_estimate.h"

#include <algorithm>
#include <set>

#include "ops/op.h"
#include "plan/storage.h"

namespace plimsoll::engine {
namespace {

// What a framework needs beyond the values of its graph.
struct Framework {
  Bytes own;           // memory of the process before the first step; on a GPU, outside of the allocator
  Bytes fixed;         // in every step
  double pool_input;   // copies of the input of max pooling that its gradient makes
  double pool_output;  // and of its output, with 4 bytes per element
  bool fuses;          // element-wise results of the forward pass are computed again in the backward pass
  bool runs_ahead;     // operations run as soon as their inputs are there, beside each other, as TensorFlow's do
  double norm_copies;  // copies of its input that the gradient of BatchNormalization makes: one for the scale, one for
                       // the variance and one for the mean, which do not wait for each other
};

// TensorFlow 2.21 with oneDNN on a CPU. Max pooling's gradient holds an int64 index and a copy per output.
constexpr Framework kOnCpu{523 * kMiB, kMiB, 0, 3, false, true, 3};
// XLA on a GPU, through Keras on JAX. The numbers are fitted to bench/keras_estimate.md.
constexpr Framework kOnGpu{640 * kMiB, 138 * kMiB, 4.18, 2.26, true, false, 0};

// What TensorFlow keeps for the operations themselves: traced functions, the executor's state, compiled kernels.
// Measured with chains of tiny layers (bench/keras_estimate.py --layers), so no model of the comparison is in it.
constexpr Bytes kPerVariable = 783 * kKiB;  // with the operations of its gradient and of Adam
constexpr Bytes kPerNorm = 1200 * kKiB;
constexpr Bytes kPerConvolution = 160 * kKiB;
constexpr Bytes kPerConvolutionShape = 820 * kKiB;  // oneDNN compiles kernels for each shape
constexpr Bytes kPerProductShape = 180 * kKiB;
constexpr Bytes kPerDropout = 400 * kKiB;
constexpr Bytes kPerAttention = 2100 * kKiB;
constexpr Bytes kPerRecurrence = 9200 * kKiB;

// With one operation at a time, TensorFlow's allocator has in use what this file computes, within a few percent (seen
// in its log). At full speed more is alive, since the operations of many updates wait beside the backward pass, and
// gaps remain between tensors, whose order differs from step to step. Measured with four networks that are in no table
// of bench/keras_estimate.md (EfficientNetB0, Xception, InceptionV3, ResNet50V2, all with more than 150
// variables): 1.19 to 1.34 times as much, 1.25 on average.
constexpr double kMostBeside = 0.25;
constexpr double kManyVariables = 150;

Bytes with_beside(Bytes in_use, Bytes variables) {
  const double share = std::min(1.0, static_cast<double>(variables) / kManyVariables);
  return in_use + static_cast<Bytes>(kMostBeside * share * static_cast<double>(in_use));
}

Bytes bytes_of_operations(const Graph& graph, Bytes variables) {
  Bytes bytes = kPerVariable * variables;
  std::set<std::string> shapes;
  for (const Node& node : graph.nodes) {
    if (node.stage != Stage::kForward) continue;
    const bool convolves = node.op.starts_with("conv") || node.op.starts_with("depthwise");
    if (convolves) bytes += kPerConvolution;
    if (convolves || node.op == "matmul") {
      std::string shape = node.op;
      for (const ValueId id : node.inputs) shape += " " + to_text(graph.type(id).shape);
      if (shapes.insert(shape).second) bytes += convolves ? kPerConvolutionShape : kPerProductShape;
    }
    if (node.op == "batch_norm_apply" || node.op == "layer_norm") bytes += kPerNorm;
    if (node.op == "dropout") bytes += kPerDropout;
    if (node.op == "attention") bytes += kPerAttention;
    if (node.op == "recurrent") bytes += kPerRecurrence;
  }
  return bytes;
}

class Estimate {
 public:
  Estimate(const Graph& graph, const Framework& framework)
      : graph_(graph), framework_(framework), unchanged_{graph, {}}, map_(assign_storage(unchanged_)) {}

  Bytes in_use() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (node.op.starts_with("max_pool") && node.outputs.size() == 2) keep_pooled(node);
      if (node.stage == Stage::kBackward && node.op.starts_with("batch_norm") && framework_.norm_copies > 0)
        add_temporary(n, framework_.norm_copies * static_cast<double>(graph_.value(node.inputs[0]).bytes()));
      if (node.op.starts_with("attention")) keep_scores(n, node);
      if (Storage* made = node.op == "broadcast" ? storage(node.outputs[0]) : nullptr; made && made->values.size() == 1)
        made->bytes = 0;  // Keras's operations repeat the smaller input without storing it
    }
    if (framework_.runs_ahead) {
      overlap_weight_gradients();
      update_early();
    }
    if (framework_.fuses) drop_recomputed();
    return most_live();
  }

 private:
  static constexpr Bytes kSmall = 256 * kKiB;  // updates of smaller weights take too little time to be counted

  Storage* storage(ValueId id) {
    const int at = map_.of_value[static_cast<size_t>(id)];
    return at == kNone ? nullptr : &map_.storages[static_cast<size_t>(at)];
  }

  void add_temporary(size_t node, double bytes) {
    const auto at = static_cast<int>(node);
    map_.storages.push_back({static_cast<Bytes>(bytes), at, at, kNone, Space::kDevice, {}});
  }

  // The gradient of max pooling reads the input and the output of the pooling, where ours reads a mask.
  void keep_pooled(const Node& node) {
    Storage* mask = storage(node.outputs[1]);
    if (mask == nullptr) return;
    for (const ValueId kept : {node.inputs[0], node.outputs[0]})
      if (Storage* place = storage(kept)) place->last = std::max(place->last, mask->last);
    mask->bytes = static_cast<Bytes>(framework_.pool_input * static_cast<double>(graph_.value(node.inputs[0]).bytes()) +
                                     framework_.pool_output * 4 *
                                         static_cast<double>(graph_.type(node.outputs[0]).shape.elements()));
    mask->first = mask->last;  // it is alive only while the gradient runs
  }

  // Keras holds the scores of attention, [N,H,T,S], from the forward to the backward pass, and a copy while it uses
  // them.
  void keep_scores(size_t n, const Node& node) {
    const Shape& queries = graph_.type(node.inputs[node.op == "attention" ? 0 : 1]).shape;
    const Shape& keys = graph_.type(node.inputs[node.op == "attention" ? 1 : 2]).shape;
    if (queries.rank() != 4 || keys.rank() != 4) return;
    const double scores = static_cast<double>(queries.dims[0]) * static_cast<double>(queries.dims[2]) *
                          static_cast<double>(queries.dims[1]) * static_cast<double>(keys.dims[1]) *
                          static_cast<double>(graph_.value(node.inputs[0]).bytes()) /
                          static_cast<double>(std::max<int64_t>(1, queries.elements()));
    add_temporary(n, scores);
    const Storage* statistics = node.op == "attention" && node.outputs.size() > 1 ? storage(node.outputs[1]) : nullptr;
    if (statistics == nullptr) return;
    map_.storages.push_back(
        {static_cast<Bytes>(scores), static_cast<int>(n), statistics->last, kNone, Space::kDevice, {}});
  }

  // What the gradient of a convolution's weights reads stays until the next such gradient has begun.
  void overlap_weight_gradients() {
    const Node* before = nullptr;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.op.starts_with("conv") || !node.op.ends_with("weight_grad")) continue;
      if (before != nullptr)
        if (Storage* gradient = storage(before->inputs[1]); gradient != nullptr && gradient->persistent == kNone)
          gradient->last = std::max(gradient->last, static_cast<int>(n));
      before = &node;
    }
  }

  // What the backward pass makes and an update reads last.
  bool is_gradient(const Storage& one) const {
    return one.persistent == kNone && graph_.node(one.first).stage != Stage::kUpdate &&
           graph_.node(one.last).stage == Stage::kUpdate;
  }

  // A weight is updated as soon as its gradient is there, beside the rest of the backward pass: the gradient, and then
  // as many bytes of temporary values as it has, stay until the next gradient's update runs. Clipping by the norm of
  // all gradients, and a loss scale, wait for the last gradient.
  void update_early() {
    for (const Node& node : graph_.nodes)
      if (node.stage == Stage::kUpdate && (node.op == "squared_norm" || node.op == "count_not_finite")) return;
    std::vector<int> born;
    for (const Storage& one : map_.storages)
      if (is_gradient(one) && one.bytes >= kSmall) born.push_back(one.first);
    std::sort(born.begin(), born.end());
    const size_t count = map_.storages.size();
    for (size_t i = 0; i < count; ++i) {
      Storage& gradient = map_.storages[i];
      if (!is_gradient(gradient)) continue;
      const auto next = std::upper_bound(born.begin(), born.end(), gradient.first);
      if (next == born.end()) continue;
      gradient.last = *next;
      const Storage temporary{gradient.bytes, gradient.first, gradient.last, kNone, Space::kDevice, {}};
      map_.storages.push_back(temporary);
    }
  }

  // A compiler with fusion does not store a value that element-wise nodes compute and only such nodes and sums read: it
  // stores what it is computed from.
  void drop_recomputed() {
    std::vector<std::vector<const Node*>> readers(graph_.values.size());
    for (const Node& node : graph_.nodes)
      for (const ValueId id : node.inputs) readers[static_cast<size_t>(id)].push_back(&node);
    const auto fusible = [](const Node& node) {
      const OpKind kind = op_def(node.op).kind;
      return kind == OpKind::kElementwise || kind == OpKind::kReduction || node.op == "global_avg_pool2d" ||
             node.op == "broadcast";
    };
    for (size_t n = graph_.nodes.size(); n-- > 0;) {  // so that a chain is dropped up to what it begins with
      const Node& node = graph_.nodes[n];
      if (op_def(node.op).kind != OpKind::kElementwise || node.stage != Stage::kForward || node.outputs.size() != 1)
        continue;
      Storage* made = storage(node.outputs[0]);
      const auto& read_by = readers[static_cast<size_t>(node.outputs[0])];
      const bool alone = made != nullptr && made->persistent == kNone && made->values.size() == 1;
      if (!alone || !std::all_of(read_by.begin(), read_by.end(), [&](const Node* one) { return fusible(*one); }))
        continue;
      for (const ValueId id : node.inputs)
        if (Storage* read = storage(id); read != nullptr && read->persistent == kNone)
          read->last = std::max(read->last, made->last);
      made->bytes = 0;
    }
  }

  Bytes most_live() const {
    std::vector<Bytes> change(graph_.nodes.size() + 2, 0);
    Bytes persistent = 0;
    for (const Storage& one : map_.storages) {
      if (one.persistent != kNone) {
        persistent += one.bytes;
        continue;
      }
      change[static_cast<size_t>(one.first)] += one.bytes;
      change[static_cast<size_t>(one.last) + 1] -= one.bytes;
    }
    Bytes live = 0, most = 0;
    for (const Bytes bytes : change) most = std::max(most, live += bytes);
    return persistent + most;
  }

  const Graph& graph_;
  const Framework& framework_;
  const LoweredGraph unchanged_;
  StorageMap map_;
};

}  // namespace

Result<KerasEstimate> estimate_keras(const Model& model, int64_t batch, const GraphOptions& options,
                                     const DeviceInfo& device) {
  const Framework& framework = device.own_memory ? kOnGpu : kOnCpu;
  PLIMSOLL_ASSIGN(const Phase phase, train_phase(model, batch, options));
  Bytes variables = 0;
  for (const Weight& weight : model.weights()) variables += weight.trainable ? 1 : 0;
  KerasEstimate estimate;
  Bytes in_use = Estimate(phase.graph, framework).in_use();
  if (!device.own_memory) in_use = with_beside(in_use, variables) + bytes_of_operations(phase.graph, variables);
  estimate.step_bytes = in_use + framework.fixed;
  estimate.library_bytes = framework.own;
  return estimate;
}

}  // namespace plimsoll::engine
