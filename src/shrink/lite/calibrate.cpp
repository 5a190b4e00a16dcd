#include "shrink/lite/calibrate.h"

#include <algorithm>
#include <cmath>

namespace plimsoll::engine::lite {
namespace {

constexpr size_t kBins = 2048;
constexpr int kLevels = 255;

bool counts(const Tensor& t) {
  return t.type == Type::kFloat32 && !t.constant() && !t.shape.empty();
}

struct Bins {
  const std::vector<uint32_t>& of;
  double low = 0, width = 0;

  double center(size_t i) const { return low + (static_cast<double>(i) + 0.5) * width; }
};

// Cuts off equally many elements at both ends.
Range percentile(const Bins& bins, double percent) {
  double all = 0;
  for (const uint32_t n : bins.of) all += n;
  const double cut = all * (100 - percent) / 200;
  size_t first = 0, last = kBins - 1;
  for (double sum = bins.of[first]; sum <= cut && first + 1 < last; sum += bins.of[first]) ++first;
  for (double sum = bins.of[last]; sum <= cut && last > first + 1; sum += bins.of[last]) --last;
  return {static_cast<float>(bins.low + static_cast<double>(first) * bins.width),
          static_cast<float>(bins.low + static_cast<double>(last + 1) * bins.width)};
}

// The mean square of the error that `range` makes: rounding inside, clipping outside.
double squared_error(const Bins& bins, Range range) {
  const double step = std::max<double>((double{range.high} - range.low) / kLevels, 1e-30);
  double error = 0;
  for (size_t i = 0; i < kBins; ++i) {
    const double x = bins.center(i), clipped = std::clamp<double>(x, range.low, range.high);
    error += bins.of[i] * ((x - clipped) * (x - clipped) + (x == clipped ? step * step / 12 : 0));
  }
  return error;
}

// Kullback-Leibler divergence of the quantized distribution from the clipped one: within a level, the elements are
// spread evenly over the bins that have any.
double divergence(const Bins& bins, Range range) {
  const double step = std::max<double>((double{range.high} - range.low) / kLevels, 1e-30);
  std::vector<double> p(kBins), level(kLevels + 1), filled(kLevels + 1);
  const auto place = [&](double x) {
    return static_cast<size_t>(std::clamp<double>((x - range.low) / step, 0, kLevels));
  };
  size_t first = kBins, last = 0;
  for (size_t i = 0; i < kBins; ++i) {
    const double x = bins.center(i);
    if (x < range.low || x > range.high) continue;
    first = std::min(first, i);
    last = std::max(last, i);
  }
  if (first > last) return INFINITY;
  double all = 0;
  for (size_t i = 0; i < kBins; ++i) {
    all += bins.of[i];
    p[std::clamp(i, first, last)] += bins.of[i];
    if (i < first || i > last || bins.of[i] == 0) continue;
    level[place(bins.center(i))] += bins.of[i];
    ++filled[place(bins.center(i))];
  }
  double sum = 0, inside = 0;
  for (const double n : level) inside += n;
  if (inside == 0) return INFINITY;
  for (size_t i = first; i <= last; ++i) {
    if (p[i] == 0) continue;
    const size_t l = place(bins.center(i));
    const double q = bins.of[i] > 0 ? level[l] / filled[l] / inside : 1e-9;
    sum += p[i] / all * std::log(p[i] / all / q);
  }
  return sum;
}

template <typename Cost>
Range cheapest(const Bins& bins, Range extremes, const Cost& cost) {
  Range best = extremes;
  double least = cost(bins, extremes);
  for (int percent = 99; percent >= 20; --percent) {
    const float share = static_cast<float>(percent) / 100;
    const Range tried{extremes.low * share, extremes.high * share};
    const double found = cost(bins, tried);
    if (found < least) {
      least = found;
      best = tried;
    }
  }
  return best;
}

}  // namespace

Calibrator::Calibrator(const Program& program) : model_(program.model()), seen_(model_.tensors.size()) {
  for (size_t i = 0; i < seen_.size(); ++i)
    if (counts(model_.tensors[i])) seen_[i].sums.resize(static_cast<size_t>(model_.tensors[i].shape.back()));
}

Bytes Calibrator::bytes(const Model& model) {
  Bytes sum = 0;
  for (const Tensor& t : model.tensors) {
    sum += static_cast<Bytes>(sizeof(Seen));
    if (counts(t)) sum += static_cast<Bytes>(kBins * sizeof(uint32_t)) + t.shape.back() * 8;
  }
  return sum;
}

void Calibrator::see(const Buffers& buffers) {
  ++samples_;
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (!counts(model_.tensors[i])) continue;
    Seen& s = seen_[i];
    const float* x = buffers.as<float>(static_cast<int32_t>(i));
    const int64_t n = model_.tensors[i].elements();
    const auto channels = static_cast<int64_t>(s.sums.size());
    for (int64_t row = 0; row < n; row += channels)
      for (int64_t c = 0; c < channels; ++c) {
        const float v = x[row + c];
        if (v < kHiddenBelow || !std::isfinite(v)) continue;
        s.low = s.any ? std::min(s.low, v) : v;
        s.high = s.any ? std::max(s.high, v) : v;
        s.any = true;
        s.sums[static_cast<size_t>(c)] += v;
      }
    s.rows += n / channels;
  }
}

void Calibrator::count(const Buffers& buffers) {
  for (size_t i = 0; i < seen_.size(); ++i) {
    Seen& s = seen_[i];
    if (!s.any || !(s.high > s.low)) continue;
    if (s.histogram.empty()) s.histogram.resize(kBins);
    const float* x = buffers.as<float>(static_cast<int32_t>(i));
    const int64_t n = model_.tensors[i].elements();
    const float factor = static_cast<float>(kBins) / (s.high - s.low);
    for (int64_t e = 0; e < n; ++e) {
      if (x[e] < kHiddenBelow || !std::isfinite(x[e])) continue;
      const float at = std::clamp((x[e] - s.low) * factor, 0.0F, static_cast<float>(kBins - 1));
      ++s.histogram[static_cast<size_t>(at)];
    }
  }
}

Range Calibrator::extremes(int32_t tensor) const {
  const Seen& s = seen_[static_cast<size_t>(tensor)];
  return {s.low, s.high};
}

Range Calibrator::range(int32_t tensor, RangeMethod method, double percent) const {
  const Seen& s = seen_[static_cast<size_t>(tensor)];
  if (method == RangeMethod::kMinMax || s.histogram.empty()) return {s.low, s.high};
  const Bins bins{s.histogram, s.low, (double{s.high} - s.low) / kBins};
  if (method == RangeMethod::kPercentile) return percentile(bins, percent);
  return cheapest(bins, {s.low, s.high}, method == RangeMethod::kMse ? squared_error : divergence);
}

std::vector<double> Calibrator::means(int32_t tensor) const {
  const Seen& s = seen_[static_cast<size_t>(tensor)];
  std::vector<double> made = s.sums;
  for (double& sum : made) sum /= static_cast<double>(std::max<int64_t>(1, s.rows));
  return made;
}

}  // namespace plimsoll::engine::lite
