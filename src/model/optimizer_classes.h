// The optimizer classes: one row per class with its options, its state and its update.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/expression.h"
#include "model/optimizer.h"

namespace plimsoll::engine {

// A part of the gradient of an embedding table: row ids[i] has the gradient dy[i]. TensorFlow keeps such a gradient as
// IndexedSlices, and Keras clips and squares them before the tokens of a row are added up (global_clipnorm adds them
// up after it has their norm).
struct RowGradient {
  ValueId dy = kNone, ids = kNone;
};

// Returns whether the update of an embedding table depends on the tokens one by one in a way that sums over
// micro-batches do not give: it clips them, or squares them with a loss scale.
bool reads_single_rows(const Optimizer& optimizer);

// Applies an element-wise op to the gradient of each token, and adds up the tokens of each row.
Expression sum_of_tokens(GraphBuilder& b, const char* op, const std::vector<RowGradient>& parts, int64_t rows);

// Scalars that all updates of a step share. Each is computed once.
class StepNumbers {
 public:
  StepNumbers(GraphBuilder& b, ValueId rate, ValueId number) : b_(b), rate_(rate), number_(number) {}

  Expression rate() { return {b_, rate_}; }
  ValueId number_i64() const { return number_; }  // the number of this update, from 1
  Expression number();                            // the same in T
  // Computes a scalar on first use. `name` identifies it.
  Expression once(const std::string& name, const std::function<Expression()>& compute);
  Expression bias_correction(double beta);  // 1 - beta^number
  Expression& shared() { return shared_; }  // the new value of the state that all weights share

 private:
  GraphBuilder& b_;
  ValueId rate_, number_;
  std::map<std::string, Expression> values_;
  Expression shared_;
};

// The update of one weight. Weight decay comes first in Keras, so `weight()` is the decayed weight.
struct UpdateCall {
  const Optimizer& optimizer;
  const std::string& name;
  Expression held, gradient;  // the weight as it is, and its gradient after clipping
  double decay;
  std::vector<Expression> state;
  StepNumbers& step;
  const std::vector<RowGradient>& rows;  // of an embedding table
  ValueId of_tokens = kNone;             // of an embedding table whose gradient was added up: TrainedWeight::of_tokens

  Expression weight() const;
  // An element-wise function of the gradient, "square" or "abs". For embedding tables it is applied before the tokens
  // of a row are added up.
  Expression each(const char* op) const;
  bool has_tokens() const { return !rows.empty() || of_tokens != kNone; }
  double number(std::string_view option) const { return optimizer.number(option); }
  bool flag(std::string_view option) const { return optimizer.flag(option); }
};

// The new weight, then the new state. New state is written over the old, so nothing may read the old value of a
// variable after its new value was computed.
using Updated = std::vector<Expression>;

// A state variable of a weight. Keras's file lists, for each group, the variables of all weights.
struct StateSlot {
  std::string name;  // "m": the value is "WEIGHT/m"; "" for a placeholder
  Shape shape;
  int group = 0;
  double initial = 0;
  bool from_weight = false;  // starts at the weight's value
};

struct OptimizerOption {
  enum class Type : uint8_t { kReal, kFlag };
  const char* name;
  double otherwise;
  Type type = Type::kReal;
};

struct OptimizerClass {
  std::string_view name;  // Keras's class
  double learning_rate;
  double weight_decay;
  std::vector<OptimizerOption> options;
  std::string (*check)(const Optimizer&);  // returns "" or the invalid option; may be null
  std::vector<StateSlot> (*state)(const Optimizer&, const NamedShape& weight);
  Updated (*update)(const UpdateCall&);
  // Only if all weights share a state variable, which is the last one in the file: its initial value, and its update.
  double shared_initial = 0;
  Expression (*update_shared)(const Optimizer&, StepNumbers&, const Expression&) = nullptr;
};

const std::vector<OptimizerClass>& optimizer_classes();
const OptimizerClass* find_optimizer_class(const std::string& lower_case_name);

// Whether Muon updates this weight with Adam.
bool is_for_adam(const Optimizer& optimizer, const NamedShape& weight);

}  // namespace plimsoll::engine
