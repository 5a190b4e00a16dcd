#include "model/losses.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/loss_formulas.h"
#include "model/traced_loss.h"

namespace plimsoll::engine {

namespace {

struct LossOption {
  enum class Type : uint8_t { kReal, kFlag, kShare };  // a share lies between 0 and 1
  const char* name;
  double otherwise;
  Type type = Type::kReal;
};
using Type = LossOption::Type;

// What `axis` means: it is not an option, one axis with a default of -1, or any axes, null for all.
enum class AxisOption : uint8_t { kNone, kOne, kAny };

}  // namespace

struct LossClass {
  std::string_view function, class_name;
  std::string_view short_name;  // "mse"; Keras also takes it in capitals
  TargetKind target;
  AxisOption axis;
  std::vector<LossOption> options;
  Expression (*rows)(const LossCall&);
  std::string_view coupling = "";  // why it always couples samples
};

namespace {

const std::vector<LossClass>& loss_classes() {
  using Target = TargetKind;
  constexpr const char* kHinge = "the labels of the whole batch decide whether 0 means -1";
  const LossOption logits{"from_logits", 0, Type::kFlag}, smoothing{"label_smoothing", 0, Type::kShare};
  static const std::vector<LossClass> classes = {
      {"sparse_categorical_crossentropy",
       "SparseCategoricalCrossentropy",
       "",
       Target::kLabels,
       AxisOption::kOne,
       {logits},
       losses::sparse_crossentropy},
      {"categorical_crossentropy",
       "CategoricalCrossentropy",
       "",
       Target::kLikePrediction,
       AxisOption::kOne,
       {logits, smoothing},
       losses::categorical_crossentropy},
      {"binary_crossentropy",
       "BinaryCrossentropy",
       "bce",
       Target::kLikePrediction,
       AxisOption::kOne,
       {logits, smoothing},
       losses::binary_crossentropy},
      {"mean_squared_error",
       "MeanSquaredError",
       "mse",
       Target::kLikePrediction,
       AxisOption::kNone,
       {},
       losses::squared_error},
      {"mean_absolute_error",
       "MeanAbsoluteError",
       "mae",
       Target::kLikePrediction,
       AxisOption::kNone,
       {},
       losses::absolute_error},
      {"binary_focal_crossentropy",
       "BinaryFocalCrossentropy",
       "",
       Target::kLikePrediction,
       AxisOption::kOne,
       {logits, smoothing, {"apply_class_balancing", 0, Type::kFlag}, {"alpha", 0.25}, {"gamma", 2}},
       losses::binary_focal},
      {"categorical_focal_crossentropy",
       "CategoricalFocalCrossentropy",
       "",
       Target::kLikePrediction,
       AxisOption::kOne,
       {logits, smoothing, {"alpha", 0.25}, {"gamma", 2}},
       losses::categorical_focal},
      {"categorical_generalized_cross_entropy",
       "CategoricalGeneralizedCrossEntropy",
       "",
       Target::kLabels,
       AxisOption::kNone,
       {{"q", 0.5, Type::kShare}},
       losses::generalized_crossentropy},
      {"categorical_hinge",
       "CategoricalHinge",
       "",
       Target::kLikePrediction,
       AxisOption::kNone,
       {},
       losses::categorical_hinge},
      {"hinge", "Hinge", "", Target::kLikePrediction, AxisOption::kNone, {}, losses::hinge, kHinge},
      {"squared_hinge",
       "SquaredHinge",
       "",
       Target::kLikePrediction,
       AxisOption::kNone,
       {},
       losses::squared_hinge,
       kHinge},
      {"cosine_similarity",
       "CosineSimilarity",
       "",
       Target::kLikePrediction,
       AxisOption::kOne,
       {},
       losses::cosine_similarity},
      {"circle",
       "Circle",
       "",
       Target::kGroups,
       AxisOption::kNone,
       {{"gamma", 80}, {"margin", 0.4}, {"remove_diagonal", 1, Type::kFlag}},
       losses::circle,
       "it compares all samples of the batch"},
      {"ctc", "CTC", "", Target::kSequence, AxisOption::kNone, {}, losses::ctc},
      {"dice", "Dice", "", Target::kLikePrediction, AxisOption::kAny, {}, losses::dice},
      {"tversky",
       "Tversky",
       "",
       Target::kLikePrediction,
       AxisOption::kAny,
       {{"alpha", 0.5}, {"beta", 0.5}},
       losses::tversky},
      {"huber", "Huber", "", Target::kLikePrediction, AxisOption::kNone, {{"delta", 1}}, losses::huber},
      {"kl_divergence", "KLDivergence", "kld", Target::kLikePrediction, AxisOption::kNone, {}, losses::kl_divergence},
      {"log_cosh", "LogCosh", "", Target::kLikePrediction, AxisOption::kNone, {}, losses::log_cosh},
      {"mean_absolute_percentage_error",
       "MeanAbsolutePercentageError",
       "mape",
       Target::kLikePrediction,
       AxisOption::kNone,
       {},
       losses::percentage_error},
      {"mean_squared_logarithmic_error",
       "MeanSquaredLogarithmicError",
       "msle",
       Target::kLikePrediction,
       AxisOption::kNone,
       {},
       losses::squared_log_error},
      {"poisson", "Poisson", "", Target::kLikePrediction, AxisOption::kNone, {}, losses::poisson},
  };
  return classes;
}

std::string in_capitals(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(), [](char c) { return static_cast<char>(c - 'a' + 'A'); });
  return text;
}

void read_axes(const LossClass& kind, Config& c, Loss& loss) {
  if (kind.axis == AxisOption::kNone) {
    loss.axes = {-1};
    return;
  }
  const Json* value = c.value("axis");
  if (value == nullptr) {
    if (kind.axis == AxisOption::kOne) loss.axes = {-1};
    return;
  }
  loss.axes.emplace();
  const bool list = value->is_array() && kind.axis == AxisOption::kAny;
  for (const Json& one : list ? *value : Json::array({*value})) {
    const auto axis = as_integer(one);
    if (!axis) c.issues().reject(fmt::format("{}: 'axis' must be an integer, got {}", c.where(), shown(*value)));
    loss.axes->push_back(axis.value_or(-1));
  }
}

}  // namespace

