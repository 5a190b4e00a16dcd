#include "model/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "model/nodes.h"
#include "model/text/text_layer.h"

namespace plimsoll::engine {

bool is_model_class(std::string_view class_name) {
  return class_name == "Sequential" || class_name == "Functional" || class_name == "Model";
}

namespace {

// Operations of keras.ops may have the same names as layers ("Multiply"). Their module distinguishes them.
bool is_layer_module(const std::string& module) {
  for (const char* prefix :
       {"keras.layers", "keras.models", "keras.src.layers", "keras.src.models", "keras.src.applications"})
    if (module.rfind(prefix, 0) == 0) return true;
  return module.empty() || module == "keras";
}

// Functions on tensors: those of keras.ops, and activations. They have no weights, no policy and no `trainable`.
bool is_operation_module(const std::string& module) {
  return module.starts_with("keras.src.ops") || module.starts_with("keras.src.activations");
}

tl::unexpected<Error> bad(std::string what) {
  return fail(ErrorCode::kBadConfig, std::move(what));
}

class Walk {
 public:
  explicit Walk(Issues& issues) : issues_(issues) {}

  // Returns the index of the model in the tree.
  Result<size_t> model(const Json& object, const std::vector<std::string>& names);
  LayerTree take() { return std::move(result_); }

 private:
  using Kind = ModelTree::Child::Kind;
  // The calls of one layer, in the file's order.
  struct Nodes {
    std::vector<NodeArguments> list;
    size_t done = 0;
  };

  Status sequential(const Json& config, const Json& object, const std::vector<std::string>& names, ModelTree& tree);
  Status functional(const Json& config, const std::vector<std::string>& names, ModelTree& tree);
  // `calls` are the layer's calls in a Functional model, empty in a Sequential one.
  Status child(const Json& object, const std::string& name, const std::vector<std::string>& names,
               std::span<const NodeArguments> calls, ModelTree& tree);
  void input(const Json& object, const std::string& name, const std::string& where, ModelTree& tree);
  void unknown_layer(const Json& object, const KerasObject& keras, const std::string& where);
  void layer(const Json& object, const std::string& name, const std::string& where,
             const std::vector<std::string>& names, std::span<const NodeArguments> calls, ModelTree& tree);
  Layer parse_call(const KerasObject& keras, const std::function<Layer(Config&)>& parse, const std::string& where,
                   const CallArguments* call, LayerObject& made, bool& used_call);
  Status order_calls(const std::string& where, std::vector<Nodes>& nodes, ModelTree& tree);
  Result<TensorRef> resolve(const NamedTensor& tensor, bool from_ports, const std::string& where,
                            const ModelTree& tree) const;
  Status ports(const Json& config, const std::string& where, ModelTree& tree);
  size_t outputs_of(const ModelTree& tree, size_t child, size_t node) const;

  Issues& issues_;
  LayerTree result_;
};

std::string join(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, "/"));
}

std::vector<std::optional<int64_t>> sample_dims(const Json& batch_shape, const std::string& where, Issues& issues) {
  std::vector<std::optional<int64_t>> dims;
  bool good = batch_shape.is_array() && !batch_shape.empty();
  for (size_t i = 1; good && i < batch_shape.size(); ++i) {
    const Json& d = batch_shape[i];
    const auto n = as_integer(d);
    good = d.is_null() || n;
    dims.push_back(n);
  }
  if (!good)
    issues.reject(fmt::format("{}: a shape must be a list of integers and nulls that begins with the batch, got {}",
                              where, shown(batch_shape)));
  return dims;
}

