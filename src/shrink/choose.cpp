#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/tree.h"
#include "shrink/prune.h"

namespace plimsoll::engine {
namespace {

// Adds f(value) of each element of a weight to the class of its index along an axis.
template <typename Add>
void each_element(const Weight& weight, const WeightAxis& axis, const std::vector<float>& values, const Add& add) {
  int64_t inner = 1;
  for (size_t d = axis.axis + 1; d < weight.shape.rank(); ++d) inner *= weight.shape[d];
  const auto size = static_cast<size_t>(weight.shape[axis.axis]);
  for (size_t i = 0; i < values.size(); ++i)
    add(static_cast<size_t>(axis.classes[(i / static_cast<size_t>(inner)) % size]), values[i]);
}

bool ends_with(const std::string& text, const char* ending) {
  return text.ends_with(ending);
}

std::vector<double> effects_on_loss(const HeldModel& held, const ChannelMap& map, const Effects& effects) {
  std::vector<double> made(map.classes());
  for (const WeightAxis& axis : map.axes) {
    const Weight& weight = held.model.weights()[axis.weight];
    const auto found = effects.find(weight.name);
    if (found == effects.end()) continue;
    std::vector<double> sums(map.classes());
    each_element(weight, axis, found->second, [&](size_t one, float value) { sums[one] += value; });
    for (size_t i = 0; i < sums.size(); ++i) made[i] += std::abs(sums[i]);
  }
  return made;
}

struct Norms {
  std::vector<double> writes, reads, scales;
  std::vector<bool> read, scaled;
};

Norms norms(const HeldModel& held, const ChannelMap& map) {
  const size_t n = map.classes();
  Norms made{std::vector<double>(n), std::vector<double>(n), std::vector<double>(n), std::vector<bool>(n),
             std::vector<bool>(n)};
  for (const WeightAxis& axis : map.axes) {
    const Weight& weight = held.model.weights()[axis.weight];
    const auto& values = held.values.at(weight.name);
    const bool scale = ends_with(weight.name, "/gamma"), kernel = weight.shape.rank() > 1;
    if (!scale && !kernel) continue;  // biases and statistics say nothing of a channel's weight
    std::vector<double>& sums = scale ? made.scales : axis.reads ? made.reads : made.writes;
    each_element(weight, axis, values, [&](size_t one, float value) { sums[one] += double{value} * value; });
    for (const int32_t one : axis.classes) {
      if (scale) made.scaled[static_cast<size_t>(one)] = true;
      if (axis.reads) made.read[static_cast<size_t>(one)] = true;
    }
  }
  return made;
}

}  // namespace

std::vector<double> scores(const HeldModel& held, const ChannelMap& map, Importance importance,
                           const Effects& effects) {
  if (!held.has_weights) return std::vector<double>(map.classes(), 1);
  if (importance == Importance::kLoss && !effects.empty()) return effects_on_loss(held, map, effects);
  const Norms sums = norms(held, map);
  std::vector<double> made(map.classes());
  for (size_t i = 0; i < made.size(); ++i) {
    if (importance == Importance::kBatchNorm && sums.scaled[i])
      made[i] = std::sqrt(sums.scales[i]);
    else
      made[i] = std::sqrt(sums.writes[i]) * (sums.scaled[i] ? std::sqrt(sums.scales[i]) : 1) *
                (sums.read[i] ? std::sqrt(sums.reads[i]) : 1);
  }
  return made;
}

namespace {

// How many of `count` channels stay.
int64_t rounded(double wish, int64_t count, int64_t multiple) {
  const double exact = std::clamp(wish, 1.0, static_cast<double>(count));
  if (multiple <= 1 || count <= multiple) return std::clamp<int64_t>(std::llround(exact), 1, count);
  const auto times = std::max<int64_t>(1, std::llround(exact / static_cast<double>(multiple)));
  return std::min(times * multiple, count);
}

bool has_heads(const ChannelMap& map, const ChannelGroup& group) {
  return std::any_of(group.widths.begin(), group.widths.end(),
                     [&](size_t width) { return map.widths[width].key == "num_heads"; });
}

}  // namespace

std::vector<bool> choose(const ChannelMap& map, const std::vector<double>& scores, const std::vector<bool>& free,
                         const Choice& choice) {
  std::vector<bool> keep(map.classes(), true);
  std::vector<double> share(map.groups.size(), 1 - choice.ratio);
  if (choice.across) {
    // Scores are compared after each was divided by the mean of its group.
    std::vector<std::pair<double, size_t>> all;
    for (size_t g = 0; g < map.groups.size(); ++g) {
      if (!map.groups[g].locked.empty()) continue;
      double sum = 0;
      for (const int32_t one : map.groups[g].classes) sum += scores[static_cast<size_t>(one)];
      const double mean = sum / static_cast<double>(map.groups[g].classes.size());
      for (const int32_t one : map.groups[g].classes)
        all.emplace_back(mean > 0 ? scores[static_cast<size_t>(one)] / mean : 0, g);
    }
    std::sort(all.begin(), all.end());
    std::vector<int64_t> leave(map.groups.size());
    for (size_t i = 0; i < static_cast<size_t>(choice.ratio * static_cast<double>(all.size())); ++i)
      ++leave[all[i].second];
    constexpr double kLeast = 0.1;  // a group that is left with less is more than the others can make up for
    for (size_t g = 0; g < share.size(); ++g)
      share[g] =
          std::max(kLeast, 1 - static_cast<double>(leave[g]) / static_cast<double>(map.groups[g].classes.size()));
  }
  for (size_t g = 0; g < map.groups.size(); ++g) {
    const ChannelGroup& group = map.groups[g];
    if (!group.locked.empty()) continue;
    Classes order = group.classes;
    const auto is_free = [&](int32_t one) {
      return static_cast<size_t>(one) < free.size() && free[static_cast<size_t>(one)];
    };
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      if (is_free(a) != is_free(b)) return is_free(a);
      return scores[static_cast<size_t>(a)] < scores[static_cast<size_t>(b)];
    });
    const auto count = static_cast<int64_t>(order.size());
    int64_t stay = rounded(share[g] * static_cast<double>(count), count, has_heads(map, group) ? 1 : choice.multiple);
    if (g < choice.extra.size()) stay = std::min(count, stay + choice.extra[g] * choice.multiple);
    if (choice.only_free) stay = std::max<int64_t>(1, count - std::count_if(order.begin(), order.end(), is_free));
    for (int64_t i = 0; i < count - stay; ++i) keep[static_cast<size_t>(order[static_cast<size_t>(i)])] = false;
  }
  return keep;
}

std::vector<GroupReport> group_reports(const Model& model, const ChannelMap& map, const std::vector<bool>& keep) {
  const LayerTree& tree = model.architecture().parts().tree;
  std::vector<GroupReport> reports;
  for (const ChannelGroup& group : map.groups) {
    GroupReport made;
    for (const size_t width : group.widths) {
      const Width& one = map.widths[width];
      made.layers +=
          (made.layers.empty() ? "" : ", ") + tree.layers[one.layer].path + (one.key == "num_heads" ? " (heads)" : "");
    }
    made.before = static_cast<int64_t>(group.classes.size());
    for (const int32_t one : group.classes) made.after += keep[static_cast<size_t>(one)] ? 1 : 0;
    made.locked = group.locked;
    reports.push_back(std::move(made));
  }
  return reports;
}

}  // namespace plimsoll::engine
