// The losses and metrics of a compile configuration, one list per output.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/losses.h"
#include "model/metrics.h"
#include "model/model.h"

namespace plimsoll::engine {

struct MetricSpec {
  std::string name;          // the reported name, with the output's name if there are several outputs
  std::string source;        // the requested name
  bool automatic = false;    // "accuracy": as in Keras, it is replaced by a class when the shapes are known
  std::optional<Loss> loss;  // a mean of this loss's rows
  MetricFormula metric;      // otherwise
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
// an output without a loss, and those that do not fit the loss's targets or the output's shape.
void resolve_metrics(Objective& objective, std::span<const Shape> outputs);

}  // namespace plimsoll::engine
