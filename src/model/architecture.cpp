// Reads an architecture from a description: everything that does not need shapes. Unsupported features are listed.
#include "model/architecture.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>

#include "formats/keras/layer_paths.h"
#include "model/text/text_inputs.h"
#include "model/tree.h"

namespace plimsoll::engine {
namespace {

std::vector<std::string> unique(std::vector<std::string> names) {
  std::set<std::string> seen;
  for (std::string& name : names) {
    const std::string wish = name;
    for (int n = 1; !seen.insert(name).second; ++n) name = fmt::format("{}_{}", wish, n);
  }
  return names;
}

void put_scale(Optimizer& optimizer) {
  if (!optimizer.loss_scale) optimizer.loss_scale = LossScale{};
}

}  // namespace

Architecture Architecture::with_loss_scale() const {
  Architecture scaled = *this;
  put_scale(scaled.optimizer_);
  return scaled;
}

class ArchitectureReader {
 public:
  ArchitectureReader(const Description& description, const ModelOptions& options)
      : description_(description), options_(options) {}

  Result<Architecture> run() {
    Issues issues;
    ModelWithoutText without;
    const bool reads_text = has_text_inputs(description_.config);
    if (reads_text) {
      without = take_out_text(description_.config, issues);
      if (issues.bad && issues.unsupported.empty()) PLIMSOLL_TRY(issues.status());
    }
    auto tree = read_tree(reads_text ? without.config : description_.config, issues);
    if (!tree) {
      // Unsupported features may be the reason why reading stopped, so they are reported first.
      if (!issues.unsupported.empty()) PLIMSOLL_TRY(issues.status());
      return fail(std::move(tree).error());
    }
    parts_->tree = std::move(*tree);
    parts_->needs_loss = options_.needs_loss;
    read_ports(without.inputs);
    read_policies(issues);
    read_training(issues);
    PLIMSOLL_TRY(issues.status());
    PLIMSOLL_TRY(check_compiled());
    for (const std::string& pattern : options_.float32_layers) PLIMSOLL_TRY(keep_in_float32(pattern));
    PLIMSOLL_TRY(find_groups());
    made_.parts_ = std::move(parts_);
    return std::move(made_);
  }

 private:
  void read_ports(const std::vector<TextInput>& texts) {
    const ModelTree& top = parts_->tree.top();
    made_.name_ = top.name;
    made_.output_names_ = unique(top.output_names);
    const std::vector<std::string> names = unique(top.input_names);
    for (size_t i = 0; i < top.inputs.size(); ++i) {
      made_.inputs_.push_back(top.specs[top.children[top.inputs[i].child].index]);
      InputSpec& input = made_.inputs_.back();
      for (const TextInput& text : texts)
        if (text.port == input.name) input.text = std::make_shared<const TextInput>(text);
      input.name = names[i];
    }
  }

  void read_training(Issues& issues) {
    if (!options_.needs_loss && !options_.needs_training) return;
    const Json& compile = description_.compile_config;
    if (options_.needs_loss) parts_->objective = read_objective(compile, options_, made_.output_names_, issues);
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
    made_.optimizer_ = parse_optimizer(chosen, issues.unsupported);
    if (issues.unsupported.size() > before)
      issues.remedy("--optimizer adam   replaces the file's optimizer: adam, adamw, sgd or another of Keras's names");
    if (options_.scale_loss.value_or(made_.policy_.compute == DType::kFloat16)) put_scale(made_.optimizer_);
    if (options_.learning_rate) {
      made_.optimizer_.learning_rate = *options_.learning_rate;
      made_.optimizer_.schedule = nullptr;
    }
  }

  void read_policies(Issues& issues) {
    for (const LayerObject& object : parts_->tree.layers) {
      if (!object.policy.is_mixed()) continue;
      if (!made_.policy_.is_mixed()) made_.policy_ = object.policy;
      if (object.policy != made_.policy_)
        issues.unknown(fmt::format("layer '{}' ({}): dtype={}, while other layers have {}", object.path,
                                   object.class_name, to_text(object.policy), to_text(made_.policy_)));
    }
    for (const LayerObject& object : parts_->tree.layers) {
      const std::string& half = object.layer.half_cast;
      if (!half.empty() && to_text(made_.policy_) != "mixed_" + half)
        issues.unknown(fmt::format("layer '{}' ({}): dtype={}, while the file's layers compute in {}", object.path,
                                   object.class_name, half, to_text(made_.policy_)));
    }
    for (LayerObject& object : parts_->tree.layers)
      object.float32 = made_.policy_.is_mixed() && !object.policy.is_mixed() && !object.operation;
  }

  Status check_compiled() const {
    bool has_loss = false;
    for (const auto& loss : parts_->objective.losses) has_loss = has_loss || loss;
    const bool lacks_optimizer = options_.needs_training && !has_optimizer_,
               lacks_loss = options_.needs_loss && !has_loss;
    if (!lacks_optimizer && !lacks_loss) return {};
    Error error{ErrorCode::kNotCompiled,
                "this model was never compiled: the file has no " + std::string(lacks_optimizer && lacks_loss
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
    for (LayerObject& object : parts_->tree.layers) {
      const bool named = fnmatch(pattern.c_str(), object.path.c_str(), 0) == 0;
      object.float32 = object.float32 || named;
      any = any || named;
      names.push_back(object.path);
    }
    if (any) return {};
    const size_t others = names.size() - std::min(names.size(), kShown);
    names.resize(names.size() - others);
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--float32-layers {}: this model has no layer with such a name", pattern),
                      {fmt::format("its layers: {}{}", fmt::join(names, ", "),
                                   others == 0 ? "" : fmt::format(" and {} others", others))},
                      {"a name, or a pattern of names: block5_*"}});
  }

  // Finds the group of each layer's weights in the file, and which layers are trained.
  Status find_groups() {
    PLIMSOLL_ASSIGN(const std::vector<LayerPath> paths, layer_paths(description_.config));
    std::map<std::vector<std::string>, std::string> groups;
    for (const LayerPath& path : paths) groups[path.layer_names] = path.group;
    for (LayerObject& object : parts_->tree.layers) object.group = groups[object.names];
    return {};
  }

  const Description& description_;
  const ModelOptions& options_;
  std::shared_ptr<ArchitectureParts> parts_ = std::make_shared<ArchitectureParts>();
  bool has_optimizer_ = false;
  Architecture made_;
};

Result<Architecture> Architecture::read(const Description& description, const ModelOptions& options) {
  return ArchitectureReader(description, options).run();
}

}  // namespace plimsoll::engine
