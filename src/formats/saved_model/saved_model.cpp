#include "formats/saved_model/saved_model.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "formats/hdf5/reader.h"
#include "formats/json/parse.h"
#include "formats/limits.h"
#include "formats/saved_model/object_graph.h"
#include "formats/saved_model/protobuf.h"

namespace plimsoll::engine {
namespace {

constexpr const char* kMetadataFile = "keras_metadata.pb";
constexpr const char* kObjectGraph = "_CHECKPOINTABLE_OBJECT_GRAPH";

bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

Error no_metadata(const std::string& folder) {
  Error error{ErrorCode::kNotAKerasFile, fmt::format("{} is not a model of Keras", folder), {}, {}};
  if (exists(folder + "/saved_model.pb")) {
    error.what = fmt::format("{} is a SavedModel without Keras's configuration", folder);
    error.fact(fmt::format("it has no {}, so it is a graph for inference, as model.export writes it", kMetadataFile));
    return error.remedy("model.save('model.keras') in Keras, where the model was made");
  }
  error.fact("it is a folder, but no SavedModel: it has no saved_model.pb");
  return error.remedy("a file that Keras wrote: model.save('model.keras')");
}

// The tensors of the layers of the outermost model, and of its optimizer.
class Weights {
 public:
  Weights(const TensorBundle& bundle, const ObjectGraph& graph) : bundle_(bundle), graph_(graph) {}

  Result<WeightsByLayer> read(const std::vector<MetadataNode>& nodes, const std::string& label) {
    WeightsByLayer found;
    constexpr std::string_view kRoot = "root.";
    for (const MetadataNode& node : nodes) {
      const std::string_view child = std::string_view(node.path).substr(std::min(kRoot.size(), node.path.size()));
      if (!node.path.starts_with(kRoot) || child.find('.') != std::string_view::npos) continue;
      const CheckpointObject* layer = graph_.find(graph_.root(), {child});
      if (layer == nullptr || !child.starts_with("layer")) continue;
      PLIMSOLL_ASSIGN(const auto metadata, parse_json(node.metadata, label + ": " + node.path));
      const auto name = metadata.find("name");
      if (!metadata.is_object() || name == metadata.end() || !name->is_string())
        return fail(ErrorCode::kBadConfig, fmt::format("{}: {}: the layer has no name", label, node.path));
      LayerWeights weights{name->get<std::string>(), graph_.list(graph_.find(*layer, {"trainable_variables"}))};
      const auto others = graph_.list(graph_.find(*layer, {"keras_api", "non_trainable_variables"}));
      weights.tensors.insert(weights.tensors.end(), others.begin(), others.end());
      if (weights.tensors.empty())  // a Normalization layer lists none
        for (const char* number : {"mean", "variance", "count"})
          if (std::string tensor = tensor_of(*layer, number); !tensor.empty())
            weights.tensors.push_back(std::move(tensor));
      for (const std::string& tensor : weights.tensors) PLIMSOLL_TRY(check(tensor));
      found.layers.push_back(std::move(weights));
    }
    PLIMSOLL_TRY(read_optimizer(found));
    return found;
  }

 private:
  // Every tensor belongs to one variable, so the lists take no more memory than the index.
  Status check(const std::string& tensor) {
    if (!bundle_.type_of(tensor))
      return fail(ErrorCode::kWeightMissing, fmt::format("{}: the tensor {} is missing", bundle_.label(), tensor));
    if (!seen_.insert(tensor).second)
      return bad_weights(bundle_.label(), fmt::format("{} belongs to two variables", tensor));
    return {};
  }

  std::string tensor_of(const CheckpointObject& object, std::string_view child) const {
    const CheckpointObject* found = graph_.find(object, {child});
    return found != nullptr ? found->tensor : "";
  }

  Status read_optimizer(WeightsByLayer& found) {
    const CheckpointObject* optimizer = graph_.find(graph_.root(), {"optimizer"});
    if (optimizer == nullptr) return {};
    OptimizerTensors& tensors = found.optimizer;
    if (const CheckpointObject* all = graph_.find(*optimizer, {"_variables"})) {  // Keras 2.11 and newer
      tensors.iteration = tensor_of(*optimizer, "_iterations");
      tensors.learning_rate = tensor_of(*optimizer, "_learning_rate");
      for (std::string& state : graph_.list(all))
        if (state != tensors.iteration && state != tensors.learning_rate) tensors.states.push_back(std::move(state));
    } else {
      tensors.iteration = tensor_of(*optimizer, "iter");
      tensors.learning_rate = tensor_of(*optimizer, "learning_rate");
      tensors.states = slots_by_weight(*optimizer, found.layers);
    }
    for (std::string* scalar : {&tensors.iteration, &tensors.learning_rate})
      if (!scalar->empty()) PLIMSOLL_TRY(check(*scalar));
    for (const std::string& state : tensors.states) PLIMSOLL_TRY(check(state));
    return {};
  }