void Walk::input(const Json& object, const std::string& name, const std::string& where, ModelTree& tree) {
  const Json* config = member(object, "config");
  const Json empty = Json::object();
  Config c(config ? *config : empty, where, issues_);
  InputSpec spec;
  spec.name = name;
  const Json* shape = c.value("batch_shape");
  if (!shape) shape = c.value("batch_input_shape");
  if (shape) {
    spec.dims = sample_dims(*shape, where, issues_);
    spec.known = true;
  } else {
    issues_.reject(fmt::format("{}: it must have a batch_shape", where));
  }
  const std::string dtype = c.text("dtype", "float32");
  const auto type = dtype_from_name(dtype);
  if (type && *type != DType::kFloat16 && *type != DType::kBFloat16)
    spec.dtype = *type;
  else
    issues_.unknown(fmt::format("{}: dtype={}", where, dtype));
  c.only("sparse", {false});
  c.only("ragged", {false});
  c.only("optional", {false});
  c.ignore({"name", "trainable"});
  c.finish();
  tree.children.push_back({Kind::kInput, name, tree.specs.size()});
  tree.specs.push_back(std::move(spec));
}

// Lists an unsupported Keras layer, an operation of keras.ops, or a user's own class.
void Walk::unknown_layer(const Json& object, const KerasObject& keras, const std::string& where) {
  const std::string module = text_member(object, "module"), registered = text_member(object, "registered_name");
  if (keras.custom) {
    issues_.unknown(module.empty() ? fmt::format("{}: custom class {}", where, registered)
                                   : fmt::format("{}: custom class {} of {}", where, keras.name, module));
    issues_.custom_code();
    return;
  }
  if (keras.name == "Lambda") issues_.custom_code();
  if (keras.name == "TFOpLambda" || keras.name == "SlicingOpLambda")
    issues_.remedy("save the model with Keras 3: it writes functions on tensors as operations of keras.ops");
  std::string what = is_layer_module(module) ? where : fmt::format("{}: class {} of {}", where, keras.name, module);
  if (const std::string_view reason = refusal_of(keras.name); is_operation_module(module) && !reason.empty())
    what += fmt::format(", because {}", reason);
  if (const std::string_view family = later_family(keras.name); is_layer_module(module) && !family.empty())
    what += fmt::format(": not yet: {}", family);
  if (is_layer_module(module) && is_text_layer(keras.name))
    what += ": it works where it reads an input of the model with dtype=\"string\"";
  issues_.unknown(std::move(what));
}

Layer Walk::parse_call(const KerasObject& keras, const std::function<Layer(Config&)>& parse, const std::string& where,
                       const CallArguments* call, LayerObject& made, bool& used_call) {
  Config c(keras.config, where, issues_, call);
  c.ignore({"name"});
  ActivityPenalty activity;
  if (!made.operation) {
    made.trainable = c.flag("trainable", true);
    made.policy = read_policy(c);
    activity = read_activity(c);
  }
  Layer layer = parse(c);
  if (!layer.activity) layer.activity = activity;  // a class that has a penalty of its own has read this one
  c.finish();
  used_call = c.used_call();
  return layer;
}

void Walk::layer(const Json& object, const std::string& name, const std::string& where,
                 const std::vector<std::string>& names, std::span<const NodeArguments> calls, ModelTree& tree) {
  const KerasObject keras = keras_object(object);
  const std::string module = text_member(object, "module");
  LayerObject made;
  made.names = names;
  made.path = join(names);
  made.class_name = keras.name;
  const bool traced = module == kTracedModule && !keras.custom, weights = traced && keras.name == "Weights";
  made.operation = is_operation_module(module) || (traced && !weights);
  std::function<Layer(Config&)> parse;
  if (weights)
    parse = traced_weights;
  else if (traced)
    parse = find_traced(keras.name);
  else if (made.operation)
    parse = find_operation(keras.name);
  else if (is_layer_module(module) && !keras.custom)
    parse = find_layer(keras.name);
  if (parse) {
    bool used_call = false;
    made.layer = parse_call(keras, parse, where, calls.empty() ? nullptr : &calls[0].call, made, used_call);
    for (size_t i = 1; used_call && i < calls.size(); ++i) {
      if (i == 1) made.by_call.push_back(made.layer);
      made.by_call.push_back(parse_call(keras, parse, where, &calls[i].call, made, used_call));
    }
    // The layer reads the tensors of its first argument. The arguments of unsupported layers are not listed separately.
    for (const NodeArguments& one : calls)
      for (const std::string& extra : used_call ? std::vector<std::string>{} : extra_arguments(one.call))
        issues_.unknown(fmt::format("layer '{}': called with {}", made.path, extra));
  } else {
    unknown_layer(object, keras, where);
  }
  tree.children.push_back({Kind::kLayer, name, result_.layers.size()});
  result_.layers.push_back(std::move(made));
}

