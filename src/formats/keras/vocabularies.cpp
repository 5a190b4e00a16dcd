#include "formats/keras/vocabularies.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/utf8.h"
#include "formats/keras/layer_paths.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

// The configuration of a layer, which the names of its models and its own lead to.
nlohmann::json* layer_config(nlohmann::json& model, const std::vector<std::string>& names) {
  nlohmann::json* object = &model;
  for (const std::string& name : names) {
    nlohmann::json* next = nullptr;
    for (auto& child : (*object)["config"]["layers"])
      if (child["config"].value("name", nlohmann::json()) == name) next = &child;
    if (next == nullptr) return nullptr;
    object = next;
  }
  return &(*object)["config"];
}

// The lines of a text, as Python's str.splitlines() finds them, without empty ones at the end.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  const auto end_of_line = [&](size_t at) -> size_t {  // its bytes; 0: none begins here
    const auto rest = text.substr(at);
    if (rest.starts_with("\r\n")) return 2;
    const char c = rest[0];
    if ((c >= '\n' && c <= '\r') || (c >= '\x1c' && c <= '\x1e')) return 1;
    if (rest.starts_with("\xc2\x85")) return 2;
    return rest.starts_with("\xe2\x80\xa8") || rest.starts_with("\xe2\x80\xa9") ? 3 : 0;
  };
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t ending = end_of_line(at);
    if (ending > 0) lines.emplace_back(text.substr(begin, at - begin));
    at += std::max<size_t>(ending, 1);
    if (ending > 0) begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

Result<nlohmann::json> tokens_of(const KerasArchive& archive, const ZipEntry& entry, bool numbers) {
  PLIMSOLL_ASSIGN(const std::string text, archive.zip->text(entry, limits::kConfigBytes));
  auto tokens = nlohmann::json::array();
  for (const std::string& line : lines_of(text)) {
    if (!numbers) {
      if (!is_utf8(line))
        return fail(ErrorCode::kNotAKerasFile,
                    fmt::format("{}: {}: line {} is not UTF-8", archive.path, entry.name, tokens.size() + 1));
      tokens.push_back(line);
      continue;
    }
    int64_t token = 0;
    const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), token);
    if (error != std::errc() || rest != line.data() + line.size())
      return fail(ErrorCode::kNotAKerasFile,
                  fmt::format("{}: {}: line {} is not a whole number", archive.path, entry.name, tokens.size() + 1));
    tokens.push_back(token);
  }
  return tokens;
}

// A vocabulary that adapt() has found stands in an entry of its own, one token per line. It is moved to the
// configuration of its layer, where Keras puts one that was given.
Result<bool> add_vocabularies(const KerasArchive& archive, nlohmann::json& model) {
  bool any = false;
  constexpr std::string_view kBegin = "assets/", kEnd = "/vocabulary.txt";
  std::optional<std::vector<LayerPath>> paths;
  for (const ZipEntry& entry : archive.zip->entries()) {
    if (!entry.name.starts_with(kBegin) || !entry.name.ends_with(kEnd)) continue;
    const auto group = std::string_view(entry.name).substr(kBegin.size());
    if (!paths) {
      auto found = layer_paths(model);
      if (!found) return false;  // the model's reader says why
      paths = std::move(*found);
    }
    for (const LayerPath& path : *paths) {
      if (path.group != group.substr(0, group.size() - kEnd.size())) continue;
      nlohmann::json* config = layer_config(model, path.layer_names);
      if (config == nullptr || !config->is_object() || !(*config)["vocabulary"].is_null()) continue;
      const auto dtype = config->find("vocabulary_dtype");
      const bool numbers =
          dtype != config->end() && dtype->is_string() && dtype->get_ref<const std::string&>().starts_with("int");
      PLIMSOLL_ASSIGN((*config)["vocabulary"], tokens_of(archive, entry, numbers));
      any = true;
    }
  }
  return any;
}

// The weights of tokens that adapt() has found for output_mode="tf_idf" stand among the model's weights.
Status add_idf_weights(const KerasArchive& archive, nlohmann::json& model) {
  constexpr std::string_view kEnd = "/vars/idf_weights";
  for (const Dataset& dataset : archive.weights->datasets()) {
    const std::string_view name = dataset.path;
    if (!name.ends_with(kEnd) || dataset.type.shape.rank() != 1) continue;
    const auto paths = layer_paths(model);
    if (!paths) return {};
    for (const LayerPath& path : *paths) {
      if (path.group != name.substr(0, name.size() - kEnd.size())) continue;
      nlohmann::json* config = layer_config(model, path.layer_names);
      if (config == nullptr || !config->is_object() || dataset.type.bytes() > limits::kConfigBytes ||
          !(*config)["idf_weights"].is_null())  // those that were given belong to the vocabulary that was given
        continue;
      std::vector<float> weights(static_cast<size_t>(dataset.type.shape.elements()));
      PLIMSOLL_TRY(archive.weights->read_into(name, {DType::kFloat32, dataset.type.shape}, weights.data()));
      (*config)["idf_weights"] = weights;
    }
  }
  return {};
}

}  // namespace

Result<bool> add_adapted(const KerasArchive& archive, nlohmann::json& model) {
  if (!archive.zip || !archive.weights) return false;
  PLIMSOLL_ASSIGN(const bool any, add_vocabularies(archive, model));
  PLIMSOLL_TRY(add_idf_weights(archive, model));
  return any;
}

}  // namespace plimsoll::engine
