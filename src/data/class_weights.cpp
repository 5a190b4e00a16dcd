#include "data/class_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "data/checks.h"

namespace plimsoll::engine {
namespace {

Error bad_class_weight(std::string_view text, std::string_view entry, std::string_view why) {
  Error error{ErrorCode::kUsage, fmt::format("--class-weight {}: '{}' {}", text, entry, why), {}, {}};
  return error.remedy("--class-weight 0:1,1:5   (class 0 weighs 1, class 1 weighs 5, every other class 1)");
}

template <typename T>
bool parse_whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

Result<ClassWeights> ClassWeights::parse(std::string_view text) {
  ClassWeights result;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto entry = text.substr(begin, end - begin);
    const size_t colon = entry.find(':');
    int64_t label = 0;
    double weight = 0;
    if (colon == std::string_view::npos || !parse_whole(entry.substr(0, colon), label) ||
        !parse_whole(entry.substr(colon + 1), weight))
      return fail(bad_class_weight(text, entry, "is not CLASS:WEIGHT"));
    if (label < 0) return fail(bad_class_weight(text, entry, "names a negative class"));
    if (!std::isfinite(static_cast<float>(weight)) || weight < 0)
      return fail(bad_class_weight(text, entry, "needs a finite weight of at least 0"));
    result.weights_.emplace_back(label, static_cast<float>(weight));
    begin = end + 1;
  }
  auto& weights = result.weights_;
  std::sort(weights.begin(), weights.end());
  const auto same_class = [](const auto& p, const auto& q) { return p.first == q.first; };
  if (auto twice = std::adjacent_find(weights.begin(), weights.end(), same_class); twice != weights.end())
    return fail(bad_class_weight(text, fmt::format("{}", twice->first), "is given two weights"));
  return result;
}

float ClassWeights::of(int64_t label) const {
  const auto at = std::lower_bound(weights_.begin(), weights_.end(), label,
                                   [](const auto& entry, int64_t wanted) { return entry.first < wanted; });
  return at != weights_.end() && at->first == label ? at->second : 1.0f;
}

void ClassWeights::apply(DType dtype, const void* targets, int64_t elements, int64_t count, float* weights) const {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = i * elements;
    double label = element(dtype, targets, begin);
    if (elements == 1) {
      label = std::nearbyint(label);
    } else {
      double largest = label;
      label = 0;
      for (int64_t k = 1; k < elements; ++k)
        if (const double value = element(dtype, targets, begin + k); value > largest)
          largest = value, label = static_cast<double>(k);
    }
    // Labels beyond 2^62 have no weight, and converting them to an integer would be undefined.
    if (std::abs(label) < 0x1p62) weights[i] *= of(static_cast<int64_t>(label));
  }
}

}  // namespace plimsoll::engine