Status Walk::child(const Json& object, const std::string& name, const std::vector<std::string>& outer,
                   std::span<const NodeArguments> calls, ModelTree& tree) {
  std::vector<std::string> names = outer;
  names.push_back(name);
  const KerasObject keras = keras_object(object);
  const std::string where = fmt::format("layer '{}' ({})", join(names), keras.name);
  if (keras.name.empty()) return bad(fmt::format("layer '{}': it must have a class_name", join(names)));
  if (!tree.child_by_name.emplace(name, tree.children.size()).second)
    return bad(fmt::format("{}: another layer has the same name", where));
  Config c(object, where, issues_);
  c.ignore({"module", "class_name", "config", "registered_name", "build_config", "compile_config", "name",
            "inbound_nodes", "shared_object_id"});
  c.finish();
  if (is_model_class(keras.name) && !keras.custom) {
    PLIMSOLL_ASSIGN(const size_t index, model(object, names));
    tree.children.push_back({Kind::kModel, name, index});
    for (const NodeArguments& one : calls)
      for (const std::string& extra : extra_arguments(one.call))
        issues_.unknown(fmt::format("layer '{}': called with {}", join(names), extra));
    for (const NodeArguments& one : calls)
      if (std::any_of(one.masks.begin(), one.masks.end(), [](const auto& mask) { return mask.has_value(); }))
        issues_.unknown(fmt::format("layer '{}': called with mask=a tensor", join(names)));
  } else if (keras.name == "InputLayer" && !keras.custom) {
    input(object, name, where, tree);
  } else {
    layer(object, name, where, names, calls, tree);
  }
  return {};
}

size_t Walk::outputs_of(const ModelTree& tree, size_t index, size_t node) const {
  const auto& c = tree.children[index];
  if (c.kind == Kind::kInput) return 1;
  return c.kind == Kind::kModel ? result_.models[c.index].outputs.size() : result_.layers[c.index].at(node).outputs;
}

std::string child_name(const Json& object) {
  const std::string own = text_member(object, "name");
  if (!own.empty()) return own;
  const Json* config = member(object, "config");
  return config ? text_member(*config, "name") : "";
}

Status Walk::sequential(const Json& config, const Json& object, const std::vector<std::string>& names,
                        ModelTree& tree) {
  const std::string where = fmt::format("model '{}'", tree.name);
  const Json* layers = member(config, "layers");
  if (!layers || !layers->is_array() || layers->empty()) return bad(where + ": it must have a list of layers");
  const Json* shape = member(config, "build_input_shape");
  if (const Json* build = member(object, "build_config"); !shape && build) shape = member(*build, "input_shape");
  // Models that were saved before their shape was known begin with their first layer instead of an InputLayer.
  if (text_member((*layers)[0], "class_name") != "InputLayer") {
    InputSpec spec;
    spec.name = "input";
    if (shape && !shape->is_null()) {
      spec.dims = sample_dims(*shape, where, issues_);
      spec.known = true;
    }
    tree.children.push_back({Kind::kInput, "", 0});
    tree.specs.push_back(std::move(spec));
  }
  for (size_t i = 0; i < layers->size(); ++i) {
    const std::string name = child_name((*layers)[i]);
    if (name.empty()) return bad(fmt::format("{}: layer {} has no name", where, i));
    PLIMSOLL_TRY(child((*layers)[i], name, names, {}, tree));
    if (i > 0 && tree.children.back().kind == Kind::kInput)
      return bad(fmt::format("{}: an InputLayer can only be the first layer", where));
  }
  // A custom InputLayer is listed as unsupported, and reading cannot continue without it.
  if (tree.children[0].kind != Kind::kInput) return bad(fmt::format("{}: its InputLayer is not Keras's", where));
  std::vector<TensorRef> current{TensorRef{}};
  for (size_t i = 1; i < tree.children.size(); ++i) {
    tree.calls.push_back({i, current, {}, i});
    current.clear();
    for (size_t t = 0; t < outputs_of(tree, i, 0); ++t) current.push_back({i, 0, t});
  }
  tree.inputs = {TensorRef{}};
  tree.outputs = current;
  tree.input_names = {tree.specs[0].name};
  tree.output_names.assign(current.size(), tree.children.back().name);
  return {};
}

