#include "model/values.h"

#include "graph/builder.h"

namespace plimsoll::engine {
namespace {

constexpr std::string_view kTally = "tally:";

struct ScalarForm {
  std::string_view name;
  bool integer;
  int64_t length;  // 0: a scalar
};

constexpr std::array<ScalarForm, kStepScalars> kForms = {{{"one", false, 0},
                                                          {"learning_rate", false, 0},
                                                          {"learning_rate/if_skipped", false, 0},
                                                          {"loss_scale/known", true, 0},
                                                          {"iteration", true, 0},
                                                          {"rng", true, 2},
                                                          {"first_sample", true, 1},
                                                          {"sample_share", false, 0}}};

const ScalarForm& form_of(StepScalar scalar) {
  return kForms[static_cast<size_t>(scalar)];
}

}  // namespace

std::string input_value(const std::string& input) {
  return "x:" + input;
}
std::string target_value(const std::string& output) {
  return "y:" + output;
}
std::string sample_weight_value(const std::string& output) {
  return "weight:" + output;
}
std::string prediction_value(const std::string& output) {
  return "prediction:" + output;
}
std::string loss_factor_value(const std::string& output) {
  return "scale:" + output;
}
std::string tally_value(const std::string& tally) {
  return std::string(kTally) + tally;
}
bool is_tally_value(std::string_view value) {
  return value.starts_with(kTally);
}
std::string accumulated_value(const std::string& weight) {
  return "accumulated:" + weight;
}

std::string_view name_of(StepScalar scalar) {
  return form_of(scalar).name;
}

ValueId step_scalar(GraphBuilder& b, StepScalar scalar, DType dtype) {
  const ScalarForm& form = form_of(scalar);
  const Shape shape = form.length == 0 ? Shape{} : Shape{form.length};
  return b.persistent(std::string(form.name), {form.integer ? DType::kInt64 : dtype, shape}, Category::kInputs);
}

}  // namespace plimsoll::engine
