/// @file
/// Sources of samples: arrays in memory, or any object that yields batches.
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
/// is declared with an integer dtype takes only that dtype. Sparse labels may have any dtype, but their values must be
/// integers within the range of the classes (P404). Elements that are not finite are refused (P403). All checks happen
/// before any computation.
struct Batch {
  Arrays x;                   ///< One array per input of the model.
  Arrays y = {};              ///< One array per output with a loss; not needed for predictions.
  Arrays sample_weight = {};  ///< One number per sample, for all outputs or per output. See Options::sample_weights.
};

/// A source of batches, such as a queue, a camera or a generator. The number of batches may be unknown.
class DataSource {
 public:
  virtual ~DataSource() = default;

  /// Starts an epoch. The first epoch is 0. An error ends the call that reads the data.
  virtual Result<void> begin_epoch(int64_t epoch) = 0;

  /// Fills in the next batch and returns true, or returns false if the epoch is over. The arrays of the batch must stay
  /// valid until the next call. An error ends the call that reads the data.
  ///
  /// `fit` makes one optimizer step per batch, or per Options::gradient_accumulation_steps batches. A batch has at most
  /// Options::batch_size samples, and may have fewer.
  virtual Result<bool> next(Batch& batch) = 0;
};

/// The data that `fit`, `evaluate` and `predict` read. A Data object refers to arrays or a source that the caller owns.
/// They must outlive the call.
class Data {
 public:
  /// Arrays in memory, cut into batches of Options::batch_size. `fit` shuffles them in each epoch.
  static Data arrays(Arrays x, Arrays y = {}, Arrays sample_weight = {});

  /// Batches that a source yields, in its order.
  static Data from(DataSource& source);

  /// Batches from a function. It is called like DataSource::next, with the epoch as an additional argument. It must
  /// start again when the epoch changes.
  static Data from(std::function<Result<bool>(int64_t epoch, Batch& batch)> next);

  /// The source, or null for arrays.
  DataSource* source() const { return source_.get(); }
  /// The arrays, if there is no source.
  const Batch& all() const { return all_; }

 private:
  std::shared_ptr<DataSource> source_;
  Batch all_;
};

}  // namespace plimsoll
#pragma GCC visibility pop