Result<TensorRef> Walk::resolve(const NamedTensor& tensor, bool from_ports, const std::string& where,
                                const ModelTree& tree) const {
  const auto found = tree.child_by_name.find(tensor.layer);
  if (found == tree.child_by_name.end()) return bad(fmt::format("{}: there is no layer '{}'", where, tensor.layer));
  const size_t i = found->second;
  const auto& c = tree.children[i];
  auto node = static_cast<size_t>(tensor.node);
  // Keras counts the calls of a nested Functional model from 1 in input_layers and output_layers, from 0 elsewhere.
  if (from_ports && c.kind == Kind::kModel && !result_.models[c.index].sequential && node > 0) --node;
  if (static_cast<size_t>(tensor.tensor) >= outputs_of(tree, i, node))
    return bad(fmt::format("{}: layer '{}' has no output {}", where, tensor.layer, tensor.tensor));
  return TensorRef{i, node, static_cast<size_t>(tensor.tensor)};
}

// Like functional_from_config: goes over the layers repeatedly and makes every call whose inputs exist.
Status Walk::order_calls(const std::string& where, std::vector<Nodes>& nodes, ModelTree& tree) {
  std::vector<size_t> made(tree.children.size(), 0);
  for (size_t i = 0; i < made.size(); ++i)
    if (tree.children[i].kind == Kind::kInput) made[i] = 1;
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (; nodes[i].done < nodes[i].list.size(); ++nodes[i].done) {
        const NodeArguments& arguments = nodes[i].list[nodes[i].done];
        ModelTree::Call call{i, {}, {}};
        bool ready = true;
        for (const NamedTensor& tensor : arguments.tensors) {
          PLIMSOLL_ASSIGN(const TensorRef ref, resolve(tensor, false, where, tree));
          ready = ready && ref.node < made[ref.child];
          call.inputs.push_back(ref);
        }
        for (const auto& mask : arguments.masks) {
          call.masks.emplace_back();
          if (!mask) continue;
          PLIMSOLL_ASSIGN(call.masks.back(), resolve(*mask, false, where, tree));
          ready = ready && call.masks.back()->node < made[call.masks.back()->child];
        }
        if (!ready) break;
        tree.calls.push_back(std::move(call));
        ++made[i];
        progress = true;
      }
    }
  }
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].done < nodes[i].list.size())
      return bad(fmt::format("{}: the inputs of layer '{}' form a loop or are missing", where, tree.children[i].name));
  return {};
}

Status Walk::ports(const Json& config, const std::string& where, ModelTree& tree) {
  for (const bool in : {true, false}) {
    const char* key = in ? "input_layers" : "output_layers";
    const Json* value = member(config, key);
    const auto list = value ? read_ports(*value) : std::nullopt;
    if (!list)
      return bad(fmt::format("{}: '{}' must name tensors, as [\"layer\", 0, 0], got {}", where, key,
                             value ? shown(*value) : "nothing"));
    for (const NamedPort& port : *list) {
      PLIMSOLL_ASSIGN(const TensorRef ref, resolve(port.tensor, true, fmt::format("{}, {}", where, key), tree));
      size_t calls = tree.children[ref.child].kind == Kind::kInput ? 1 : 0;
      for (const auto& call : tree.calls) calls += call.child == ref.child;
      if (ref.node >= calls)
        return bad(fmt::format("{}, {}: layer '{}' has no call {}", where, key, port.tensor.layer, port.tensor.node));
      if (in && tree.children[ref.child].kind != Kind::kInput)
        return bad(fmt::format("{}: '{}' is an input but not an InputLayer", where, port.tensor.layer));
      (in ? tree.inputs : tree.outputs).push_back(ref);
      (in ? tree.input_names : tree.output_names).push_back(port.key.empty() ? port.tensor.layer : port.key);
    }
  }
  std::vector<bool> fed(tree.children.size(), false);
  for (const TensorRef& ref : tree.inputs) {
    if (fed[ref.child]) return bad(fmt::format("{}: input '{}' is listed twice", where, tree.children[ref.child].name));
    fed[ref.child] = true;
  }
  for (const auto& c : tree.children)
    if (c.kind == Kind::kInput && !fed[static_cast<size_t>(&c - tree.children.data())])
      return bad(fmt::format("{}: InputLayer '{}' is not among its input_layers", where, c.name));
  return {};
}

