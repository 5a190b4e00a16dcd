#include "model/layer.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/attention_parts.h"
#include "model/layers_shape.h"
#include "model/preprocessing.h"
#include "model/random_numbers.h"
#include "model/recurrent.h"

namespace plimsoll::engine {

LayerParser find_layer(std::string_view class_name) {
  for (const auto& table : {core_layers(),          image_layers(),          convolution_layers(),
                            pooling_layers(),       normalization_layers(),  more_normalization_layers(),
                            activation_layers(),    merge_layers(),          wrapping_layers(),
                            masking_layers(),       embedding_layers(),      attention_layers(),
                            dot_attention_layers(), regularization_layers(), dot_layers(),
                            application_layers(),   shape_layers(),          einsum_layers(),
                            recurrent_layers(),     bidirectional_layers(),  conv_lstm_layers(),
                            preprocessing_layers(), random_affine_layers(),  category_layers()})
    for (const LayerClass& entry : table)
      if (entry.name == class_name) return entry.parse;
  return nullptr;
}

std::string vars_path(size_t index) {
  return fmt::format("vars/{}", index);
}

Shape with_batch(int64_t batch, const Shape& sample) {
  std::vector<int64_t> dims{batch};
  dims.insert(dims.end(), sample.dims.begin(), sample.dims.end());
  return Shape(std::move(dims));
}

namespace {

void read_regularizer(Config& config, const std::string& key, WeightConfig& weight) {
  const Json* value = config.value(key);
  if (!value) return;
  const KerasObject object = keras_object(*value);
  const auto factor = [&](const char* name, double otherwise) {
    const Json* number = member(object.config, name);
    if (!number || number->is_null()) return otherwise;
    const auto real = as_number(*number);
    if (!real || *real < 0)
      config.issues().reject(fmt::format("{}: '{}' of '{}' must be a number of at least 0, got {}", config.where(),
                                         name, key, shown(*number)));
    return real.value_or(0);
  };
  const std::string& name = object.name;
  // Keras's L1L2 defaults to no penalty, L1 and L2 to 0.01. The string "l1_l2" means the class L1L2.
  if (!object.custom && (name == "L1" || name == "l1")) {
    weight.l1 = factor("l1", 0.01);
  } else if (!object.custom && (name == "L2" || name == "l2")) {
    weight.l2 = factor("l2", 0.01);
  } else if (!object.custom && (name == "L1L2" || name == "l1_l2")) {
    weight.l1 = factor("l1", 0);
    weight.l2 = factor("l2", 0);
  } else if (!object.custom && (name == "OrthogonalRegularizer" || name == "orthogonal_regularizer")) {
    Config c(object.config, fmt::format("{}: {}", config.where(), key), config.issues());
    weight.regularizer = {c.real("factor", 0.01), c.choice("mode", {"rows", "columns"}, "rows") == "rows"};
    c.finish();
  } else {
    config.issues().unknown(fmt::format("{}: {}={}", config.where(), key, shown(*value)));
  }
}

}  // namespace

WeightConfig read_weight(Config& config, const std::string& prefix, const std::string& initializer) {
  WeightConfig weight;
  const Json* value = config.value(prefix + "_initializer");
  weight.initializer = value ? *value : Json(initializer);
  read_regularizer(config, prefix + "_regularizer", weight);
  weight.constraint = read_constraint(config, prefix + "_constraint");
  return weight;
}

ActivityPenalty read_activity(Config& config) {
  WeightConfig penalty;
  read_regularizer(config, "activity_regularizer", penalty);
  if (penalty.regularizer.orthogonal != 0)
    config.issues().unknown(fmt::format("{}: an OrthogonalRegularizer as activity_regularizer", config.where()));
  return {penalty.l1, penalty.l2};
}

Precision read_policy(Config& config) {
  const Json* value = config.value("dtype");
  if (!value) return {};
  std::string name;
  if (value->is_string())
    name = value->get<std::string>();
  else if (const KerasObject policy = keras_object(*value); policy.name == "DTypePolicy" && !policy.custom)
    name = text_member(policy.config, "name");
  const auto policy = precision_from_text(name);
  if (!policy)
    config.issues().unknown(fmt::format("{}: dtype={}", config.where(), name.empty() ? shown(*value) : name));
  return policy && policy->is_mixed() ? *policy : Precision();
}

void check_policy(Config& config) {
  if (const Precision policy = read_policy(config); policy.is_mixed())
    config.issues().unknown(fmt::format("{}: dtype={}", config.where(), to_text(policy)));
}

Status need_rank(const Shape& sample, size_t rank, const std::string& where) {
  if (sample.rank() == rank) return {};
  return fail(ErrorCode::kBadGeometry,
              fmt::format("{}: a sample must have {} dimensions, got [{}]", where, rank, to_text(sample)));
}

Result<KernelWindow> place_window(int64_t input, int64_t kernel, int64_t stride, bool same, const std::string& where) {
  KernelWindow window;
  if (same) {
    window.output = (input - 1) / stride + 1;
    const int64_t total = std::max<int64_t>((window.output - 1) * stride + kernel - input, 0);
    window.before = total / 2;
    window.after = total - window.before;
    return window;
  }
  if (kernel > input)
    return fail(
        ErrorCode::kBadGeometry,
        fmt::format("{}: a window of {} does not fit into an input of {} without padding", where, kernel, input));
  window.output = (input - kernel) / stride + 1;
  return window;
}

std::optional<int64_t> positive_axis(int64_t axis, size_t rank) {
  const auto n = static_cast<int64_t>(rank);
  if (axis < -n || axis >= n) return std::nullopt;
  return axis < 0 ? axis + n : axis;
}

}  // namespace plimsoll::engine
