/// @file
/// Where samples come from: arrays in memory, or any source that yields batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "plimsoll/array.h"

#pragma GCC visibility push(default)
namespace plimsoll {

/// Samples for one call. The first dimension of every array counts the samples and is the same in all of them.
///
/// Inputs may have any dtype if the model's input is a float; the elements are converted, as Keras does. An input that
/// is declared as whole numbers takes that dtype alone. Sparse labels may have any dtype, but must be whole numbers
/// inside the classes (P404). Elements that are not finite are refused (P403). All of this is checked before anything
/// is computed.
struct Batch {
  Arrays x;                   ///< One array per input of the model.
  Arrays y = {};              ///< One array per output with a loss; not needed for predictions.
  Arrays sample_weight = {};  ///< One number per sample, for all outputs or per output. See Options::sample_weights.
};

/// Batches from anywhere: a queue, a camera, a generator. How many there are need not be known.
class DataSource {
 public:
  virtual ~DataSource() = default;

  /// Starts an epoch; the first one is 0. An error ends the call that reads the data.
  virtual Result<void> begin_epoch(int64_t epoch) = 0;

  /// Fills in the next batch and returns true, or returns false if the epoch is over. The arrays of the batch must stay
  /// valid until the next call. An error ends the call that reads the data.
  ///
  /// `fit` makes one optimizer step per batch, or per Options::gradient_accumulation_steps batches. A batch has at most
  /// Options::batch_size samples, and may have fewer.
  virtual Result<bool> next(Batch& batch) = 0;
};

/// What `fit`, `evaluate` and `predict` read. Data refer to arrays and sources of the caller's, which must outlive the
/// call.
class Data {
 public:
  /// Arrays in memory, cut into batches of Options::batch_size. `fit` shuffles them in each epoch.
  static Data arrays(Arrays x, Arrays y = {}, Arrays sample_weight = {});

  /// Batches that a source yields, in its order.
  static Data from(DataSource& source);

  /// Batches that a function yields: it is called as DataSource::next is, with the epoch, and starts anew when the
  /// epoch changes.
  static Data from(std::function<Result<bool>(int64_t epoch, Batch& batch)> next);

  /// The source, or null for arrays.
  DataSource* source() const { return source_.get(); }
  /// The arrays, where there is no source.
  const Batch& all() const { return all_; }

 private:
  std::shared_ptr<DataSource> source_;
  Batch all_;
};

}  // namespace plimsoll
#pragma GCC visibility pop
