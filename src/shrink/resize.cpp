#include "shrink/resize.h"

#include <algorithm>

#include "model/initializer.h"
#include "model/tree.h"
#include "shrink/prune.h"

namespace plimsoll::engine {
namespace {

// The middle of a kernel whose last two axes are the same.
std::optional<std::vector<float>> middle(const std::vector<float>& from, const Shape& before, const Shape& after) {
  if (before.rank() != after.rank() || before.rank() < 3) return std::nullopt;
  for (size_t d = 0; d < before.rank(); ++d)
    if (after[d] > before[d] || (d + 2 >= before.rank() && after[d] != before[d])) return std::nullopt;
  std::vector<size_t> at(after.rank(), 0);
  std::vector<float> made(static_cast<size_t>(after.elements()));
  for (float& value : made) {
    size_t index = 0;
    for (size_t d = 0; d < at.size(); ++d)
      index = index * static_cast<size_t>(before[d]) + at[d] + static_cast<size_t>((before[d] - after[d]) / 2);
    value = from[index];
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < static_cast<size_t>(after[d])) break;
      at[d] = 0;
    }
  }
  return made;
}

// The shape of the picture that a Flatten makes the input of the layer of; nullopt if none does.
std::optional<Shape> flattened(const Model& model, const ChannelMap& map, const std::string& layer) {
  const LayerTree& tree = model.architecture().parts().tree;
  const auto& calls = map.program.calls;
  for (const LayerCall& call : calls) {
    if (tree.layers[call.layer].path != layer) continue;
    for (const LayerCall& before : calls)
      if (before.outputs[0] == call.inputs[0] && tree.layers[before.layer].class_name == "Flatten")
        return map.program.tensors[before.inputs[0]];
  }
  return std::nullopt;
}

// The rows of a Dense kernel [H*W*C, units] for a picture of another size: those of the nearest pixels, scaled so that
// their sum stays.
std::vector<float> nearest_rows(const std::vector<float>& from, const Shape& before, const Shape& after,
                                int64_t units) {
  const int64_t channels = before[2];
  const double scale = static_cast<double>(before[0] * before[1]) / static_cast<double>(after[0] * after[1]);
  std::vector<float> made;
  made.reserve(static_cast<size_t>(after.elements() * units));
  for (int64_t y = 0; y < after[0]; ++y)
    for (int64_t x = 0; x < after[1]; ++x) {
      const int64_t row = (2 * y + 1) * before[0] / (2 * after[0]), column = (2 * x + 1) * before[1] / (2 * after[1]);
      const int64_t begin = (row * before[1] + column) * channels * units;
      for (int64_t i = 0; i < channels * units; ++i)
        made.push_back(static_cast<float>(from[static_cast<size_t>(begin + i)] * scale));
    }
  return made;
}

}  // namespace

Result<Carried> carry_over(const HeldModel& from, Description changed) {
  forget_shapes(changed);
  PLIMSOLL_ASSIGN(HeldModel made, with_description(from, std::move(changed)));
  Carried carried{std::move(made), {}, {}};
  HeldModel& to = carried.model;
  PLIMSOLL_ASSIGN(const ChannelMap before, find_channels(from.description, from.model, true));
  PLIMSOLL_ASSIGN(const ChannelMap after, find_channels(to.description, to.model, true));
  std::map<std::string, const Weight*> old;
  for (const Weight& weight : from.model.weights()) old.emplace(weight.name, &weight);
  for (const Weight& weight : to.model.weights()) {
    const auto found = old.find(weight.name);
    const auto values = from.values.find(weight.name);
    if (found != old.end() && found->second->shape == weight.shape) {
      to.values.emplace(weight.name, values->second);
      continue;
    }
    std::optional<std::vector<float>> part;
    if (found != old.end()) {
      part = middle(values->second, found->second->shape, weight.shape);
      const auto a = flattened(from.model, before, weight.layer), b = flattened(to.model, after, weight.layer);
      if (!part && weight.shape.rank() == 2 && a && b && a->rank() == 3 && b->rank() == 3 && a->back() == b->back() &&
          found->second->shape[1] == weight.shape[1])
        part = nearest_rows(values->second, *a, *b, weight.shape[1]);
    }
    if (part && static_cast<int64_t>(part->size()) == weight.shape.elements()) {
      carried.cropped.push_back(weight.name);
      to.values.emplace(weight.name, std::move(*part));
      continue;
    }
    std::vector<float> fresh(static_cast<size_t>(weight.shape.elements()));
    PLIMSOLL_TRY(initialize(weight, 0, std::span(fresh)));
    carried.anew.push_back(weight.name);
    to.values.emplace(weight.name, std::move(fresh));
  }
  if (!from.has_state) return carried;
  std::map<std::string, Shape> shapes;
  for (const StateVariable& variable : state_of(from.model)) shapes.emplace(variable.value, variable.shape);
  for (const StateVariable& variable : state_of(to.model)) {
    if (variable.value.empty()) continue;
    const auto same = shapes.find(variable.value);
    if (same != shapes.end() && same->second == variable.shape)
      to.values.emplace(variable.value, from.values.at(variable.value));
    else if (variable.initial == StateVariable::Initial::kWeight)
      to.values.emplace(variable.value, to.values.at(variable.weight));
    else
      to.values.emplace(variable.value, std::vector<float>(static_cast<size_t>(variable.shape.elements()),
                                                           static_cast<float>(variable.number)));
  }
  return carried;
}

}  // namespace plimsoll::engine
