// From a description to a checked model: read everything, list what is not supported, give every tensor its shape.
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>

#include "formats/keras/layer_paths.h"
#include "model/architecture.h"
#include "model/model.h"

namespace plimsoll {
namespace {

// Nested models called twice on every level multiply; no real model comes near.
constexpr size_t kMostCalls = 1 << 17;

// Runs the calls of the tree on shapes. Fills the plan's calls and tensors, and the weights of each layer.
class Expansion {
 public:
  Expansion(const Architecture& architecture, ModelPlan& plan, Issues& issues)
      : architecture_(architecture), plan_(plan), issues_(issues) {}

  Result<std::vector<size_t>> run(const ModelTree& tree, const std::vector<size_t>& arguments) {
    if (arguments.size() != tree.inputs.size())
      return fail(ErrorCode::kBadConfig, fmt::format("model '{}' has {} inputs and is called with {}", tree.name,
                                                     tree.inputs.size(), arguments.size()));
    // Outputs of each child, call by call.
    std::vector<std::vector<std::vector<size_t>>> made(tree.children.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      PLIMSOLL_TRY(check_argument(tree, i, arguments[i]));
      made[tree.inputs[i].child] = {{arguments[i]}};
    }
    for (const ModelTree::Call& call : tree.calls) {
      std::vector<size_t> inputs;
      for (const TensorRef& ref : call.inputs) inputs.push_back(made[ref.child][ref.node][ref.tensor]);
      const ModelTree::Child& child = tree.children[call.child];
      if (child.kind == ModelTree::Child::Kind::kModel) {
        PLIMSOLL_ASSIGN(auto outputs, run(architecture_.models[child.index], inputs));
        made[call.child].push_back(std::move(outputs));
      } else {
        PLIMSOLL_ASSIGN(const size_t output, call_layer(child.index, std::move(inputs)));
        made[call.child].push_back({output});
      }
    }
    std::vector<size_t> outputs;
    for (const TensorRef& ref : tree.outputs) outputs.push_back(made[ref.child][ref.node][ref.tensor]);
    return outputs;
  }

 private:
  // A nested model's own InputLayer must agree with what the model is called on.
  Status check_argument(const ModelTree& tree, size_t i, size_t tensor) const {
    const InputSpec& spec = tree.specs[tree.children[tree.inputs[i].child].index];
    const Shape& got = plan_.tensors[tensor];
    bool fits = !spec.known || spec.dims.size() == got.rank();
    for (size_t d = 0; fits && spec.known && d < got.rank(); ++d) fits = !spec.dims[d] || *spec.dims[d] == got[d];
    if (fits) return {};
    return fail(ErrorCode::kBadGeometry,
                fmt::format("model '{}': its input '{}' is called on [{}], which is not its shape", tree.name,
                            spec.name, to_text(got)));
  }

  Result<size_t> call_layer(size_t index, std::vector<size_t> inputs) {
    LayerObject& object = plan_.layers[index];
    const std::string where = fmt::format("layer '{}' ({})", object.path, object.class_name);
    if (inputs.size() < object.layer.least_inputs || inputs.size() > object.layer.most_inputs)
      return fail(ErrorCode::kBadConfig, fmt::format("{}: called with {} inputs", where, inputs.size()));
    if (plan_.calls.size() >= kMostCalls)
      return fail(ErrorCode::kBadConfig, fmt::format("this model calls its layers more than {} times", kMostCalls));
    std::vector<Shape> shapes;
    for (size_t t : inputs) shapes.push_back(plan_.tensors[t]);
    PLIMSOLL_ASSIGN(LayerShape shape, object.layer.shape(shapes, issues_));
    if (!object.called) {
      object.specs = std::move(shape.weights);
      object.called = true;
    } else {
      for (size_t i = 0; i < object.specs.size(); ++i)
        if (object.specs[i].shape != shape.weights[i].shape)
          return fail(ErrorCode::kBadGeometry,
                      fmt::format("{}: its {} is [{}] in one call and [{}] in another", where, object.specs[i].name,
                                  to_text(object.specs[i].shape), to_text(shape.weights[i].shape)));
    }
    plan_.tensors.push_back(std::move(shape.output));
    plan_.calls.push_back({index, std::move(inputs), plan_.tensors.size() - 1});
    return plan_.tensors.size() - 1;
  }

