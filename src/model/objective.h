// The losses and metrics of a compile configuration, one list per output.
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
  // As in Keras, kAccuracy is replaced by one of the other kinds when the shapes are known.
  enum class Kind { kLoss, kAccuracy, kSparse, kCategorical, kBinary };
  std::string name;    // the reported name, with the output's name if there are several outputs
  std::string source;  // the requested name
  Kind kind = Kind::kLoss;
  Loss loss;               // only for kLoss
  double threshold = 0.5;  // only for kBinary
  bool weighted = false;
  size_t output = 0;
  bool skipped = false;  // it is not computed
};

struct Objective {
  std::vector<std::optional<Loss>> losses;  // one per output; as in Keras, an output may have no loss
  std::vector<double> loss_weights;
  std::vector<MetricSpec> metrics;
  std::vector<std::string> skipped_metrics;  // metrics that are not computed, with the names that Keras reports
};

// Reads the compile configuration (may be null). The options override it.
Objective read_objective(const Json& compile_config, const ModelOptions& options,
                         const std::vector<std::string>& outputs, Issues& issues);

// Decides what "accuracy" means, and moves metrics that are not computed to `skipped_metrics`: unknown ones, those of
// an output without a loss, and those whose targets differ from the loss's.
void resolve_metrics(Objective& objective, std::span<const Shape> outputs);

std::string to_text(LossKind kind);

// Returns one loss per row. If the prediction comes directly from a softmax or sigmoid, the cross-entropy is computed
// from its logits. As in Keras, any of the two functions is combined with any of the three cross-entropies, because
// Keras keeps the logits with the tensor and does not check which function was applied.
ValueId add_loss_rows(GraphBuilder& b, const Loss& loss, ValueId prediction, ValueId target);
ValueId add_metric_rows(GraphBuilder& b, const MetricSpec& metric, ValueId prediction, ValueId target);

}  // namespace plimsoll::engine
