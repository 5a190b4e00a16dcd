// What is minimised and what is reported: losses and metrics of a compile configuration, one list an output.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/model.h"

namespace plimsoll::engine {

enum class LossKind { kSparseCrossEntropy, kCrossEntropy, kBinaryCrossEntropy, kSquaredError, kAbsoluteError };

struct Loss {
  LossKind kind = LossKind::kSquaredError;
  bool from_logits = false;
  double label_smoothing = 0;
  bool operator==(const Loss&) const = default;
};

struct MetricSpec {
  // kAccuracy becomes one of the others when the shapes are known, as in Keras.
  enum class Kind { kLoss, kAccuracy, kSparse, kCategorical, kBinary };
  std::string name;    // as reported, with the output's where there are several
  std::string source;  // as asked for
  Kind kind = Kind::kLoss;
  Loss loss;               // of kLoss
  double threshold = 0.5;  // of kBinary
  bool weighted = false;
  size_t output = 0;
  bool skipped = false;  // we do not compute it
};

struct Objective {
  std::vector<std::optional<Loss>> losses;  // one an output; Keras allows outputs without
  std::vector<double> loss_weights;
  std::vector<MetricSpec> metrics;
  std::vector<std::string> skipped_metrics;  // those we do not compute, under the names Keras reports
};

// Of the compile configuration (may be null) with what the flags say over it.
Objective read_objective(const Json& compile_config, const ModelOptions& options,
                         const std::vector<std::string>& outputs, Issues& issues);

// Chooses what "accuracy" means, and moves the metrics we do not compute to `skipped_metrics`: unknown ones, those of
// an output without a loss, and those whose targets would not be the loss's.
void resolve_metrics(Objective& objective, std::span<const Shape> outputs);

std::string to_text(LossKind kind);

// One loss a row. Softmax or sigmoid right before a cross-entropy is looked behind, as Keras does: any of the two
// before any of the three, since Keras keeps the logits with the tensor and does not ask which function it was.
ValueId add_loss_rows(GraphBuilder& b, const Loss& loss, ValueId prediction, ValueId target);
ValueId add_metric_rows(GraphBuilder& b, const MetricSpec& metric, ValueId prediction, ValueId target);

}  // namespace plimsoll::engine
