#include "model/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "model/config.h"

namespace plimsoll::engine {
namespace {

Json* member(Json& object, const std::string& key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// The layers of a Sequential or Functional model; null for anything else.
Json* layers_of(Json& model) {
  Json* config = member(model, "config");
  Json* layers = config != nullptr ? member(*config, "layers") : nullptr;
  return layers != nullptr && layers->is_array() ? layers : nullptr;
}

std::string class_of(const Json& layer) {
  return text_member(layer, "class_name");
}

std::string name_of_layer(const Json& layer) {
  const std::string own = text_member(layer, "name");
  if (!own.empty()) return own;
  const Json* config = plimsoll::engine::member(layer, "config");
  return config != nullptr ? text_member(*config, "name") : "";
}

// Calls `visit(place)` for each place that names a tensor of a layer: ["conv2d", 0, 0, ...]. Both of Keras's formats
// write tensors in this way.
template <typename Visit>
void each_tensor(Json& json, const Visit& visit, int depth = 0) {
  constexpr int kDeepest = 64;
  if (depth > kDeepest || !json.is_structured()) return;
  if (json.is_array() && json.size() >= 3 && json[0].is_string() && json[1].is_number_integer() &&
      json[2].is_number_integer())
    visit(json);
  for (auto& inner : json) each_tensor(inner, visit, depth + 1);
}

std::set<std::string> inputs_of(Json& layer) {
  std::set<std::string> names;
  if (Json* nodes = member(layer, "inbound_nodes"))
    each_tensor(*nodes, [&](const Json& tensor) { names.insert(tensor[0].get<std::string>()); });
  return names;
}

bool has_width(const Json& layer) {
  const Json* config = plimsoll::engine::member(layer, "config");
  return config != nullptr && (config->contains("filters") || config->contains("units"));
}

// ---- Fewer filters

// Returns the layers whose width is that of an output of the model: the last ones with filters or units on each way to
// an output, and nested models there. `functional`: false for a Sequential model.
std::set<std::string> layers_of_outputs(Json& model) {
  Json& layers = *layers_of(model);
  std::set<std::string> reached, kept;
  const Json* outputs = plimsoll::engine::member(model["config"], "output_layers");
  if (outputs == nullptr) {
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      if (!has_width(*layer) && layers_of(*layer) == nullptr) continue;
      kept.insert(name_of_layer(*layer));
      return kept;
    }
    return kept;
  }
  Json copy = *outputs;
  each_tensor(copy, [&](const Json& tensor) { reached.insert(tensor[0].get<std::string>()); });
  // Layers are written in an order in which inputs come first.
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    if (reached.count(name_of_layer(*layer)) == 0) continue;
    if (has_width(*layer) || layers_of(*layer) != nullptr)
      kept.insert(name_of_layer(*layer));
    else
      reached.merge(inputs_of(*layer));
  }
  return kept;
}

int64_t scaled(int64_t width, double factor, int64_t groups) {
  constexpr double kMost = 1e12;  // far more than a model can have: reading it fails
  const auto least = static_cast<int64_t>(std::llround(std::min(static_cast<double>(width) * factor, kMost)));
  return std::max<int64_t>(1, (least + groups - 1) / groups) * groups;
}

bool scale_width(Json& config, const char* key, double factor) {
  Json* width = member(config, key);
  const auto value = width != nullptr ? as_integer(*width) : std::nullopt;
  if (!value || *value < 1 || *value > kMostElements) return false;
  const Json* groups = plimsoll::engine::member(config, "groups");
  const int64_t group = groups != nullptr ? std::clamp<int64_t>(as_integer(*groups).value_or(1), 1, *value) : 1;
  *width = scaled(*value, factor, group);
  return *width != *value;
}

// A Reshape to (1, 1, channels), as in squeeze-and-excitation, follows the width of the layer before it.
bool scale_reshape(Json& config, double factor) {
  Json* shape = member(config, "target_shape");
  if (shape == nullptr || !shape->is_array() || shape->size() != 3 || (*shape)[0] != 1 || (*shape)[1] != 1)
    return false;
  const auto width = as_integer((*shape)[2]);
  if (!width || *width < 1) return false;
  (*shape)[2] = scaled(*width, factor, 1);
  return true;
}

int scale_filters(Json& model, double factor, bool keep_outputs) {
  Json* layers = layers_of(model);
  if (layers == nullptr) return 0;
  const std::set<std::string> kept = keep_outputs ? layers_of_outputs(model) : std::set<std::string>();
  int changed = 0;
  for (Json& layer : *layers) {
    const bool is_output = kept.count(name_of_layer(layer)) != 0;
    Json* config = member(layer, "config");
    if (layers_of(layer) != nullptr)
      changed += scale_filters(layer, factor, is_output);
    else if (config != nullptr && !is_output)
      changed += scale_width(*config, "filters", factor) || scale_width(*config, "units", factor) ||
                 (class_of(layer) == "Reshape" && scale_reshape(*config, factor));
  }
  return changed;
}

// ---- Smaller kernels

// Calls `visit(size)` for each kernel size of a convolution.
template <typename Visit>
void each_kernel(Json& model, const Visit& visit) {
  Json* layers = layers_of(model);
  if (layers == nullptr) return;
  for (Json& layer : *layers) {
    each_kernel(layer, visit);
    Json* config = member(layer, "config");
    Json* kernel = config != nullptr ? member(*config, "kernel_size") : nullptr;
    if (kernel == nullptr) continue;
    if (kernel->is_number_integer()) visit(*kernel);
    if (kernel->is_array())
      for (Json& size : *kernel)
        if (size.is_number_integer()) visit(size);
  }
}

// ---- A layer less

Status no_layer(const std::string& path, const char* why) {
  return fail(Error{ErrorCode::kUsage,
                    fmt::format("--without-layer {}: {}", path, why),
                    {},
                    {"--without-layer with the name of a layer that has one input and one output"}});
}

Status drop_layer(Json& model, const std::string& path, const std::string& name) {
  Json* layers = layers_of(model);
  const size_t slash = name.find('/');
  const std::string first = name.substr(0, slash);
  const auto found = layers == nullptr ? Json::iterator()
                                       : std::find_if(layers->begin(), layers->end(),
                                                      [&](const Json& layer) { return name_of_layer(layer) == first; });
  if (layers == nullptr || found == layers->end()) return no_layer(path, "the model has no such layer");
  if (slash != std::string::npos) return drop_layer(*found, path, name.substr(slash + 1));
  if (class_of(*found) == "InputLayer") return no_layer(path, "it is an input of the model");
  Json* nodes = member(*found, "inbound_nodes");
  if (nodes != nullptr) {
    std::vector<Json> sources;
    each_tensor(*nodes, [&](const Json& tensor) { sources.push_back({tensor[0], tensor[1], tensor[2]}); });
    if (sources.size() != 1) return no_layer(path, "it has several inputs, or is called several times");
    each_tensor(model["config"], [&](Json& tensor) {
      if (tensor[0] != first) return;
      for (size_t i = 0; i < 3; ++i) tensor[i] = sources[0][i];
    });
  }
  layers->erase(found);
  return {};
}

// ---- Another input size

Json batch_shape(const std::vector<int64_t>& sample) {
  Json shape = Json::array({nullptr});
  for (const int64_t size : sample) shape.push_back(size);
  return shape;
}

// Replaces all sizes by None where the file repeats them: inside nested models and at the tensors of calls.
void forget_sizes(Json& json, int depth = 0) {
  constexpr int kDeepest = 64;
  if (depth > kDeepest || !json.is_structured()) return;
  if (json.is_object()) {
    const bool tensor = text_member(json, "class_name") == "__keras_tensor__";
    Json* config = tensor ? member(json, "config") : nullptr;
    Json* shape = config != nullptr ? member(*config, "shape") : nullptr;
    if (shape != nullptr && shape->is_array())
      for (Json& size : *shape) size = nullptr;
  }
  for (auto& inner : json) forget_sizes(inner, depth + 1);
}

// The names of the keys in which versions of Keras write the shape of an input.
constexpr const char* kShapeKeys[] = {"batch_shape", "batch_input_shape"};

void forget_nested_inputs(Json& model, bool nested) {
  Json* layers = layers_of(model);
  if (layers == nullptr) return;
  for (Json& layer : *layers) {
    forget_nested_inputs(layer, true);
    if (!nested || class_of(layer) != "InputLayer" || member(layer, "config") == nullptr) continue;
    for (const char* key : kShapeKeys)
      if (Json* shape = member(layer["config"], key); shape != nullptr && shape->is_array())
        for (size_t i = 0; i + 1 < shape->size(); ++i) (*shape)[i] = nullptr;
  }
  if (nested && member(model["config"], "build_input_shape") != nullptr) model["config"]["build_input_shape"] = nullptr;
}

std::vector<Json*> input_shapes_of(Json& model) {
  std::vector<Json*> shapes;
  Json* layers = layers_of(model);
  if (layers == nullptr) return shapes;
  for (Json& layer : *layers) {
    Json* config = class_of(layer) == "InputLayer" ? member(layer, "config") : nullptr;
    for (const char* key : kShapeKeys)
      if (Json* shape = config != nullptr ? member(*config, key) : nullptr) shapes.push_back(shape);
  }
  if (!shapes.empty()) return shapes;
  if (Json* shape = member(model["config"], "build_input_shape")) shapes.push_back(shape);
  if (Json* build = member(model, "build_config"); shapes.empty() && build != nullptr)
    if (Json* shape = member(*build, "input_shape")) shapes.push_back(shape);
  return shapes;
}

Status resize_input(Json& model, const std::vector<int64_t>& sample) {
  const std::vector<Json*> shapes = input_shapes_of(model);
  if (shapes[0]->size() != sample.size() + 1)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--input-shape {} has {} sizes, but a sample of this model has {}",
                                  fmt::join(sample, ","), sample.size(), shapes[0]->size() - 1),
                      {},
                      {"--input-shape with as many sizes as the model's input, without the batch"}});
  *shapes[0] = batch_shape(sample);
  forget_nested_inputs(model, false);
  forget_sizes(model["config"]);
  return {};
}

}  // namespace

