#include "api/open_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "api/builtin.h"
#include "api/planning_limit.h"
#include "api/run_data.h"
#include "api/saved_config.h"
#include "base/suggest.h"
#include "formats/json/parse.h"
#include "formats/keras/vocabularies.h"
#include "model/config.h"

namespace plimsoll::engine {
namespace {

constexpr int kNewestKeras = 15;  // 3.15 is the newest version that the tests run

std::string note_of_metrics(const std::vector<std::string>& skipped) {
  return fmt::format("warning: Plimsoll does not compute the metric{} {}; the saved file keeps {}",
                     skipped.size() == 1 ? "" : "s", fmt::join(skipped, ", "), skipped.size() == 1 ? "it" : "them");
}

// Returns a note if metadata.json names a version of Keras that the tests do not cover. The file is read in any case.
std::optional<std::string> note_of_version(const KerasArchive& archive) {
  if (archive.format != ModelFormat::kKeras) return std::nullopt;
  const auto metadata = parse_json(archive.metadata_text, archive.path);
  const std::string version = metadata ? text_member(*metadata, "keras_version") : "";
  int major = 0, minor = 0;
  const bool known = std::sscanf(version.c_str(), "%d.%d", &major, &minor) == 2;
  if (known && major == 3 && minor <= kNewestKeras) return std::nullopt;
  return fmt::format("note: {} was saved by {}; Plimsoll is tested with the files of Keras 3.0 to 3.{}", archive.path,
                     known ? fmt::format("Keras {}.{}", major, minor) : "an unknown version of Keras", kNewestKeras);
}

// Compares two shapes. One of them may have an additional trailing dimension of 1.
bool same_sample(std::vector<int64_t> a, std::vector<int64_t> b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() == a.size() + 1 && b.back() == 1) b.pop_back();
  return a == b;
}

// Fails if --input-shape contradicts the data. Unreadable data are not reported here, because opening them fails later.
Status check_input_shape(const ModelOptions& overrides, const Model& model) {
  if (overrides.input_shape.empty() || !overrides.data_shape || model.inputs().size() != 1) return {};
  const Port& input = model.inputs()[0];
  InputSpec spec;
  spec.name = input.name;
  spec.text = input.text;
  const auto sample = overrides.data_shape(spec, true);
  if (!sample || same_sample(*sample, input.sample.dims)) return {};
  // If the sizes are the same in another order, the data are wrong. The error from opening them says how to transpose
  // them.
  const auto& dims = input.sample.dims;
  if (std::is_permutation(sample->begin(), sample->end(), dims.begin(), dims.end())) return {};
  return fail(Error{ErrorCode::kDataShape,
                    fmt::format("--input-shape {}, but a sample of the data is {}",
                                fmt::join(overrides.input_shape, ","), fmt::join(*sample, ",")),
                    {},
                    {"remove --input-shape: the data determine the shape", "use data of that shape"}});
}

}  // namespace

Result<OpenModel> open_description(const Description& description, const std::string& file,
                                   const ModelOptions& overrides) {
  PLIMSOLL_ASSIGN(Model model, Model::create(description, overrides));
  nlohmann::json config = description.config;
  config["build_config"] = nullptr;
  if (description.compile_config.is_object()) config["compile_config"] = description.compile_config;
  std::string text = saved_config(config, config.dump(), overrides, model, false);
  return OpenModel{file, std::nullopt, std::move(text), std::move(model), !overrides.optimizer};
}

