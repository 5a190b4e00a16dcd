// Prediction and evaluation of `.tflite` files, on the CPU and inside the budget.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "api/lite_feed.h"
#include "api/options.h"
#include "api/request.h"

namespace plimsoll::engine {

bool is_lite_file(const std::string& path);  // by its ending

struct LiteMetrics {
  int64_t samples = 0;
  std::optional<double> accuracy;  // of models with one output whose targets are classes
  double mean_squared_error = 0;   // else: of the outputs
};

class LiteRun {
 public:
  // Opens options.model, and the data. Fails with P301 if the budget is too small.
  static Result<std::unique_ptr<LiteRun>> open(const RunOptions& options, bool needs_targets);

  const lite::Model& model() const { return model_; }
  const Budget& budget() const { return budget_; }
  int64_t samples() const { return feed_->samples(); }
  // `write` gets each sample's outputs, in the order of the data.
  Status predict(const std::function<Status(size_t output, const void* data)>& write, const std::atomic<bool>* stop,
                 const std::function<void(int64_t done)>& progress);
  Result<LiteMetrics> evaluate(const std::atomic<bool>* stop, const std::function<void(int64_t done)>& progress);

 private:
  lite::Model model_;
  std::optional<lite::Program> program_;
  std::optional<LiteFeed> feed_;
  Budget budget_;
  int threads_ = 1;
};

}  // namespace plimsoll::engine
