// functional(): writes the graph of calls between inputs and outputs in the form of Keras's Functional model.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "api/layer_graph.h"
#include "api/words.h"
#include "base/json.h"

namespace plimsoll {
namespace {

using engine::Access;
using engine::CallNode;
using engine::DescribedLayer;
using nlohmann::json;

tl::unexpected<Error> misuse(std::string what, std::string remedy = "") {
  Error error{ErrorCode::kUsage, std::move(what), {}, {}};
  if (!remedy.empty()) error.remedy(std::move(remedy));
  return fail(std::move(error));
}

// Collects the calls that the outputs depend on, and their layers in Keras's order (map_graph in
// keras/src/ops/function.py). Weight files number the layers in this order, so it must match Keras.
class CallGraph {
 public:
  Status walk(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
    PLIMSOLL_TRY(take_inputs(inputs));
    if (outputs.empty()) return misuse("functional() was given no outputs");
    for (const Tensor& output : outputs) PLIMSOLL_TRY(visit(Access::node(output).get()));
    for (size_t i = 0; i < inputs.size(); ++i)
      if (const CallNode* node = Access::node(inputs[i]).get(); !finished_.contains(node))
        return misuse(
            fmt::format("input {} of functional() is not used by its outputs: {}", i, engine::label_of(*node->layer)),
            "remove it from the list, or use it");
    sort_layers();
    return {};
  }

  const std::vector<const DescribedLayer*>& layers() const { return layers_; }
  // The calls of a layer, in topological order.
  const std::vector<const CallNode*>& calls(const DescribedLayer* layer) const { return calls_.at(layer); }
  // Returns the position of a call among the calls of its layer.
  size_t number(const CallNode* node) const { return numbers_.at(node); }

 private:
  Status take_inputs(const std::vector<Tensor>& inputs) {
    if (inputs.empty()) return misuse("functional() was given no inputs");
    for (size_t i = 0; i < inputs.size(); ++i) {
      const CallNode* node = Access::node(inputs[i]).get();
      if (!node->layer->is_input())
        return misuse(
            fmt::format("input {} of functional() is the result of a call of {}", i, engine::label_of(*node->layer)),
            "use a tensor that layers::Input() made");
      if (!inputs_.insert(node).second)
        return misuse(fmt::format("input {} of functional() is listed twice: {}", i, engine::label_of(*node->layer)));
    }
    return {};
  }

  Status enter(const CallNode* node, const CallNode* user) {
    const DescribedLayer& layer = *node->layer;
    if (layer.is_input() && !inputs_.contains(node))
      return misuse(fmt::format("{} depends on an Input that is not among the inputs of functional(): {}",
                                user ? engine::label_of(*user->layer) : "an output", engine::label_of(layer)),
                    "add it to the inputs");
    if (!layer.is_input() && node->inputs.empty())
      return misuse(fmt::format("{} was called with no tensors", engine::label_of(layer)));
    first_seen_.try_emplace(&layer, first_seen_.size());
    return {};
  }

  // Depth-first search with an explicit stack, because models may be thousands of layers deep.
  Status visit(const CallNode* output) {
    struct Step {
      const CallNode* node;
      size_t next = 0;
    };
    if (finished_.contains(output)) return {};
    PLIMSOLL_TRY(enter(output, nullptr));
    std::vector<Step> stack{{output}};
    while (!stack.empty()) {
      Step& top = stack.back();
      const CallNode* node = top.node;
      if (top.next == node->inputs.size()) {
        finished_.insert(node);
        numbers_[node] = calls_[node->layer.get()].size();
        calls_[node->layer.get()].push_back(node);
        order_.push_back(node);
        stack.pop_back();
        continue;
      }
      const CallNode* input = node->inputs[top.next++].node.get();
      if (finished_.contains(input)) continue;
      PLIMSOLL_TRY(enter(input, node));
      stack.push_back({input});
    }
    return {};
  }

  // Sorts from the inputs to the outputs by depth, which is the longest path to an output. Equal depths keep the order
  // of the search.
  void sort_layers() {
    std::map<const CallNode*, size_t> node_depth;
    std::map<const DescribedLayer*, size_t> layer_depth;
    for (auto node = order_.rbegin(); node != order_.rend(); ++node) {
      size_t& depth = layer_depth[(*node)->layer.get()];
      depth = std::max(depth, node_depth[*node]);
      for (const auto& input : (*node)->inputs) {
        size_t& before = node_depth[input.node.get()];
        before = std::max(before, depth + 1);
      }
    }
    for (const auto& [layer, depth] : layer_depth) layers_.push_back(layer);
    std::sort(layers_.begin(), layers_.end(), [&](const DescribedLayer* a, const DescribedLayer* b) {
      if (layer_depth[a] != layer_depth[b]) return layer_depth[a] > layer_depth[b];
      return first_seen_[a] < first_seen_[b];
    });
  }

