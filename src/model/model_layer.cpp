#include "model/model_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "formats/keras/layer_paths.h"
#include "model/calls.h"
#include "model/tree.h"

namespace plimsoll::engine {
namespace {

using SharedTree = std::shared_ptr<const LayerTree>;

constexpr int64_t kMostCounted = 1 << 17;

int64_t count_calls(const LayerTree& tree, const ModelTree& model) {
  int64_t calls = 0;
  for (const ModelTree::Call& call : model.calls) {
    const ModelTree::Child& child = model.children[call.child];
    calls += child.kind == ModelTree::Child::Kind::kModel ? count_calls(tree, tree.models[child.index]) : 1;
    if (calls > kMostCounted) break;
  }
  return calls;
}

Result<LayerProgram> expanded(const LayerTree& tree, std::span<const Shape> samples, Issues& issues) {
  LayerProgram program;
  const ModelTree& top = tree.top();
  for (size_t i = 0; i < samples.size(); ++i) {
    program.inputs.push_back(i);
    program.tensors.push_back(samples[i]);
    program.masks.push_back(kNoMask);
    program.shared.push_back(false);
    const DType dtype = top.specs[top.children[top.inputs[i].child].index].dtype;
    program.kinds.push_back(is_floating(dtype) ? TensorKind::kFloat : TensorKind::kInteger);
  }
  PLIMSOLL_TRY(expand_calls(tree, program, issues));
  resolve_masks(tree, program, issues);
  return program;
}

// The weights of the model's layers, in Keras's order. Their groups are below that of the model.
std::vector<WeightSpec> weights_of(const LayerTree& tree, const LayerProgram& program) {
  std::vector<WeightSpec> weights;
  for (size_t l = 0; l < program.layers.size(); ++l) {
    const LayerObject& object = tree.layers[l];
    size_t own = 0;
    for (WeightSpec weight : program.layers[l].weights) {
      weight.name = object.path + "/" + weight.name;
      weight.path = object.group + "/" + (weight.path.empty() ? vars_path(own++) : weight.path);
      weight.frozen = weight.frozen || !object.trainable;
      weights.push_back(std::move(weight));
    }
  }
  return weights;
}

// Runs the calls of the model on values.
class Writer {
 public:
  Writer(const LayerTree& tree, const LayerProgram& program, const BuildCall& outer)
      : tree_(tree), program_(program), outer_(outer), values_(program.tensors.size(), kNone), masks_(values_) {
    size_t next = 0;
    for (const ShapedLayer& layer : program.layers) {
      first_weight_.push_back(next);
      next += layer.weights.size();
    }
  }

  ValueId run() {
    for (size_t i = 0; i < outer_.inputs.size(); ++i) values_[i] = outer_.inputs[i];
    for (size_t i = 0; i < program_.calls.size(); ++i) call(i);
    return values_[program_.outputs[0]];
  }

 private:
  ValueId converted(ValueId value, DType dtype) const {
    if (outer_.b.graph().type(value).dtype == dtype) return value;
    return outer_.add("cast", {value}, {{"dtype", std::string(name_of(dtype))}});
  }

  void call(size_t index) {
    const LayerCall& call = program_.calls[index];
    const LayerObject& object = tree_.layers[call.layer];
    const Layer& layer = object.at(call.node);
    std::vector<ValueId> inputs, masks, weights;
    for (size_t t : call.inputs) {
      const bool as_is = object.operation || (layer.takes_integers && program_.kinds[t] == TensorKind::kInteger);
      inputs.push_back(as_is ? values_[t] : converted(values_[t], outer_.precision));
    }
    for (size_t mask : call.masks) masks.push_back(mask == kNoMask ? kNone : masks_[mask]);
    for (size_t i = 0; i < call.shape.weights.size(); ++i) {
      const ValueId weight = outer_.weights[first_weight_[call.layer] + i];
      weights.push_back(layer.float32_weights ? weight : converted(weight, outer_.precision));
    }
    const BuildCall inner{outer_.b,
                          outer_.batch,
                          outer_.precision,
                          outer_.training,
                          outer_.trainable && object.trainable,
                          outer_.call + static_cast<int64_t>(index) * kCallsApart,
                          inputs,
                          masks,
                          weights,
                          call.shape,
                          outer_.statistics,
                          outer_.compute};
    const LayerValues made = layer.build(inner);
    for (size_t i = 0; i < call.outputs.size(); ++i) values_[call.outputs[i]] = made.outputs[i];
    masks_[call.outputs[0]] = made.mask;
  }