Status Walk::functional(const Json& config, const std::vector<std::string>& names, ModelTree& tree) {
  const std::string where = fmt::format("model '{}'", tree.name);
  const Json* layers = member(config, "layers");
  if (!layers || !layers->is_array() || layers->empty()) return bad(where + ": it must have a list of layers");
  std::vector<Nodes> nodes;
  for (size_t i = 0; i < layers->size(); ++i) {
    const Json& object = (*layers)[i];
    const std::string name = child_name(object);
    if (name.empty()) return bad(fmt::format("{}: layer {} has no name", where, i));
    const Json* inbound = member(object, "inbound_nodes");
    if (!inbound || !inbound->is_array())
      return bad(fmt::format("{}, layer '{}': it must have a list of inbound_nodes", where, name));
    nodes.emplace_back();
    std::vector<NodeArguments>& calls = nodes.back().list;
    const Json* unreadable = nullptr;
    const std::string module = text_member(object, "module");
    const bool operation = is_operation_module(module) || module == kTracedModule;
    for (const Json& one : *inbound) {
      auto arguments = read_node(one, !operation);
      if (arguments)
        calls.push_back(std::move(*arguments));
      else if (!unreadable)
        unreadable = &one;
    }
    PLIMSOLL_TRY(child(object, name, names, calls, tree));
    if (tree.children.back().kind == Kind::kInput)
      calls.clear();
    else if (unreadable)
      return bad(fmt::format("{}, layer '{}': an inbound node must list the tensors of a call, got {}", where, name,
                             shown(*unreadable)));
  }
  PLIMSOLL_TRY(order_calls(where, nodes, tree));
  PLIMSOLL_TRY(ports(config, where, tree));
  rank_calls(tree);
  return {};
}

Result<size_t> Walk::model(const Json& object, const std::vector<std::string>& names) {
  constexpr size_t kDeepest = 32;
  if (names.size() > kDeepest) return bad(fmt::format("models are nested more than {} deep", kDeepest));
  const KerasObject keras = keras_object(object);
  if (!keras.name.empty() && keras.custom) {
    issues_.unknown(
        fmt::format("the model is of the custom class {}: subclassed, or with a train_step of its own", keras.name));
    issues_.custom_code();
  }
  if (!is_model_class(keras.name) || keras.custom)
    return bad(fmt::format("the model must be Sequential or Functional, got class_name {}",
                           keras.name.empty() ? "nothing" : keras.name));
  const Json* config = member(object, "config");
  if (!config || !config->is_object()) return bad(fmt::format("{}: it must have a config", keras.name));
  ModelTree tree;
  tree.sequential = keras.name == "Sequential";
  tree.name = names.empty() ? text_member(*config, "name") : join(names);
  Config c(*config, fmt::format("model '{}'", tree.name), issues_);
  tree.trainable = c.flag("trainable", true);
  read_policy(c);  // only validates it: the layers have their own policies
  c.ignore({"name", "layers", "build_input_shape", "input_layers", "output_layers"});
  c.finish();
  PLIMSOLL_TRY(tree.sequential ? sequential(*config, object, names, tree) : functional(*config, names, tree));
  result_.models.push_back(std::move(tree));
  return result_.models.size() - 1;
}

}  // namespace

Result<LayerTree> read_tree(const Json& config, Issues& issues) {
  Walk walk(issues);
  PLIMSOLL_TRY(walk.model(config, {}));
  return walk.take();
}

}  // namespace plimsoll::engine