  std::set<const CallNode*> inputs_, finished_;
  std::vector<const CallNode*> order_;  // topological: each call follows its inputs
  std::map<const DescribedLayer*, size_t> first_seen_;
  std::map<const DescribedLayer*, std::vector<const CallNode*>> calls_;
  std::map<const CallNode*, size_t> numbers_;
  std::vector<const DescribedLayer*> layers_;
};

class Writer {
 public:
  Writer(const CallGraph& graph, const std::vector<std::string>& names) : graph_(graph) {
    for (size_t i = 0; i < names.size(); ++i) names_[graph.layers()[i]] = names[i];
  }

  Result<json> layers() const {
    json list = json::array();
    for (const DescribedLayer* layer : graph_.layers()) {
      PLIMSOLL_ASSIGN(json object, engine::layer_json(*layer, names_.at(layer)));
      object["name"] = names_.at(layer);
      json& nodes = object["inbound_nodes"] = json::array();
      for (const CallNode* call : graph_.calls(layer))
        if (!layer->is_input()) nodes.push_back(arguments(*call));
      list.push_back(std::move(object));
    }
    return list;
  }

  // A model with one output writes it without a list around it.
  json ports(const std::vector<Tensor>& tensors) const {
    json list = json::array();
    for (const Tensor& tensor : tensors) {
      const CallNode* node = Access::node(tensor).get();
      // A nested Functional model already has one call, which comes before the calls in this model.
      const bool own_call = node->layer->model && node->layer->class_name != "Sequential";
      list.push_back(reference(node, Access::index(tensor), own_call ? 1 : 0));
    }
    return list.size() == 1 ? list[0] : list;
  }

 private:
  json reference(const CallNode* node, size_t index, size_t first) const {
    return json::array({names_.at(node->layer.get()), graph_.number(node) + first, index});
  }

  // Keras reads two forms. The other form repeats the shape of every tensor, which is unknown here.
  json arguments(const CallNode& call) const {
    if (call.layer->takes_tensors_apart || !call.layer->call_arguments.empty()) return named_arguments(call);
    json list = json::array();
    for (const auto& input : call.inputs) {
      list.push_back(reference(input.node.get(), input.index, 0));
      list.back().push_back(json::object());
    }
    return list;
  }

  // Keras replaces the shapes by those of the tensors that it finds.
  json named_arguments(const CallNode& call) const {
    json tensors = json::array();
    for (const auto& input : call.inputs)
      tensors.push_back({{"class_name", "__keras_tensor__"},
                         {"config",
                          {{"shape", json::array({nullptr})},
                           {"dtype", "float32"},
                           {"keras_history", reference(input.node.get(), input.index, 0)}}}});
    if (!call.layer->takes_tensors_apart) tensors = json::array({std::move(tensors)});
    return {{"args", std::move(tensors)}, {"kwargs", call.layer->call_arguments}};
  }

  const CallGraph& graph_;
  std::map<const DescribedLayer*, std::string> names_;
};

Result<Description> build(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                          const std::string& name) {
  PLIMSOLL_TRY(engine::check_name(name, "functional()"));
  CallGraph graph;
  PLIMSOLL_TRY(graph.walk(inputs, outputs));
  PLIMSOLL_ASSIGN(const std::vector<std::string> names, engine::layer_names(graph.layers()));
  const Writer writer(graph, names);
  PLIMSOLL_ASSIGN(json layers, writer.layers());
  json config = engine::json_object({{"name", name},
                                     {"trainable", true},
                                     {"layers", std::move(layers)},
                                     {"input_layers", writer.ports(inputs)},
                                     {"output_layers", writer.ports(outputs)}});
  json object = engine::keras_json("keras.src.models.functional", "Functional", std::move(config));
  object["registered_name"] = "Functional";
  return engine::finish_model(std::move(object), graph.layers(), names);
}

}  // namespace

Result<Description> functional(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                               const std::string& name) {
  return engine::at_border([&] { return build(inputs, outputs, name); });
}

}  // namespace plimsoll
