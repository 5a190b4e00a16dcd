#include "model/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/suggest.h"

namespace plimsoll::engine {
namespace {

std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name)
    if (c != '_') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

const KerasNames& optimizer_names() {
  static const KerasNames names{{"sgd", "adam", "adamw"},
                                {"lossscaleoptimizer", "rmsprop", "adadelta", "adagrad", "adamax", "adafactor", "nadam",
                                 "ftrl", "lion", "lamb", "muon"}};
  return names;
}

const KerasNames& loss_names() {
  static const KerasNames names{
      {"sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy", "mean_squared_error",
       "mean_absolute_error", "mse", "mae", "bce", "MSE", "MAE", "BCE", "SparseCategoricalCrossentropy",
       "CategoricalCrossentropy", "BinaryCrossentropy", "MeanSquaredError", "MeanAbsoluteError"},
      {"binary_focal_crossentropy",
       "categorical_focal_crossentropy",
       "categorical_generalized_cross_entropy",
       "categorical_hinge",
       "circle",
       "cosine_similarity",
       "ctc",
       "dice",
       "hinge",
       "huber",
       "kl_divergence",
       "kld",
       "log_cosh",
       "mape",
       "mean_absolute_percentage_error",
       "mean_squared_logarithmic_error",
       "msle",
       "poisson",
       "squared_hinge",
       "tversky"}};
  return names;
}

const KerasNames& metric_names() {
  static const KerasNames names{
      joined({"accuracy", "acc", "binary_accuracy", "categorical_accuracy", "sparse_categorical_accuracy",
              "BinaryAccuracy", "CategoricalAccuracy", "SparseCategoricalAccuracy"},
             loss_names().supported),
      joined({"auc",
              "binary_io_u",
              "concordance_correlation",
              "f1_score",
              "false_negatives",
              "false_positives",
              "fbeta_score",
              "io_u",
              "mean",
              "mean_io_u",
              "mean_metric_wrapper",
              "one_hot_io_u",
              "one_hot_mean_io_u",
              "pearson_correlation",
              "precision",
              "precision_at_recall",
              "r2_score",
              "recall",
              "recall_at_precision",
              "root_mean_squared_error",
              "sensitivity_at_specificity",
              "sparse_top_k_categorical_accuracy",
              "specificity_at_sensitivity",
              "sum",
              "top_k_categorical_accuracy",
              "true_negatives",
              "true_positives"},
             loss_names().others)};
  return names;
}

const KerasNames& activation_names() {
  static const KerasNames names{{"linear", "relu", "relu6", "leaky_relu", "elu", "gelu", "silu", "swish", "hard_silu",
                                 "hard_swish", "sigmoid", "hard_sigmoid", "tanh", "softmax"},
                                {"celu", "exponential", "glu", "hard_shrink", "hard_tanh", "log_sigmoid", "log_softmax",
                                 "mish", "prelu", "selu", "soft_shrink", "softplus", "softsign", "sparse_plus",
                                 "sparse_sigmoid", "sparsemax", "squareplus", "tanh_shrink", "threshold"}};
  return names;
}

const KerasNames& initializer_names() {
  static const KerasNames names{{"zeros", "ones", "constant", "identity", "orthogonal", "random_uniform",
                                 "random_normal", "truncated_normal", "glorot_uniform", "glorot_normal", "he_uniform",
                                 "he_normal", "lecun_uniform", "lecun_normal", "variance_scaling"},
                                {"stft"}};
  return names;
}

bool in_keras(const KerasNames& names, std::string_view name) {
  if (std::find(names.supported.begin(), names.supported.end(), name) != names.supported.end()) return true;
  return std::any_of(names.others.begin(), names.others.end(),
                     [&](const std::string& one) { return plain(one) == plain(name); });
}

std::string did_you_mean(const KerasNames& names, std::string_view name) {
  if (in_keras(names, name)) return "";
  const std::string meant = suggestion(name, names.supported);
  return meant.empty() ? "" : fmt::format("; did you mean {}?", meant);
}

}  // namespace plimsoll::engine