  const Architecture& architecture_;
  ModelPlan& plan_;
  Issues& issues_;
};

std::string shown_dims(const std::vector<std::optional<int64_t>>& dims) {
  std::vector<std::string> words;
  for (const auto& d : dims) words.push_back(d ? fmt::format("{}", *d) : "None");
  return fmt::format("{}", fmt::join(words, ","));
}

// The sample's shape of the data, made to fit as data are: one trailing dimension of 1 may be missing or too many.
std::vector<int64_t> fitted(std::vector<int64_t> sample, const InputSpec& spec) {
  if (!spec.known) return sample;
  if (sample.size() + 1 == spec.dims.size() && spec.dims.back().value_or(1) == 1) sample.push_back(1);
  if (sample.size() == spec.dims.size() + 1 && sample.back() == 1) sample.pop_back();
  return sample;
}

bool agrees(const InputSpec& spec, const std::vector<int64_t>& given) {
  if (!spec.known) return true;
  bool same = given.size() == spec.dims.size();
  for (size_t i = 0; same && i < given.size(); ++i) same = !spec.dims[i] || *spec.dims[i] == given[i];
  return same;
}

// Images stored channels first fit once their first dimension is the last: "np.transpose(x, (0, 2, 3, 1))", else "".
std::string channels_first_remedy(const InputSpec& spec, std::vector<int64_t> sample) {
  if (sample.size() < 2) return "";
  std::rotate(sample.begin(), sample.begin() + 1, sample.end());
  if (!agrees(spec, sample)) return "";
  std::vector<size_t> axes{0};
  for (size_t i = 2; i <= sample.size(); ++i) axes.push_back(i);
  return fmt::format("np.transpose(x, ({}, 1))", fmt::join(axes, ", "));
}

// The shape of one sample: as declared, with `given` (--input-shape, or the data's) where the model says None.
Result<Shape> input_shape(const InputSpec& spec, const std::vector<int64_t>& given, bool from_data) {
  bool complete = spec.known;
  for (const auto& d : spec.dims) complete = complete && d;
  const std::string where = fmt::format("input '{}'", spec.name);
  const std::string declared = spec.known ? fmt::format("[{}]", shown_dims(spec.dims)) : "no shape";
  if (given.empty() && !complete) {
    Error error{ErrorCode::kUnknownInputShape,
                fmt::format("{} is declared with {}: its size must be given", where, declared),
                {},
                {}};
    error.remedy("--input-shape 224,224,3   the shape of one sample, without the batch");
    error.remedy("--data FILES   whose samples have the shape");
    return fail(std::move(error));
  }
  const bool fits = given.empty() || agrees(spec, given);
  if (!fits && from_data) {
    const std::string remedy = channels_first_remedy(spec, given);
    return fail(Error{
        ErrorCode::kDataShape,
        fmt::format("a sample of the data is ({}), {} is declared with {}", fmt::join(given, ", "), where, declared),
        {},
        {remedy.empty() ? "data whose samples have the declared sizes, and any where it says None" : remedy}});
  }
  if (!fits)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--input-shape {} does not go together with {}, declared with {}",
                                  fmt::join(given, ","), where, declared),
                      {},
                      {"--input-shape with the declared sizes, and any where it says None"}});
  if (!given.empty()) return checked_shape(given, where);
  std::vector<int64_t> dims;
  for (const auto& d : spec.dims) dims.push_back(*d);
  return checked_shape(std::move(dims), where);
}

// A --input-shape given for one input of several must not be held against the inputs that need none.
bool wants_shape(const InputSpec& spec) {
  for (const auto& d : spec.dims)
    if (!d) return true;
  return !spec.known;
}

std::vector<std::string> unique(std::vector<std::string> names) {
  std::set<std::string> seen;
  for (std::string& name : names) {
    const std::string wish = name;
    for (int n = 1; !seen.insert(name).second; ++n) name = fmt::format("{}_{}", wish, n);
  }
  return names;
}

}  // namespace

namespace {

void put_scale(Optimizer& optimizer) {
  if (!optimizer.loss_scale) optimizer.loss_scale = LossScale{};
}

}  // namespace

Model Model::with_loss_scale() const {
  Model scaled = *this;
  put_scale(scaled.optimizer_);
  return scaled;
}

class ModelBuilder {
 public:
  ModelBuilder(const Description& description, const ModelOptions& options)
      : description_(description), options_(options) {}

