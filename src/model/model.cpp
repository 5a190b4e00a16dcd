// Makes a model from an architecture and the shapes of its inputs: every tensor gets a shape, every weight a place.
#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "model/calls.h"
#include "model/loss_formulas.h"
#include "model/optimizer_classes.h"
#include "model/text/text_inputs.h"
#include "model/traced_loss.h"
#include "model/tree.h"

namespace plimsoll::engine {
namespace {

// A nested model that is called twice on every level multiplies the number of calls. No real model comes near this
// limit.
constexpr size_t kMostCalls = 1 << 17;

TensorKind kind_of(DType dtype) {
  if (dtype == DType::kBool) return TensorKind::kTruth;
  return is_floating(dtype) ? TensorKind::kFloat : TensorKind::kInteger;
}

std::string shown_layer(const LayerObject& object) {
  return fmt::format("layer '{}' ({})", object.path, object.class_name);
}

// Runs the calls of the tree on shapes. Fills in the program's calls and tensors, and the weights of each layer.
class Expansion {
 public:
  Expansion(const LayerTree& tree, LayerProgram& program, Issues& issues)
      : tree_(tree), program_(program), issues_(issues) {}

  Result<std::vector<size_t>> run(const ModelTree& tree, const std::vector<size_t>& arguments) {
    if (arguments.size() != tree.inputs.size())
      return fail(ErrorCode::kBadConfig, fmt::format("model '{}' has {} inputs but is called with {}", tree.name,
                                                     tree.inputs.size(), arguments.size()));
    // The outputs of each child, per call.
    std::vector<std::vector<std::vector<size_t>>> made(tree.children.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      PLIMSOLL_TRY(check_argument(tree, i, arguments[i]));
      made[tree.inputs[i].child] = {{arguments[i]}};
    }
    for (const ModelTree::Call& call : tree.calls) {
      std::vector<size_t> inputs, masks;
      for (const TensorRef& ref : call.inputs) inputs.push_back(made[ref.child][ref.node][ref.tensor]);
      for (const auto& mask : call.masks) masks.push_back(mask ? made[mask->child][mask->node][mask->tensor] : kNoMask);
      rank_.push_back(call.rank);
      const ModelTree::Child& child = tree.children[call.child];
      const bool is_model = child.kind == ModelTree::Child::Kind::kModel;
      PLIMSOLL_ASSIGN(auto outputs,
                      is_model ? run(tree_.models[child.index], inputs)
                               : call_layer(child.index, made[call.child].size(), std::move(inputs), std::move(masks)));
      rank_.pop_back();
      made[call.child].push_back(std::move(outputs));
    }
    std::vector<size_t> outputs;
    for (const TensorRef& ref : tree.outputs) outputs.push_back(made[ref.child][ref.node][ref.tensor]);
    return outputs;
  }

 private:
  // A nested model's InputLayer must agree with the tensor that the model is called on.
  Status check_argument(const ModelTree& tree, size_t i, size_t tensor) const {
    const InputSpec& spec = tree.specs[tree.children[tree.inputs[i].child].index];
    const Shape& got = program_.tensors[tensor];
    if (program_.shared[tensor]) return has_no_batch(fmt::format("model '{}'", tree.name));
    bool fits = !spec.known || spec.dims.size() == got.rank();
    for (size_t d = 0; fits && spec.known && d < got.rank(); ++d) fits = !spec.dims[d] || *spec.dims[d] == got[d];
    if (fits) return {};
    return fail(ErrorCode::kBadGeometry,
                fmt::format("model '{}': its input '{}' is called on [{}], which does not match its shape", tree.name,
                            spec.name, to_text(got)));
  }

  static tl::unexpected<Error> has_no_batch(const std::string& who) {
    return fail(ErrorCode::kBadGeometry, who + " reads a tensor without a batch, which only operations take");
  }