double Loss::number(std::string_view name) const {
  const auto found = numbers.find(name);
  return found == numbers.end() ? 0 : found->second;
}

bool Loss::same_rows(const Loss& other) const {
  return kind == other.kind && traced == other.traced && numbers == other.numbers && axes == other.axes &&
         ignored_class == other.ignored_class;
}

TargetKind target_kind(const Loss& loss) {
  return loss.traced && loss.traced->labels ? TargetKind::kLabels : loss.kind->target;
}
std::string_view function_name(const Loss& loss) {
  return loss.kind->function;
}

bool reduces_batch(const Loss& loss, const Shape& sample) {
  const std::vector<int64_t> axes = loss_axes(loss, sample.rank() + 1);
  return std::find(axes.begin(), axes.end(), 0) != axes.end();
}

std::string coupling(const Loss& loss, const Shape& sample) {
  if (!loss.kind->coupling.empty()) return std::string(loss.kind->coupling);
  return reduces_batch(loss, sample) ? "it is computed over the whole batch" : "";
}

bool has_last_axis_rows(const Loss& loss) {
  return !loss.traced && loss.axes == std::vector<int64_t>{-1};
}

int64_t elements_per_row(const Loss& loss, const Shape& sample) {
  if (loss.kind->target == TargetKind::kGroups || loss.kind->target == TargetKind::kSequence) return sample.elements();
  if (loss.traced) return std::max<int64_t>(sample.elements() / std::max<int64_t>(rows_per_sample(loss, sample), 1), 1);
  int64_t count = 1;
  for (const int64_t axis : loss_axes(loss, sample.rank() + 1)) {
    if (axis == 0) return sample.elements();
    count *= sample[static_cast<size_t>(axis - 1)];
  }
  return count;
}