  // The order of Keras 3: m and v of each weight in turn, then any other slot (amsgrad's maxima).
  std::vector<std::string> slots_by_weight(const CheckpointObject& optimizer,
                                           const std::vector<LayerWeights>& layers) const {
    std::map<std::pair<std::string, std::string>, std::string> states;  // by variable and slot
    std::set<std::string> others;
    for (const CheckpointObject::Slot& slot : optimizer.slots) {
      states.emplace(std::pair(graph_.object(slot.variable).tensor, slot.name), graph_.object(slot.state).tensor);
      if (slot.name != "m" && slot.name != "v") others.insert(slot.name);
    }
    std::vector<std::string> sorted;
    const auto add = [&](const std::vector<std::string>& slots) {
      for (const LayerWeights& layer : layers)
        for (const std::string& weight : layer.tensors)
          for (const std::string& slot : slots)
            if (const auto state = states.find({weight, slot}); state != states.end()) sorted.push_back(state->second);
    };
    add({"m", "v"});
    for (const std::string& slot : others) add({slot});
    return sorted;
  }

  const TensorBundle& bundle_;
  const ObjectGraph& graph_;
  std::set<std::string> seen_;
};

}  // namespace

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// SavedMetadata: {nodes = 1 {node_id = 2, node_path = 3, identifier = 4, metadata = 5}}
Result<std::vector<MetadataNode>> parse_metadata(std::span<const std::byte> bytes, const std::string& label) {
  std::vector<MetadataNode> nodes;
  ProtoReader message(bytes);
  bool good = true;
  while (good && message.next()) {
    if (message.field() != 1) continue;
    if (nodes.size() >= static_cast<size_t>(limits::kMetadataNodes))
      return fail(ErrorCode::kBadConfig, fmt::format("{}: it has more than {} nodes", label, limits::kMetadataNodes));
    nodes.emplace_back();
    ProtoReader node(message.bytes());
    while (node.next()) {
      if (node.field() == 3) nodes.back().path = node.text();
      if (node.field() == 5) nodes.back().metadata = node.text();
    }
    good = node.ok();
  }
  if (!good || !message.ok())
    return fail(Error{ErrorCode::kBadConfig,
                      fmt::format("{}: it is damaged, or not of Keras", label),
                      {},
                      {"save the model again: model.save('model.keras')"}});
  return nodes;
}

Result<SavedModel> open_saved_model(const std::string& folder) {
  const std::string label = fmt::format("{}/{}", folder, kMetadataFile);
  if (!exists(label)) return fail(no_metadata(folder));
  PLIMSOLL_ASSIGN(const File file, File::open_read(label));
  if (file.size() > limits::kJsonBytes)
    return fail(ErrorCode::kBadConfig,
                fmt::format("{}: it is larger than {}", label, format_bytes(limits::kJsonBytes)));
  std::vector<std::byte> bytes(static_cast<size_t>(file.size()));
  PLIMSOLL_TRY(file.pread_exact(0, bytes));
  PLIMSOLL_ASSIGN(const std::vector<MetadataNode> nodes, parse_metadata(bytes, label));
  const auto root = std::ranges::find(nodes, "root", &MetadataNode::path);
  if (root == nodes.end()) return fail(ErrorCode::kBadConfig, fmt::format("{}: it has no node 'root'", label));
  SavedModel model;
  PLIMSOLL_ASSIGN(auto metadata, parse_json(root->metadata, label + ": root"));
  const auto take = [&](const char* key) {
    return metadata.is_object() && metadata.contains(key) ? std::move(metadata[key]) : nlohmann::json();
  };
  model.model = nlohmann::json::object();
  model.model["class_name"] = take("class_name");
  model.model["config"] = take("config");
  model.training = take("training_config");
  PLIMSOLL_ASSIGN(model.bundle, TensorBundle::open(folder + "/variables/variables"));
  PLIMSOLL_ASSIGN(const std::string graph_text, model.bundle.read_text(kObjectGraph));
  PLIMSOLL_ASSIGN(const ObjectGraph graph, ObjectGraph::parse(graph_text, model.bundle.label()));
  PLIMSOLL_ASSIGN(model.by_layer, Weights(model.bundle, graph).read(nodes, label));
  return model;
}

}  // namespace plimsoll::engine
