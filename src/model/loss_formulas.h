// The formulas of the losses (keras/src/losses/losses.py on TensorFlow). Each returns one number per row, [rows].
#pragma once

#include "model/losses.h"

namespace plimsoll::engine {

// The arguments of a formula: x is the prediction and y the target, both of T. Labels are i32.
struct LossCall {
  const Loss& loss;
  Expression prediction;  // as the model made it
  Expression x, y;

  double number(std::string_view name) const { return loss.number(name); }
  bool flag(std::string_view name) const { return loss.flag(name); }
};

// The axes of the loss for a tensor of this rank, none of them negative.
std::vector<int64_t> loss_axes(const Loss& loss, size_t rank);

namespace losses {

Expression sparse_crossentropy(const LossCall& call);
Expression categorical_crossentropy(const LossCall& call);
Expression binary_crossentropy(const LossCall& call);
Expression squared_error(const LossCall& call);
Expression absolute_error(const LossCall& call);
Expression binary_focal(const LossCall& call);
Expression categorical_focal(const LossCall& call);
Expression generalized_crossentropy(const LossCall& call);
Expression hinge(const LossCall& call);
Expression squared_hinge(const LossCall& call);
Expression categorical_hinge(const LossCall& call);
Expression percentage_error(const LossCall& call);
Expression squared_log_error(const LossCall& call);
Expression cosine_similarity(const LossCall& call);
Expression huber(const LossCall& call);
Expression log_cosh(const LossCall& call);
Expression kl_divergence(const LossCall& call);
Expression poisson(const LossCall& call);
Expression dice(const LossCall& call);
Expression tversky(const LossCall& call);
Expression circle(const LossCall& call);
Expression ctc(const LossCall& call);

}  // namespace losses
}  // namespace plimsoll::engine