int64_t rows_per_sample(const Loss& loss, const Shape& sample) {
  if (!loss.traced) return sample.elements() / elements_per_row(loss, sample);
  const auto rows = traced_rows(loss, sample);
  return rows ? rows->elements() : 1;
}

std::string check_loss(const Loss& loss, const Shape& sample) {
  if (loss.traced) return traced_rows(loss, sample) ? "" : "its loss, written in Python, cannot be computed for it";
  if (sample.rank() == 0) return "a loss needs at least one dimension besides the batch";
  if (loss.kind->target == TargetKind::kGroups && sample.rank() != 1) return "its loss needs one vector per sample";
  if (loss.kind->target == TargetKind::kSequence && sample.rank() != 2)
    return "its loss needs a vector of logits per step, [steps, classes]";
  const size_t rank = sample.rank() + 1;
  std::vector<int64_t> axes = loss_axes(loss, rank);
  for (const int64_t axis : axes)
    if (axis < 0 || axis >= static_cast<int64_t>(rank))
      return fmt::format("its loss has an axis outside of the output [N,{}]", to_text(sample));
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) return "its loss names an axis twice";
  if (loss.kind->axis == AxisOption::kOne && axes[0] == 0) return "its loss has the batch as its axis";
  return "";
}

const LossClass* traced_loss_class() {
  static const LossClass kind = {kTracedLoss, kTracedLoss, "", TargetKind::kOwn, AxisOption::kNone, {}, nullptr};
  return &kind;
}

const LossClass* find_loss(std::string_view name) {
  for (const LossClass& one : loss_classes()) {
    if (name == one.function || name == one.class_name) return &one;
    if (!one.short_name.empty() && (name == one.short_name || name == in_capitals(one.short_name))) return &one;
  }
  return nullptr;
}

std::string default_loss_name(const LossClass& kind) {
  return std::string(kind.function);
}

std::vector<std::string> all_loss_names() {
  std::vector<std::string> names;
  for (const LossClass& one : loss_classes()) {
    names.insert(names.end(), {std::string(one.function), std::string(one.class_name)});
    if (!one.short_name.empty()) names.insert(names.end(), {std::string(one.short_name), in_capitals(one.short_name)});
  }
  return names;
}

Loss read_loss(const LossClass& kind, Config& c) {
  Loss loss;
  loss.kind = &kind;
  for (const LossOption& option : kind.options) {
    double& number = loss.numbers[option.name];
    number = option.type == Type::kFlag ? static_cast<double>(c.flag(option.name, option.otherwise != 0))
                                        : c.real(option.name, option.otherwise);
    if (option.type == Type::kShare && (number < 0 || number > 1))
      c.issues().reject(fmt::format("{}: '{}' must lie between 0 and 1", c.where(), option.name));
  }
  read_axes(kind, c, loss);
  if (kind.class_name == "SparseCategoricalCrossentropy" && c.value("ignore_class") != nullptr)
    loss.ignored_class = c.integer("ignore_class", -(int64_t{1} << 24), int64_t{1} << 24, 0);
  if (kind.function == "categorical_generalized_cross_entropy" && !(loss.number("q") > 0 && loss.number("q") < 1))
    c.issues().reject(fmt::format("{}: 'q' must lie between 0 and 1", c.where()));
  return loss;
}

Expression loss_rows(const Loss& loss, const Expression& prediction, const Expression& target) {
  const DType dtype = wide(prediction.type().dtype);
  if (loss.traced) return traced_loss_rows(loss, prediction.cast(dtype), target);
  return loss.kind->rows({loss, prediction, prediction.cast(dtype), target});
}

}  // namespace plimsoll::engine