  Result<LayerShape> shape_of(const LayerObject& object, const Layer& layer, const std::vector<size_t>& inputs) {
    if (layer.typed_shape) {
      std::vector<TensorSpec> specs;
      for (size_t t : inputs) specs.push_back({program_.tensors[t], program_.kinds[t], program_.shared[t]});
      if (object.operation || std::none_of(specs.begin(), specs.end(), [](const auto& one) { return one.shared; }))
        return layer.typed_shape(specs, issues_);
    }
    std::vector<Shape> shapes;
    for (size_t t : inputs) {
      if (program_.shared[t]) return has_no_batch(shown_layer(object));
      shapes.push_back(program_.tensors[t]);
    }
    return layer.shape(shapes, issues_);
  }

  Result<std::vector<size_t>> call_layer(size_t index, size_t node, std::vector<size_t> inputs,
                                         std::vector<size_t> masks) {
    const LayerObject& object = tree_.layers[index];
    const Layer& layer = object.at(node);
    if (inputs.size() < layer.least_inputs || inputs.size() > layer.most_inputs)
      return fail(ErrorCode::kBadConfig, fmt::format("{}: called with {} inputs", shown_layer(object), inputs.size()));
    if (masks.size() > inputs.size())
      return fail(ErrorCode::kBadConfig, fmt::format("{}: called with {} masks for {} inputs", shown_layer(object),
                                                     masks.size(), inputs.size()));
    if (program_.calls.size() >= kMostCalls)
      return fail(ErrorCode::kBadConfig, fmt::format("this model calls its layers more than {} times", kMostCalls));
    PLIMSOLL_ASSIGN(LayerShape shape, shape_of(object, layer, inputs));
    assert(shape.outputs.size() == layer.outputs);
    PLIMSOLL_TRY(take_weights(object, program_.layers[index], shape.weights));
    std::vector<size_t> outputs;
    for (size_t i = 0; i < shape.outputs.size(); ++i) {
      outputs.push_back(program_.tensors.size());
      program_.tensors.push_back(shape.outputs[i]);
      program_.kinds.push_back(i < shape.kinds.size() ? shape.kinds[i] : TensorKind::kFloat);
      program_.masks.push_back(kNoMask);
      program_.shared.push_back(i < shape.shared.size() && shape.shared[i]);
    }
    program_.calls.push_back({index, node, std::move(inputs), outputs, std::move(shape), {}, std::move(masks), rank_});
    return outputs;
  }

  static Status take_weights(const LayerObject& object, ShapedLayer& layer, const std::vector<WeightSpec>& weights) {
    if (!layer.called) {
      layer.weights = weights;
      layer.called = true;
    }
    for (size_t i = 0; i < weights.size(); ++i)
      if (layer.weights[i].shape != weights[i].shape)
        return fail(ErrorCode::kBadGeometry,
                    fmt::format("{}: its {} is [{}] in one call and [{}] in another", shown_layer(object),
                                weights[i].name, to_text(layer.weights[i].shape), to_text(weights[i].shape)));
    return {};
  }

  const LayerTree& tree_;
  LayerProgram& program_;
  Issues& issues_;
  std::vector<size_t> rank_;  // LayerCall::rank of the call that is being expanded
};

// Returns whether each call of the layer in training changes weights that the next call reads.
bool changes_weights(const LayerObject& object, const ShapedLayer& layer) {
  return object.layer.replace_weights || std::any_of(layer.weights.begin(), layer.weights.end(),
                                                     [](const WeightSpec& weight) { return weight.frozen; });
}

// Brings the calls into Keras's order if the result depends on it: if a layer whose calls change its weights, such as
// the moving statistics of a BatchNormalization, is called several times and the program has another order.
void order_calls(const LayerTree& tree, LayerProgram& program) {
  std::vector<const LayerCall*> last(program.layers.size());
  bool differs = false;
  for (const LayerCall& call : program.calls) {
    if (!changes_weights(tree.layers[call.layer], program.layers[call.layer])) continue;
    const LayerCall* before = std::exchange(last[call.layer], &call);
    differs = differs || (before && call.rank < before->rank);
  }
  if (differs)
    std::stable_sort(program.calls.begin(), program.calls.end(),
                     [](const LayerCall& a, const LayerCall& b) { return a.rank < b.rank; });
}

}  // namespace

Status expand_calls(const LayerTree& tree, LayerProgram& program, Issues& issues) {
  program.layers.resize(tree.layers.size());
  PLIMSOLL_ASSIGN(program.outputs, Expansion(tree, program, issues).run(tree.top(), program.inputs));
  order_calls(tree, program);
  for (size_t t : program.outputs)
    if (program.shared[t] && issues.unsupported.empty())
      return fail(ErrorCode::kBadGeometry, fmt::format("model '{}': an output has no batch", tree.top().name));
  return {};
}

class ModelBuilder {
 public:
  explicit ModelBuilder(const Architecture& architecture) : architecture_(architecture), parts_(architecture.parts()) {}