  Result<Model> run() {
    Issues issues;
    auto architecture = read_architecture(description_.config, issues);
    if (!architecture) {
      // What is unsupported may be why the walk could not go on: it comes first.
      if (!issues.unsupported.empty()) PLIMSOLL_TRY(issues.status());
      return fail(std::move(architecture).error());
    }
    architecture_ = std::move(*architecture);
    const ModelTree& tree = architecture_.top();
    plan_->layers = std::move(architecture_.layers);
    output_names_ = unique(tree.output_names);
    read_policies(issues);
    read_training(issues);
    PLIMSOLL_TRY(issues.status());
    PLIMSOLL_TRY(check_compiled());
    for (const std::string& pattern : options_.float32_layers) PLIMSOLL_TRY(keep_in_float32(pattern));
    PLIMSOLL_TRY(add_inputs(tree));
    Expansion expansion(architecture_, *plan_, issues);
    PLIMSOLL_ASSIGN(plan_->outputs, expansion.run(tree, plan_->inputs));
    std::vector<Shape> outputs;
    for (size_t t : plan_->outputs) outputs.push_back(plan_->tensors[t]);
    if (options_.needs_loss) resolve_metrics(plan_->objective, outputs);
    PLIMSOLL_TRY(issues.status());
    PLIMSOLL_TRY(add_outputs());
    // Keras ignores `trainable` of a Sequential model when it loads one, and heeds a Functional one's only at the top.
    PLIMSOLL_TRY(add_weights(tree.sequential || tree.trainable));
    add_layers();
    model_.name_ = tree.name;
    model_.skipped_metrics_ = plan_->objective.skipped_metrics;
    model_.plan_ = std::move(plan_);
    return std::move(model_);
  }

 private:
  void read_training(Issues& issues) {
    if (!options_.needs_loss && !options_.needs_training) return;
    const Json& compile = description_.compile_config;
    if (options_.needs_loss) plan_->objective = read_objective(compile, options_, output_names_, issues);
    if (!options_.needs_training) return;
    const Json* config = member(compile, "optimizer");
    Json chosen = config ? *config : Json();
    if (options_.optimizer) {
      const std::string& text = *options_.optimizer;
      chosen = !text.empty() && text[0] == '{' ? Json::parse(text, nullptr, false) : Json(text);
    }
    has_optimizer_ = !chosen.is_null();
    if (!has_optimizer_) return;
    const size_t before = issues.unsupported.size();
    model_.optimizer_ = parse_optimizer(chosen, issues.unsupported);
    if (issues.unsupported.size() > before)
      issues.remedy("--optimizer adam   another optimizer than the file's: sgd, adam or adamw");
    if (options_.scale_loss.value_or(model_.policy_.compute == DType::kFloat16)) put_scale(model_.optimizer_);
    if (options_.learning_rate) {
      model_.optimizer_.learning_rate = *options_.learning_rate;
      model_.optimizer_.schedule = nullptr;
    }
  }

  void read_policies(Issues& issues) {
    for (const LayerObject& object : plan_->layers) {
      if (!object.policy.is_mixed()) continue;
      if (!model_.policy_.is_mixed()) model_.policy_ = object.policy;
      if (object.policy != model_.policy_)
        issues.unknown(fmt::format("layer '{}' ({}): dtype={} beside layers of {}", object.path, object.class_name,
                                   to_text(object.policy), to_text(model_.policy_)));
    }
    for (LayerObject& object : plan_->layers) object.float32 = model_.policy_.is_mixed() && !object.policy.is_mixed();
  }

  Status check_compiled() const {
    bool has_loss = false;
    for (const auto& loss : plan_->objective.losses) has_loss = has_loss || loss;
    const bool lacks_optimizer = options_.needs_training && !has_optimizer_,
               lacks_loss = options_.needs_loss && !has_loss;
    if (!lacks_optimizer && !lacks_loss) return {};
    Error error{ErrorCode::kNotCompiled,
                "this model was never compiled: the file names no " + std::string(lacks_optimizer && lacks_loss
                                                                                      ? "optimizer and no loss"
                                                                                  : lacks_loss ? "loss"
                                                                                               : "optimizer"),
                {},
                {}};
    if (lacks_optimizer) error.remedy("--optimizer adam");
    if (lacks_loss) error.remedy("--loss sparse_categorical_crossentropy");
    return fail(std::move(error));
  }

