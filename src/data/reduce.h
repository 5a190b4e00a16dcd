// Smaller inputs: principal components, a choice of features, a lower resolution, a subset of the samples. Statistics
// are float64 sums over streams, so memory does not depend on the number of samples. The array that is reduced is the
// first one of a stream, `x`.
#pragma once

#include <array>
#include <optional>

#include "data/array_stream.h"

namespace plimsoll::engine {

// What is done with every sample of `x`. It is found on training data, and applied to new data unchanged.
struct Reduction {
  enum class Kind : uint8_t { kPca, kFeatures, kResolution } kind = Kind::kPca;
  std::vector<int64_t> input;  // the shape of a sample that it takes; kResolution: only its rank counts
  // kPca: y = components * (x - mean). The sign of a component makes its largest element positive.
  std::vector<double> mean, components;
  std::vector<double> variances;           // kPca: along each component, divided by n - 1
  double total_variance = 0;               // kPca: of all features
  std::vector<int64_t> features;           // kFeatures: which ones of the flat sample stay, rising
  std::array<int64_t, 2> resolution = {};  // kResolution: height and width; bilinear as in tf.image.resize

  int64_t components_count() const { return static_cast<int64_t>(variances.size()); }
};

// Called between blocks with the rows done, and the rows of all passes; an error ends the work.
using Passes = std::function<Status(int64_t done, int64_t of)>;

// Each finds a reduction in passes over the data. Fails with P201 if it does not suit them, P403 for NaN and infinity.
Result<Reduction> find_pca(ArrayStream& data, int64_t components, const Passes& progress);
// Keeps features whose variance (divided by n) is above the threshold.
Result<Reduction> find_by_variance(ArrayStream& data, double threshold, const Passes& progress);
// Keeps the `count` features with the largest absolute correlation with `y`, or with any of its columns.
Result<Reduction> find_by_correlation(ArrayStream& data, int64_t count, const Passes& progress);
Result<Reduction> find_resolution(const ArrayStream& data, std::array<int64_t, 2> size);

// Memory that these need beyond the stream's buffers, for samples of `elements` numbers.
Bytes pca_bytes(int64_t elements, int64_t components);
Bytes statistics_bytes(int64_t elements);

// The stream with reduced samples. Fails with P402 if the samples have another shape than the reduction takes.
Result<std::unique_ptr<ArrayStream>> reduced(std::unique_ptr<ArrayStream> data, Reduction reduction);

// `count` random samples in their order, each subset with the same probability; with `stratified`, the classes of `y`
// keep their shares. Several passes see the same samples. Reads `y` once if `stratified`.
Result<std::unique_ptr<ArrayStream>> subset(std::unique_ptr<ArrayStream> data, int64_t count, bool stratified,
                                            uint64_t seed);

// An .npz with the numbers of a reduction.
Status save_reduction(const std::string& path, const Reduction& reduction);
Result<Reduction> load_reduction(const std::string& path);

}  // namespace plimsoll::engine
