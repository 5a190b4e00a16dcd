#include "model/text/text_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/nodes.h"

namespace plimsoll::engine {
namespace {

bool is_text_input(const Json& layer) {
  const Json* config = member(layer, "config");
  return text_member(layer, "class_name") == "InputLayer" && config && text_member(*config, "dtype") == "string";
}

std::string name_of(const Json& layer) {
  const std::string own = text_member(layer, "name");
  const Json* config = member(layer, "config");
  return own.empty() && config ? text_member(*config, "name") : own;
}

OpenDims dims_of(const Json& layer) {
  OpenDims dims;
  const Json* config = member(layer, "config");
  const Json* shape = config ? member(*config, "batch_shape") : nullptr;
  if (!shape && config) shape = member(*config, "batch_input_shape");
  if (shape && shape->is_array())
    for (size_t i = 1; i < shape->size(); ++i) dims.push_back(as_integer((*shape)[i]));
  return dims;
}

Json input_layer(const std::string& name, const OpenDims& dims, DType dtype) {
  Json shape = Json::array({nullptr});
  for (const auto& d : dims) shape.push_back(d ? Json(*d) : Json());
  return {{"module", "keras.layers"},
          {"class_name", "InputLayer"},
          {"config",
           {{"batch_shape", std::move(shape)},
            {"dtype", dtype == DType::kInt32 ? "int32" : "float32"},
            {"sparse", false},
            {"ragged", false},
            {"name", name}}},
          {"registered_name", nullptr},
          {"name", name},
          {"inbound_nodes", Json::array()}};
}

class TakeOut {
 public:
  TakeOut(Json config, Issues& issues) : issues_(issues) { made_.config = std::move(config); }

  ModelWithoutText run() {
    Json* config = made_.config.is_object() && made_.config.contains("config") ? &made_.config["config"] : nullptr;
    if (config == nullptr || !config->is_object() || !config->contains("layers") || !(*config)["layers"].is_array())
      return std::move(made_);
    if (text_member(made_.config, "class_name") == "Sequential")
      sequential(*config);
    else
      functional(*config);
    return std::move(made_);
  }

 private:
  static std::string where(const Json& layer) {
    return fmt::format("layer '{}' ({})", name_of(layer), text_member(layer, "class_name"));
  }

  // Reads a layer once, however often it is called.
  const std::shared_ptr<const TextLayer>& text_of(const Json& layer) {
    auto& text = texts_[name_of(layer)];
    if (text) return text;
    static const Json kNone = Json::object();
    const Json* settings = member(layer, "config");
    Config c(settings ? *settings : kNone, where(layer), issues_);
    text = read_text_layer(text_member(layer, "class_name"), c);
    return text;
  }

  void add(const Json& source, const Json& layer, std::string port) {
    TextInput input;
    input.source = name_of(source);
    input.strings = dims_of(source);
    input.layer = name_of(layer);
    input.class_name = text_member(layer, "class_name");
    input.port = std::move(port);
    input.text = text_of(layer);
    made_.inputs.push_back(std::move(input));
  }

  Json replacement(const TextInput& input, const std::string& where) {
    return input_layer(input.port, input.text->row(input.strings, issues_, where), input.text->dtype());
  }

  bool takes_text(const Json& layer) {
    if (is_text_layer(text_member(layer, "class_name")) && !keras_object(layer).custom) return true;
    issues_.unknown(where(layer) +
                    ": reads strings; TextVectorization, StringLookup and Hashing read them, as the first layers");
    return false;
  }

  void sequential(Json& config) {
    Json& layers = config["layers"];
    if (layers.size() < 2 || !is_text_input(layers[0]) || !takes_text(layers[1])) return;
    add(layers[0], layers[1], name_of(layers[1]));
    Json input = replacement(made_.inputs[0], where(layers[1]));
    layers.erase(0);
    layers[0] = std::move(input);
    if (layers.size() == 1) issues_.unknown("a model that only reads strings, and computes nothing");
    config.erase("build_input_shape");
    made_.config.erase("build_config");
  }

  struct Place {
    std::string layer;
    int64_t node = 0;
    bool operator<(const Place& other) const { return std::tie(layer, node) < std::tie(other.layer, other.node); }
  };

  void functional(Json& config) {
    std::map<std::string, const Json*> sources;
    std::set<std::string> names;
    for (const Json& layer : config["layers"]) {
      names.insert(name_of(layer));
      if (is_text_input(layer)) sources[name_of(layer)] = &layer;
    }
    if (sources.empty()) return;
    std::map<Place, std::string> ports;
    std::set<std::string> replaced;
    Json made = Json::array();
    for (const Json& layer : config["layers"]) {
      if (is_text_input(layer)) continue;
      if (!find_calls(layer, sources, names, ports)) continue;
      replaced.insert(name_of(layer));
      for (const TextInput& input : made_.inputs)
        if (input.layer == name_of(layer)) made.push_back(replacement(input, where(layer)));
    }
    for (const Json& layer : config["layers"])
      if (!is_text_input(layer) && !replaced.contains(name_of(layer))) made.push_back(layer);
    for (Json& layer : made)
      if (layer.is_object() && layer.contains("inbound_nodes")) rename(layer["inbound_nodes"], ports);
    replace_inputs(config, sources);
    if (config.contains("output_layers")) {
      check_outputs(config["output_layers"], sources);
      rename(config["output_layers"], ports);
    }
    config["layers"] = std::move(made);
  }