std::vector<int64_t> declared_input(const Description& description) {
  Description copy = description;
  if (layers_of(copy.config) == nullptr) return {};
  const std::vector<Json*> shapes = input_shapes_of(copy.config);
  if (shapes.size() != 1 || !shapes[0]->is_array()) return {};
  std::vector<int64_t> sample;
  for (size_t i = 1; i < shapes[0]->size(); ++i) {
    const auto size = as_integer((*shapes[0])[i]);
    if (!size || *size < 1) return {};
    sample.push_back(*size);
  }
  return sample;
}

Result<Description> change(Description description, const WhatIf& what_if) {
  Json& model = description.config;
  if (layers_of(model) == nullptr) return description;  // reading it fails with a better message
  const std::vector<int64_t> declared = declared_input(description);
  if (!what_if.input_shape.empty() && !declared.empty() && declared != what_if.input_shape)
    PLIMSOLL_TRY(resize_input(model, what_if.input_shape));
  for (const std::string& layer : what_if.without_layers) PLIMSOLL_TRY(drop_layer(model, layer, layer));
  if (!what_if.without_layers.empty()) forget_sizes(model["config"]);
  if (what_if.filters != 1) {
    if (scale_filters(model, what_if.filters, true) == 0)
      return fail(ErrorCode::kUsage, "--scale-filters: the model has no hidden layer with filters or units");
    forget_sizes(model["config"]);
  }
  if (what_if.largest_kernel > 0) {
    int changed = 0;
    each_kernel(model, [&](Json& size) {
      if (size.get<int64_t>() <= what_if.largest_kernel) return;
      size = what_if.largest_kernel;
      ++changed;
    });
    if (changed == 0)
      return fail(ErrorCode::kUsage,
                  fmt::format("--max-kernel {}: no convolution has a larger kernel", what_if.largest_kernel));
    forget_sizes(model["config"]);
  }
  return description;
}

int64_t largest_kernel(const Description& description) {
  Description copy = description;
  int64_t largest = 0;
  each_kernel(copy.config, [&](const Json& size) { largest = std::max(largest, as_integer(size).value_or(0)); });
  return largest;
}

}  // namespace plimsoll::engine