  Status keep_in_float32(const std::string& pattern) {
    constexpr size_t kShown = 5;
    bool any = false;
    std::vector<std::string> names;
    for (LayerObject& object : plan_->layers) {
      const bool named = fnmatch(pattern.c_str(), object.path.c_str(), 0) == 0;
      object.float32 = object.float32 || named;
      any = any || named;
      names.push_back(object.path);
    }
    if (any) return {};
    const size_t others = names.size() - std::min(names.size(), kShown);
    names.resize(names.size() - others);
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--float32-layers {}: no layer of this model has such a name", pattern),
                      {fmt::format("its layers: {}{}", fmt::join(names, ", "),
                                   others == 0 ? "" : fmt::format(" and {} others", others))},
                      {"a name, or a pattern of names: block5_*"}});
  }

  Status add_inputs(const ModelTree& tree) {
    size_t wanting = 0;
    for (const InputSpec& spec : tree.specs) wanting += wants_shape(spec);
    const std::vector<std::string> names = unique(tree.input_names);
    for (size_t i = 0; i < tree.inputs.size(); ++i) {
      const InputSpec& spec = tree.specs[tree.children[tree.inputs[i].child].index];
      std::vector<int64_t> given;
      if (wants_shape(spec) || wanting == 0) given = options_.input_shape;
      const bool from_data = given.empty() && wants_shape(spec) && options_.data_shape;
      if (from_data) {
        PLIMSOLL_ASSIGN(std::vector<int64_t> sample, options_.data_shape(names[i], tree.inputs.size() == 1));
        given = fitted(std::move(sample), spec);
      }
      PLIMSOLL_ASSIGN(Shape shape, input_shape(spec, given, from_data));
      Port port;
      port.name = names[i];
      port.sample = shape;
      port.dtype = spec.dtype;
      model_.inputs_.push_back(std::move(port));
      plan_->inputs.push_back(plan_->tensors.size());
      plan_->tensors.push_back(std::move(shape));
    }
    return {};
  }

  Status add_outputs() {
    for (size_t i = 0; i < plan_->outputs.size(); ++i) {
      Port port;
      port.name = output_names_[i];
      port.sample = plan_->tensors[plan_->outputs[i]];
      const auto& losses = plan_->objective.losses;
      if (i < losses.size() && losses[i]) {
        if (port.sample.rank() == 0)
          return fail(ErrorCode::kBadGeometry,
                      fmt::format("output '{}': a loss needs at least one dimension beside the batch", port.name));
        port.has_loss = true;
        port.loss_weight = plan_->objective.loss_weights[i];
        port.rows_per_sample = port.sample.elements() / port.sample.back();
        port.target = port.sample;
        port.sparse_labels = losses[i]->kind == LossKind::kSparseCrossEntropy;
        if (port.sparse_labels) {
          port.classes = port.sample.back();
          port.target.dims.pop_back();
        }
      }
      model_.outputs_.push_back(std::move(port));
    }
    return {};
  }

  Status add_weights(bool trainable) {
    PLIMSOLL_ASSIGN(const std::vector<LayerPath> paths, layer_paths(description_.config));
    std::map<std::vector<std::string>, std::string> groups;
    for (const LayerPath& path : paths) groups[path.layer_names] = path.group;
    std::set<std::string> names;
    for (LayerObject& object : plan_->layers) {
      object.first_weight = model_.weights_.size();
      for (size_t i = 0; i < object.specs.size(); ++i) {
        const WeightSpec& spec = object.specs[i];
        Weight weight;
        weight.name = object.path + "/" + spec.name;
        if (!names.insert(weight.name).second)
          return fail(ErrorCode::kBadConfig, fmt::format("two weights are called '{}'", weight.name));
        weight.layer = object.path;
        weight.file_path = fmt::format("{}/vars/{}", groups[object.names], i);
        weight.shape = spec.shape;
        weight.trainable = trainable && object.trainable && !spec.statistic;
        weight.initializer = spec.initializer;
        weight.l1 = spec.l1;
        weight.l2 = spec.l2;
        model_.weights_.push_back(std::move(weight));
      }
      if (object.called && object.trainable && object.layer.couples_samples)
        model_.coupling_layers_.push_back(object.path);
    }
    return {};
  }

  void add_layers() {
    std::vector<std::optional<Shape>> outputs(plan_->layers.size());
    for (const LayerCall& call : plan_->calls)
      if (!outputs[call.layer]) outputs[call.layer] = plan_->tensors[call.output];
    for (size_t i = 0; i < plan_->layers.size(); ++i) {
      const LayerObject& object = plan_->layers[i];
      LayerInfo info{object.path, object.class_name, outputs[i].value_or(Shape{}), 0};
      for (const WeightSpec& spec : object.specs) info.parameters += spec.shape.elements();
      model_.layers_.push_back(std::move(info));
    }
  }

  const Description& description_;
  const ModelOptions& options_;
  Architecture architecture_;
  std::shared_ptr<ModelPlan> plan_ = std::make_shared<ModelPlan>();
  std::vector<std::string> output_names_;
  bool has_optimizer_ = false;
  Model model_;
};

Result<Model> Model::create(const Description& description, const ModelOptions& options) {
  return ModelBuilder(description, options).run();
}

Status Model::check_batch(int64_t batch) const {
  for (const Shape& sample : plan_->tensors) {
    std::vector<int64_t> dims{batch};
    dims.insert(dims.end(), sample.dims.begin(), sample.dims.end());
    PLIMSOLL_TRY(checked_shape(std::move(dims), "a batch of this size"));
  }
  return {};
}

}  // namespace plimsoll
