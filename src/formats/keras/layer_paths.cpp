#include "formats/keras/layer_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace plimsoll::engine {
namespace {

using Json = nlohmann::json;

bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_word(char c) {  // Python's \w; letters of other alphabets count as letters
  return is_upper(c) || is_lower(c) || (c >= '0' && c <= '9') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

// Python's re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name). Matches do not overlap.
std::string split_words(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    out += name[i++];
    if (i + 1 >= name.size() || !is_upper(name[i]) || !is_lower(name[i + 1])) continue;
    out += '_';
    out += name[i++];
    while (i < name.size() && is_lower(name[i])) out += name[i++];
  }
  return out;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const Json* layers_of(const Json& object) {
  if (!object.is_object() || !object.contains("class_name") || !object.contains("config")) return nullptr;
  const auto& config = object.at("config");
  if (!config.is_object()) return nullptr;
  const auto layers = config.find("layers");
  return layers != config.end() && layers->is_array() ? &*layers : nullptr;
}

// x + y and keras.ops.relu(x) are listed among a Functional model's layers, but have no state and are not counted.
bool is_operation(const Json& object) {
  const std::string module = text_of(object, "module");
  return module.starts_with("keras.src.ops") || module.starts_with("keras.src.activations");
}

std::string join(const std::string& group, const std::string& part) {
  return group.empty() ? part : group + "/" + part;
}

class Walk {
 public:
  Status model(const Json& object, const std::string& group, const std::vector<std::string>& names) {
    const auto* layers = layers_of(object);
    if (layers == nullptr)
      return fail(ErrorCode::kBadConfig,
                  fmt::format("{}: expected a Sequential or Functional model with a list of layers, got {}",
                              names.empty() ? "the model" : names.back(),
                              object.is_object() ? "class '" + text_of(object, "class_name") + "'" : "no object"));
    const bool sequential = !object.at("config").contains("input_layers");
    std::unordered_map<std::string, int> used;
    bool first = true;
    for (const auto& child : *layers) {
      PLIMSOLL_TRY(check(child, names));
      const bool skipped = is_operation(child) || (sequential && first && text_of(child, "class_name") == "InputLayer");
      first = false;
      if (!skipped) PLIMSOLL_TRY(layer(child, join(group, "layers/" + unique(child, used)), names));
    }
    return {};
  }

  std::vector<LayerPath> take() { return std::move(paths_); }

 private:
  static Status check(const Json& child, const std::vector<std::string>& names) {
    if (child.is_object() && !text_of(child, "class_name").empty() && child.contains("config") &&
        child.at("config").is_object())
      return {};
    return fail(ErrorCode::kBadConfig, fmt::format("{}: an entry in its list of layers has no class_name or no config",
                                                   names.empty() ? "the model" : names.back()));
  }

  static std::string unique(const Json& child, std::unordered_map<std::string, int>& used) {
    auto name = keras_snake_case(text_of(child, "class_name"));
    const auto [at, is_new] = used.try_emplace(name, 0);
    return is_new ? name : fmt::format("{}_{}", name, ++at->second);
  }

  Status layer(const Json& child, std::string group, std::vector<std::string> names) {
    auto name = text_of(child.at("config"), "name");
    if (name.empty()) name = text_of(child, "name");
    names.push_back(std::move(name));
    // A layer that was already saved inside another model is not saved again. Its weights are stored where it occurs
    // first.
    if (const auto id = child.find("shared_object_id"); id != child.end() && id->is_number_integer())
      group = first_group_.try_emplace(id->get<int64_t>(), group).first->second;
    const bool is_model = layers_of(child) != nullptr;
    paths_.push_back({names, group, is_model});
    return is_model ? model(child, group, names) : Status{};
  }

  std::vector<LayerPath> paths_;
  std::map<int64_t, std::string> first_group_;
};

}  // namespace

std::string keras_snake_case(std::string_view class_name) {
  // Keras exports the class GroupedQueryAttention under another name, but counts and groups its layers by this one.
  if (class_name == "GroupQueryAttention") class_name = "GroupedQueryAttention";
  std::string word;
  std::copy_if(class_name.begin(), class_name.end(), std::back_inserter(word), is_word);
  const auto split = split_words(word);
  std::string out;
  for (size_t i = 0; i < split.size(); ++i) {
    if (i > 0 && is_lower(split[i - 1]) && is_upper(split[i])) out += '_';
    out += is_upper(split[i]) ? static_cast<char>(split[i] - 'A' + 'a') : split[i];
  }
  return out;
}

Result<std::vector<LayerPath>> layer_paths(const Json& config, const std::string& prefix) {
  Walk walk;
  PLIMSOLL_TRY(walk.model(config, prefix, {}));
  return walk.take();
}

}  // namespace plimsoll::engine