  // Finds the calls of a layer on strings. Returns whether inputs replace the layer.
  bool find_calls(const Json& layer, const std::map<std::string, const Json*>& sources, std::set<std::string>& names,
                  std::map<Place, std::string>& ports) {
    const Json* inbound = member(layer, "inbound_nodes");
    if (!inbound || !inbound->is_array()) return false;
    std::vector<std::string> read;  // of each call, the input of strings; "" if it reads none
    bool any = false;
    for (const Json& node : *inbound) {
      const auto arguments = read_node(node, false);
      std::string found;
      size_t tensors = 0;
      if (arguments)
        for (const NamedTensor& tensor : arguments->tensors) {
          ++tensors;
          if (sources.contains(tensor.layer)) found = tensor.layer;
        }
      if (!found.empty() && !any && !takes_text(layer)) return false;
      if (!found.empty() && tensors != 1) issues_.unknown(where(layer) + ": called with several tensors");
      any = any || !found.empty();
      read.push_back(std::move(found));
    }
    if (!any) return false;
    for (size_t i = 0; i < read.size(); ++i) {
      if (read[i].empty()) {
        issues_.unknown(where(layer) + ": called both on an input of strings and on something else");
        return false;
      }
      std::string port = name_of(layer);
      for (int n = 1; read.size() > 1 && (n == 1 || names.contains(port)); ++n)
        port = n == 1 ? fmt::format("{}_{}", name_of(layer), read[i])
                      : fmt::format("{}_{}_{}", name_of(layer), read[i], n);
      names.insert(port);
      ports[{name_of(layer), static_cast<int64_t>(i)}] = port;
      add(*sources.at(read[i]), layer, port);
    }
    return true;
  }

  // Replaces ["lookup", node, 0] by ["port", 0, 0], wherever it stands.
  static void rename(Json& value, const std::map<Place, std::string>& ports) {
    if (value.is_array() && value.size() >= 3 && value[0].is_string() && as_integer(value[1]) && as_integer(value[2])) {
      const auto found = ports.find({value[0].get<std::string>(), *as_integer(value[1])});
      if (found == ports.end()) return;
      value[0] = found->second;
      value[1] = 0;
      return;
    }
    if (value.is_structured())
      for (Json& part : value) rename(part, ports);
  }

  void check_outputs(const Json& outputs, const std::map<std::string, const Json*>& sources) {
    for (const NamedPort& port : read_ports(outputs).value_or(std::vector<NamedPort>()))
      if (sources.contains(port.tensor.layer))
        issues_.unknown(fmt::format("the input '{}' of strings is an output too", port.tensor.layer));
  }

  // Lists the inputs of numbers in the place of the input of strings that they come from.
  void replace_inputs(Json& config, const std::map<std::string, const Json*>& sources) {
    if (!config.contains("input_layers")) return;
    const auto ports = read_ports(config["input_layers"]);
    if (!ports) return;
    const bool by_name = config["input_layers"].is_object();
    Json made = by_name ? Json::object() : Json::array();
    for (const NamedPort& port : *ports) {
      const auto add_one = [&](const std::string& key, const std::string& layer) {
        Json tensor = Json::array({layer, 0, 0});
        if (by_name)
          made[key] = std::move(tensor);
        else
          made.push_back(std::move(tensor));
      };
      if (!sources.contains(port.tensor.layer)) {
        add_one(port.key, port.tensor.layer);
        continue;
      }
      for (TextInput& input : made_.inputs)
        if (input.source == port.tensor.layer) {
          add_one(input.port, input.port);
          if (!port.key.empty()) keys_[input.port] = port.key;
        }
    }
    config["input_layers"] = std::move(made);
    for (TextInput& input : made_.inputs)
      if (const auto key = keys_.find(input.port); key != keys_.end()) input.source = key->second;
  }

  Issues& issues_;
  ModelWithoutText made_;
  std::map<std::string, std::shared_ptr<const TextLayer>> texts_;
  std::map<std::string, std::string> keys_;
};

}  // namespace

bool has_text_inputs(const Json& config) {
  if (is_text_input(config)) return true;
  const Json* settings = member(config, "config");
  const Json* layers = settings ? member(*settings, "layers") : nullptr;
  if (!layers || !layers->is_array()) return false;
  return std::any_of(layers->begin(), layers->end(), has_text_inputs);
}

ModelWithoutText take_out_text(Json config, Issues& issues) {
  return TakeOut(std::move(config), issues).run();
}

}  // namespace plimsoll::engine