  Result<Model> run(const std::vector<Shape>& samples) {
    program_->objective = parts_.objective;
    PLIMSOLL_TRY(add_inputs(samples));
    Issues issues;
    const Status expanded = expand_calls(parts_.tree, *program_, issues);
    // A tensor after an unsupported call has no meaningful shape, so such calls are reported first.
    if (!expanded && !issues.unsupported.empty()) PLIMSOLL_TRY(issues.status());
    PLIMSOLL_TRY(expanded);
    resolve_masks(parts_.tree, *program_, issues);
    check_loss_masks(parts_.tree, *program_, architecture_.output_names(), issues);
    for (MetricSpec& metric : program_->objective.metrics)
      metric.skipped = metric.skipped || (mask_of_output(metric.output) != kNoMask && metric.metric.one_per_sample);
    std::vector<Shape> outputs;
    for (size_t t : program_->outputs) outputs.push_back(program_->tensors[t]);
    if (parts_.needs_loss) resolve_metrics(program_->objective, outputs);
    PLIMSOLL_TRY(issues.status());
    limit_ids();
    PLIMSOLL_TRY(add_outputs());
    PLIMSOLL_TRY(add_weights());
    add_layers();
    model_.skipped_metrics_ = program_->objective.skipped_metrics;
    model_.architecture_ = architecture_;
    model_.program_ = std::move(program_);
    return std::move(model_);
  }

 private:
  Status add_inputs(const std::vector<Shape>& samples) {
    const std::vector<InputSpec>& specs = architecture_.inputs();
    if (samples.size() != specs.size())
      return fail(ErrorCode::kBadGeometry, fmt::format("model '{}' has {} inputs, but {} shapes were given",
                                                       architecture_.name(), specs.size(), samples.size()));
    for (size_t i = 0; i < samples.size(); ++i) {
      if (!agrees(specs[i], samples[i].dims))
        return fail(ErrorCode::kBadGeometry, fmt::format("input '{}' is declared with [{}], so it cannot be [{}]",
                                                         specs[i].name, shown_dims(specs[i]), to_text(samples[i])));
      Port port;
      port.name = specs[i].name;
      port.sample = samples[i];
      port.dtype = specs[i].dtype;
      port.text = specs[i].text;
      model_.inputs_.push_back(std::move(port));
      program_->inputs.push_back(program_->tensors.size());
      program_->tensors.push_back(samples[i]);
      program_->kinds.push_back(kind_of(specs[i].dtype));
      program_->masks.push_back(kNoMask);
      program_->shared.push_back(false);
    }
    return {};
  }

  // Ids outside of an Embedding's table are found in the data, before they are read.
  void limit_ids() {
    for (const LayerCall& call : program_->calls) {
      if (!parts_.tree.layers[call.layer].layer.reads_integers || call.shape.weights.empty()) continue;
      for (size_t i = 0; i < program_->inputs.size(); ++i) {
        if (program_->inputs[i] != call.inputs[0]) continue;
        int64_t& least = model_.inputs_[i].classes;
        const int64_t rows = call.shape.weights[0].shape[0];
        least = least == 0 ? rows : std::min(least, rows);
      }
    }
  }

  size_t mask_of_output(size_t i) const { return program_->masks[program_->outputs[i]]; }