Result<OpenModel> open_model(const std::string& name, const ModelOptions& overrides, const std::string& weights,
                             const WhatIf& what_if) {
  if (auto builtin = builtin_model(name)) {
    PLIMSOLL_ASSIGN(const Description changed, change(std::move(*builtin), what_if));
    if (weights.empty()) return open_description(changed, name, overrides);
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--weights cannot be combined with the built-in model {}", name),
                      {},
                      {"a model file of Keras, for example the .json of model.to_json()"}});
  }
  auto archive = open_keras(name);
  if (!archive) {
    Error error = archive.error();
    if (error.code == ErrorCode::kFileUnreadable && name.find('.') == std::string::npos &&
        name.find('/') == std::string::npos) {
      std::vector<std::string> names;
      for (const BuiltinModel& model : builtin_models()) names.push_back(model.name);
      if (const std::string meant = suggestion(name, names); !meant.empty())
        error.remedy(fmt::format("{}   built-in", meant));
      error.remedy(
          "a model file of Keras (.keras, .h5, .json, a SavedModel folder), or a built-in model: plimsoll plan --list");
    }
    return fail(std::move(error));
  }
  if (!weights.empty()) PLIMSOLL_TRY(take_weights(*archive, weights));
  Description description{std::move(archive->config), nlohmann::json()};
  if (description.config.is_object() && description.config.contains("compile_config"))
    description.compile_config = description.config.at("compile_config");
  PLIMSOLL_ASSIGN(description, change(std::move(description), what_if));
  auto model = Model::create(description, overrides);
  if (!model) {
    Error error = model.error();
    // With overrides, the flags may be wrong instead of the file.
    if (error.code == ErrorCode::kBadConfig && !any_override(overrides))
      error.what = fmt::format("{}: {}", name, error.what);
    if (error.remedies.empty() && error.code == ErrorCode::kBadConfig)
      error.remedy("correct the named value, or save the model again from Keras: model.save('model.keras')");
    if (error.remedies.empty() && error.code == ErrorCode::kBadGeometry)
      error.remedy(overrides.input_shape.empty()
                       ? "correct the layer or the input's size in Keras, and save the model again"
                       : "use another --input-shape");
    return fail(std::move(error));
  }
  // Vocabularies that stand in entries of their own stay there.
  nlohmann::json own;
  if (archive->adapted) {
    PLIMSOLL_ASSIGN(own, parse_json(archive->config_text, name));
  }
  std::string text = saved_config(archive->adapted ? own : description.config, archive->config_text, overrides, *model,
                                  has_loss_scale_state(*archive));
  // A .json has no optimizer, so the state in the file of weights can only belong to that of the flag.
  const bool never_compiled = archive->format == ModelFormat::kJson && !description.compile_config.is_object();
  OpenModel open{name, std::move(*archive), std::move(text), std::move(*model), !overrides.optimizer || never_compiled};
  if (const auto note = note_of_version(*open.archive)) open.notes.push_back(*note);
  return open;
}

Result<Description> description_of(const OpenModel& open) {
  if (auto builtin = open.archive ? std::nullopt : builtin_model(open.file)) return *builtin;
  PLIMSOLL_ASSIGN(nlohmann::json config, parse_json(open.config_text, open.file));
  if (open.archive && open.archive->adapted) PLIMSOLL_TRY(add_adapted(*open.archive, config));
  Description description{std::move(config), nlohmann::json()};
  if (description.config.is_object() && description.config.contains("compile_config"))
    description.compile_config = description.config.at("compile_config");
  return description;
}

Result<OpenModel> open_model(const RunOptions& options) {
  ModelOptions overrides = options.overrides;
  if (!options.data.data.empty())
    overrides.data_shape = [&](const InputSpec& input, bool only) {
      DataSpec with;
      with.split = split_of(options.mode);
      with.read = options.data.read;
      if (input.text && options.note) options.note(options.data.data + ": reading all texts once, to find the longest");
      PortSpec port;
      port.name = input.name;
      port.text = input.text;
      if (input.known) port.declared = input.dims;
      return sample_shape(options.data.data, port, only, with);
    };
  PLIMSOLL_ASSIGN(OpenModel open, within_limit(options, reading_limit(options), [&] {
                    return open_model(options.model, overrides, options.weights, options.what_if);
                  }));
  PLIMSOLL_TRY(check_input_shape(overrides, open.model));
  const auto& skipped = open.model.skipped_metrics();
  if (!skipped.empty()) open.notes.push_back(note_of_metrics(skipped));
  return open;
}

}  // namespace plimsoll::engine
