// Sequences whose lengths vary (--buckets): samples are grouped by length, every group has a model and a plan for its
// length, and all plans share one arena.
#pragma once

#include <memory>
#include <vector>

#include "api/options.h"
#include "data/column_source.h"
#include "data/sequence_lengths.h"
#include "model/model.h"
#include "search/search.h"

namespace plimsoll::engine {

struct LengthBucket {
  int64_t steps = 0, samples = 0;  // samples: per epoch
  std::unique_ptr<Model> model;    // null: the run's own model, which has the length of the arrays
  Plan plan;                       // set by plan_buckets()
  size_t in_session = 0;           // the number of its plan
};

struct LengthBuckets {
  LengthGroups groups;
  std::vector<LengthBucket> list;  // as groups.groups(): the longest first
  int64_t window = 0;              // samples of a full window

  Bytes bytes() const { return groups.bytes(); }
};

// Groups the samples that `source` has. Fails with P201 if no input of the model has steps declared with None, or if
// the model cannot have one of the lengths asked for.
Result<LengthBuckets> open_buckets(const RunOptions& options, const Model& model, const ColumnSource& source);

// Fails with P201 if the options cannot be combined with buckets.
Status check_bucket_options(const RunOptions& options);

// Plans every bucket but the first for the arena of the first, whose plan is `longest`. `request` has the device and
// the budget; `request_of` makes the request of another bucket from its model and number of samples.
using BucketRequest = std::function<Result<SearchRequest>(const Model& model, int64_t samples)>;
Status plan_buckets(LengthBuckets& buckets, const SearchRequest& request, const Plan& longest,
                    const BucketRequest& request_of);
// Returns what the other plans need outside of the arena if each has as many kernels as `longest`.
Bytes reserve_for(const LengthBuckets& buckets, const Device& device, const Plan& longest);
// Returns the peak of the process with all plans.
Bytes peak_of(const LengthBuckets& buckets, const Device& device, const Plan& longest);
// Fails with P301 if that peak is above the budget (0: unlimited).
Status check_together(const LengthBuckets& buckets, Bytes peak, Bytes budget);

}  // namespace plimsoll::engine
