#include "model/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/suggest.h"
#include "model/config.h"
#include "model/losses.h"
#include "model/metrics.h"
#include "model/optimizer_classes.h"

namespace plimsoll::engine {
namespace {

std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name)
    if (c != '_') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<std::string> joined_names(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

const KerasNames& optimizer_names() {
  static const KerasNames names = [] {
    KerasNames all{{}, {"lossscaleoptimizer", "multioptimizer"}};
    for (const OptimizerClass& one : optimizer_classes()) all.supported.push_back(lower_case(std::string(one.name)));
    return all;
  }();
  return names;
}

const KerasNames& loss_names() {
  static const KerasNames names{all_loss_names(), {}};
  return names;
}

const KerasNames& metric_names() {
  static const KerasNames names{
      joined_names({"accuracy", "acc"},
                   joined_names(all_metric_names(), joined_names(all_loss_names(), {"LogCoshError"}))),
      {"mean", "mean_metric_wrapper", "sum"}};
  return names;
}

const KerasNames& activation_names() {
  static const KerasNames names{
      {"linear",   "relu",         "relu6",          "leaky_relu",  "elu",         "selu",
       "celu",     "gelu",         "silu",           "swish",       "hard_silu",   "hard_swish",
       "sigmoid",  "hard_sigmoid", "tanh",           "softmax",     "exponential", "softplus",
       "softsign", "soft_shrink",  "hard_shrink",    "tanh_shrink", "hard_tanh",   "log_sigmoid",
       "mish",     "sparse_plus",  "sparse_sigmoid", "squareplus",  "log_softmax", "sparsemax"},
      {"glu", "threshold"}};
  return names;
}

const KerasNames& initializer_names() {
  static const KerasNames names{{"zeros", "ones", "constant", "identity", "orthogonal", "random_uniform",
                                 "random_normal", "truncated_normal", "glorot_uniform", "glorot_normal", "he_uniform",
                                 "he_normal", "lecun_uniform", "lecun_normal", "variance_scaling", "stft"},
                                {}};
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
