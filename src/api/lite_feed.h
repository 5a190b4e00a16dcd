// Reads data sample by sample into the inputs of TensorFlow Lite models, and runs the models on them.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/column_source.h"
#include "shrink/lite/interpreter.h"

namespace plimsoll::engine {

class LiteFeed {
 public:
  // Opens `argument`, in the syntax of --data.
  static Result<LiteFeed> open(const std::string& argument, const DataSpec& spec);

  int64_t samples() const { return source_.samples(); }
  bool has_targets() const { return !source_.target_types().empty(); }
  const std::vector<TensorType>& target_types() const { return source_.target_types(); }
  Bytes bytes() const;  // what it holds while it runs

  // What is done with a sample after the programs have run on it. `buffers` has one element per program; `targets` the
  // sample's targets, in the types of the data.
  using After = std::function<Status(int64_t sample, std::span<const lite::Buffers> buffers,
                                     std::span<const std::byte* const> targets)>;
  // Runs the programs on the samples `which`, several samples at once on `threads` threads. `after` is called in the
  // order of `which`, one call at a time, so sums do not depend on the number of threads. Fails with P501 when `stop`
  // becomes true.
  Status run(std::span<const int64_t> which, std::span<const lite::Program* const> programs, int threads,
             const After& after, const std::atomic<bool>* stop,
             const std::function<void(int64_t done)>& progress = nullptr);

 private:
  explicit LiteFeed(ColumnSource source) : source_(std::move(source)) {}
  ColumnSource source_;
};

// `count` samples, evenly spread over `samples`: data are often sorted by class.
std::vector<int64_t> spread_samples(int64_t samples, int64_t count);

// Converts a sample's elements to the type of a model's input, with its scale if that is of integers. Elements of the
// input's own integer type are taken as they are.
void fill_input(const void* from, DType dtype, const lite::Tensor& input, void* to);

// Element `i`, as a number.
double number_at(const void* data, DType dtype, int64_t i);
// Element `i` of a tensor of a model, as a real number.
double real_at(const void* data, const lite::Tensor& tensor, int64_t i);

// How many of the outputs name the target's class: the largest of several, or above 0.5 (`logit`: above 0) if there is
// one. Nothing if the target is not a class.
std::optional<bool> names_class(const void* output, const lite::Tensor& tensor, const void* target,
                                const TensorType& target_type);
int64_t largest_of(const void* output, const lite::Tensor& tensor);

}  // namespace plimsoll::engine