  Status add_outputs() {
    for (size_t i = 0; i < program_->outputs.size(); ++i) {
      Port port;
      port.name = architecture_.output_names()[i];
      port.sample = program_->tensors[program_->outputs[i]];
      const auto& losses = program_->objective.losses;
      if (i < losses.size() && losses[i]) {
        const Loss& loss = *losses[i];
        if (const std::string trouble = check_loss(loss, port.sample); !trouble.empty())
          return fail(ErrorCode::kBadGeometry, fmt::format("output '{}': {}", port.name, trouble));
        port.has_loss = true;
        port.masked = (mask_of_output(i) != kNoMask && loss.reduction != Reduction::kSum) || counts_rows(loss);
        port.loss_weight = program_->objective.loss_weights[i];
        port.loss_is_sum = loss.reduction == Reduction::kSum;
        port.rows_per_sample = rows_per_sample(loss, port.sample);
        port.target = port.sample;
        port.sparse_labels = target_kind(loss) != TargetKind::kLikePrediction && target_kind(loss) != TargetKind::kOwn;
        port.ignored_class = loss.ignored_class;
        if (target_kind(loss) == TargetKind::kGroups) {
          port.target = Shape{};
        } else if (target_kind(loss) == TargetKind::kSequence) {
          port.classes = port.sample.back();
          port.target.dims.pop_back();
          port.padded_labels = true;
        } else if (port.sparse_labels) {
          port.classes = port.sample.back();
          port.target.dims.pop_back();
        }
        if (loss.traced) port.target = loss.traced->target;
        if (!coupling(loss, port.sample).empty())
          model_.coupling_layers_.push_back(
              fmt::format("{} (loss {}: {})", port.name, function_name(loss), coupling(loss, port.sample)));
        else if (program_->several_masks && port.masked)
          model_.coupling_layers_.push_back(
              fmt::format("{} (loss {}: its mask is not that of the whole loss)", port.name, function_name(loss)));
      }
      model_.outputs_.push_back(std::move(port));
    }
    return {};
  }

  Status add_weights() {
    // When loading, Keras ignores `trainable` of a Sequential model, and respects that of a Functional model only at
    // the top level.
    const ModelTree& top = parts_.tree.top();
    const bool trainable = top.sequential || top.trainable;
    std::set<std::string> names;
    for (size_t l = 0; l < program_->layers.size(); ++l) {
      const LayerObject& object = parts_.tree.layers[l];
      ShapedLayer& layer = program_->layers[l];
      layer.first_weight = model_.weights_.size();
      size_t own = 0;  // number of weights that belong to no sublayer
      for (const WeightSpec& spec : layer.weights) {
        Weight weight;
        weight.name = object.path + "/" + spec.name;
        if (!names.insert(weight.name).second)
          return fail(ErrorCode::kBadConfig, fmt::format("two weights are named '{}'", weight.name));
        weight.layer = object.path;
        weight.file_path = fmt::format("{}/{}", object.group, spec.path.empty() ? vars_path(own++) : spec.path);
        if (!spec.second_path.empty()) weight.second_file_path = fmt::format("{}/{}", object.group, spec.second_path);
        weight.shape = spec.shape;
        weight.trainable = trainable && object.trainable && !spec.frozen;
        weight.initializer = spec.initializer;
        weight.l1 = spec.l1;
        weight.l2 = spec.l2;
        weight.regularizer = spec.regularizer;
        weight.constraint = spec.constraint;
        PLIMSOLL_TRY(check_weight(weight));
        model_.weights_.push_back(std::move(weight));
      }
      if (layer.called && couples_samples(l)) model_.coupling_layers_.push_back(object.path);
      if (layer.called && has_single_rows(l))
        model_.coupling_layers_.push_back(object.path +
                                          " (the optimizer clips the gradient of each token, or scales it)");
    }
    return {};
  }

  // All micro-batches of a window share the weights that a layer replaces at its start. A layer that is called several
  // times replaces them in each call, so its micro-batches would not be those of the whole batch.
  bool couples_samples(size_t layer) const {
    const LayerObject& object = parts_.tree.layers[layer];
    if (!object.layer.replace_weights) return object.trainable && object.layer.couples_samples;
    return std::count_if(program_->calls.begin(), program_->calls.end(),
                         [&](const LayerCall& call) { return call.layer == layer; }) > 1;
  }