  const LayerTree& tree_;
  const LayerProgram& program_;
  const BuildCall& outer_;
  std::vector<ValueId> values_, masks_;
  std::vector<size_t> first_weight_;
};

Status find_groups(const Json& object, LayerTree& tree) {
  PLIMSOLL_ASSIGN(const std::vector<LayerPath> paths, layer_paths(object));
  std::map<std::vector<std::string>, std::string> groups;
  for (const LayerPath& path : paths) groups[path.layer_names] = path.group;
  for (LayerObject& layer : tree.layers) layer.group = groups[layer.names];
  return {};
}

// Lists what a model inside of a layer cannot have.
void check_layers(const LayerTree& tree, const Precision& policy, const std::string& where, Issues& issues) {
  for (const LayerObject& object : tree.layers) {
    const auto refuse = [&](const char* what) {
      issues.unknown(fmt::format("{}: its layer '{}' ({}) {}", where, object.path, object.class_name, what));
    };
    if (object.layer.activity) refuse("has an activity regularizer");
    if (object.layer.reads_integers) refuse("reads ids");
    if (object.layer.replace_weights) refuse("replaces its weights in each step");
    if (!object.operation && object.policy != policy) refuse("has another dtype policy");
    if (!object.layer.half_cast.empty()) refuse("names a half-precision dtype");
  }
}

// Returns whether a layer inside calls a model. Each such level would multiply the number of calls.
bool wraps_model(const Json& value) {
  if (!value.is_structured()) return false;
  const Json* wrapped = member(value, "layer");
  if (wrapped && is_model_class(keras_object(*wrapped).name)) return true;
  return std::any_of(value.begin(), value.end(), wraps_model);
}

Layer layer_of(SharedTree tree) {
  Layer layer;
  layer.float32_weights = true;  // each is converted where its layer wants it
  for (const LayerObject& object : tree->layers) {
    layer.couples_samples = layer.couples_samples || (object.layer.couples_samples && object.trainable);
    layer.draws = layer.draws || object.layer.draws;
    layer.takes_integers = layer.takes_integers || object.operation || object.layer.takes_integers;
  }
  layer.masking = Masking::kChanges;
  layer.least_inputs = layer.most_inputs = tree->top().inputs.size();
  layer.shape = [tree](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(const LayerProgram program, expanded(*tree, in, issues));
    LayerShape shape(program.tensors[program.outputs[0]], weights_of(*tree, program));
    shape.kinds = {program.kinds[program.outputs[0]]};
    return shape;
  };
  layer.build = [tree](const BuildCall& call) -> LayerValues {
    std::vector<Shape> samples;
    for (ValueId input : call.inputs) {
      std::vector<int64_t> sample = call.shape(input).dims;
      sample.erase(sample.begin());
      samples.emplace_back(std::move(sample));
    }
    Issues seen;  // they were listed when the shapes were computed
    const auto program = expanded(*tree, samples, seen);
    assert(program);
    return Writer(*tree, *program, call).run();
  };
  return layer;
}

}  // namespace

std::optional<ModelLayer> read_model_layer(const Json& object, const Precision& policy, const std::string& where,
                                           Issues& issues, size_t inputs) {
  if (wraps_model(object)) {
    issues.unknown(fmt::format("{}: a model in which another layer calls a model", where));
    return std::nullopt;
  }
  auto tree = read_tree(object, issues);
  const Status grouped = tree ? find_groups(object, *tree) : Status{};
  if (!tree || !grouped) {
    issues.reject(fmt::format("{}: {}", where, (!tree ? tree.error() : grouped.error()).what));
    return std::nullopt;
  }
  const ModelTree& top = tree->top();
  if (top.inputs.size() != inputs || top.outputs.size() != 1) {
    issues.unknown(
        fmt::format("{}: a model with {} inputs and {} outputs", where, top.inputs.size(), top.outputs.size()));
    return std::nullopt;
  }
  check_layers(*tree, policy, where, issues);
  for (const ModelTree& model : tree->models)
    for (const ModelTree::Call& call : model.calls)
      if (std::any_of(call.masks.begin(), call.masks.end(), [](const auto& mask) { return mask.has_value(); }))
        issues.unknown(fmt::format("{}: a model that gives a layer a mask as an argument", where));
  const int64_t calls = count_calls(*tree, top);
  return ModelLayer{layer_of(std::make_shared<const LayerTree>(std::move(*tree))), calls};
}

}  // namespace plimsoll::engine
