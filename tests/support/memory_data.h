// Random samples in memory that fit a model, and a source that counts its reads.
#pragma once

#include <atomic>
#include <functional>

#include "data/random.h"
#include "tests/support/run.h"

namespace plimsoll::engine::testing {

class MemoryData {
 public:
  MemoryData(const Model& model, int64_t samples, uint64_t seed, bool weights = false, SourceOptions options = {}) {
    MemoryArrays arrays;
    for (const Port& port : model.inputs())
      arrays.inputs.push_back(
          {"x", uniform(samples, port.sample, seed++, -1, 1), DType::kFloat32, dims(samples, port.sample)});
    for (const Port& port : model.outputs()) {
      if (!port.has_loss) continue;
      if (port.sparse_labels) {
        labels_.push_back(
            random_integers(static_cast<int32_t>(port.classes), samples * port.target.elements(), seed++));
        arrays.targets.push_back({"y", labels_.back().data(), DType::kInt32, dims(samples, port.target)});
      } else {
        arrays.targets.push_back(
            {"y", uniform(samples, port.target, seed++, 0, 1), DType::kFloat32, dims(samples, port.target)});
      }
      if (weights) arrays.weights.push_back({"w", uniform(samples, {}, seed++, 0.25F, 2), DType::kFloat32, {samples}});
    }
    source_.emplace(
        require(ColumnSource::create(require(wrap_data(arrays, data_spec(model, true))), std::move(options))));
  }
  MemoryData(const MemoryData&) = delete;
  MemoryData& operator=(const MemoryData&) = delete;

  ColumnSource& source() { return *source_; }

 private:
  static std::vector<int64_t> dims(int64_t samples, const Shape& sample) {
    std::vector<int64_t> list = {samples};
    list.insert(list.end(), sample.dims.begin(), sample.dims.end());
    return list;
  }
  const float* uniform(int64_t samples, const Shape& sample, uint64_t seed, float low, float high) {
    floats_.push_back(plimsoll::engine::random_uniform(Shape(dims(samples, sample)), seed, low, high));
    return floats_.back().data();
  }

  std::vector<std::vector<float>> floats_;
  std::vector<std::vector<int32_t>> labels_;
  std::optional<ColumnSource> source_;
};

// Forwards reads, and reports their number after each one.
class WatchedSource : public BatchSource {
 public:
  WatchedSource(BatchSource& source, std::function<void(int64_t reads)> after)
      : source_(source), after_(std::move(after)) {}

  int64_t samples() const override { return source_.samples(); }
  const std::vector<TensorType>& input_types() const override { return source_.input_types(); }
  const std::vector<TensorType>& target_types() const override { return source_.target_types(); }
  bool has_weights() const override { return source_.has_weights(); }
  Bytes buffer_bytes() const override { return source_.buffer_bytes(); }
  Status read(int64_t epoch, int64_t first, int64_t count, const BatchBuffers& into) override {
    Status status = source_.read(epoch, first, count, into);
    after_(++reads_);
    return status;
  }

 private:
  BatchSource& source_;
  std::function<void(int64_t)> after_;
  std::atomic<int64_t> reads_{0};
};

// Convolution, pooling, dropout, two dense layers: one layer of each kind, but none that couples samples.
inline plimsoll::Description small_cnn() {
  return require(sequential({layers::Input({9, 9, 2}), layers::Conv2D(5, {3, 3}, {.activation = "relu"}),
                             layers::MaxPooling2D({2, 2}), layers::Flatten(), layers::Dropout(0.3),
                             layers::Dense(7, {.activation = "tanh"}), layers::Dense(4, {.activation = "softmax"})},
                            "small_cnn"));
}

}  // namespace plimsoll::engine::testing