  // Penalties make the gradient of a table one of all its rows.
  bool has_single_rows(size_t layer) const {
    if (!parts_.tree.layers[layer].layer.reads_integers || program_->layers[layer].weights.empty()) return false;
    const Weight& table = model_.weights_[program_->layers[layer].first_weight];
    const bool penalized = table.l1 != 0 || table.l2 != 0 || table.regularizer.orthogonal != 0;
    return table.trainable && !penalized && reads_single_rows(architecture_.optimizer());
  }

  static Status check_weight(const Weight& weight) {
    if (weight.constraint)
      if (const std::string trouble = check_constraint(*weight.constraint, weight.shape); !trouble.empty())
        return fail(ErrorCode::kBadConfig, fmt::format("weight '{}': {}", weight.name, trouble));
    if (weight.regularizer.orthogonal != 0 && weight.shape.rank() != 2)
      return fail(ErrorCode::kBadConfig,
                  fmt::format("weight '{}': OrthogonalRegularizer is only for matrices, not [{}]", weight.name,
                              to_text(weight.shape)));
    return {};
  }

  void add_layers() {
    for (const Port& input : model_.inputs_)
      if (input.text) model_.layers_.push_back({input.text->layer, input.text->class_name, input.sample, 0});
    std::vector<std::optional<Shape>> outputs(program_->layers.size());
    for (const LayerCall& call : program_->calls)
      if (!outputs[call.layer]) outputs[call.layer] = program_->tensors[call.outputs[0]];
    for (size_t i = 0; i < program_->layers.size(); ++i) {
      const LayerObject& object = parts_.tree.layers[i];
      LayerInfo info{object.path, object.class_name, outputs[i].value_or(Shape{}), 0};
      for (const WeightSpec& spec : program_->layers[i].weights) info.parameters += spec.shape.elements();
      model_.layers_.push_back(std::move(info));
    }
  }

  const Architecture& architecture_;
  const ArchitectureParts& parts_;
  std::shared_ptr<LayerProgram> program_ = std::make_shared<LayerProgram>();
  Model model_;
};

Result<Model> Architecture::with_inputs(const std::vector<Shape>& samples) const {
  return ModelBuilder(*this).run(samples);
}

Result<Model> Model::create(const Description& description, const ModelOptions& options) {
  PLIMSOLL_ASSIGN(const Architecture architecture, Architecture::read(description, options));
  PLIMSOLL_ASSIGN(const std::vector<Shape> samples, input_shapes(architecture, options));
  return architecture.with_inputs(samples);
}

Result<Model> Model::with_inputs(const std::vector<Shape>& samples) const {
  PLIMSOLL_ASSIGN(Model other, architecture_.with_inputs(samples));
  assert(other.weights_.size() == weights_.size());
  for (size_t i = 0; i < weights_.size(); ++i)
    if (other.weights_[i].shape != weights_[i].shape)
      return fail(
          ErrorCode::kBadGeometry,
          fmt::format(
              "weight '{}' is [{}] for these inputs but [{}] for the model's own inputs, so it cannot be shared",
              weights_[i].name, to_text(other.weights_[i].shape), to_text(weights_[i].shape)));
  return other;
}

Model Model::with_loss_scale() const {
  Model scaled = *this;
  scaled.architecture_ = architecture_.with_loss_scale();
  return scaled;
}

bool Model::has_masked_losses() const {
  return !program_->several_masks &&
         std::any_of(outputs_.begin(), outputs_.end(), [](const Port& port) { return port.masked; });
}

Status Model::check_batch(int64_t batch) const {
  for (size_t t = 0; t < program_->tensors.size(); ++t)
    if (!program_->shared[t])
      PLIMSOLL_TRY(checked_shape(with_batch(batch, program_->tensors[t]).dims, "a batch of this size"));
  return {};
}

}  // namespace plimsoll::engine
