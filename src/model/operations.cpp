// Functions of keras.ops that a Functional model calls on tensors: Split. They have no weights and no policy.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/layer.h"

namespace plimsoll::engine {
namespace {

// Returns where the pieces end along an axis of `size`; nullopt if it cannot be split that way.
std::optional<std::vector<int64_t>> piece_ends(const std::vector<int64_t>& cuts, int64_t sections, int64_t size) {
  std::vector<int64_t> ends = cuts;
  if (sections > 0) {
    if (size % sections != 0) return std::nullopt;
    for (int64_t i = 1; i < sections; ++i) ends.push_back(size / sections * i);
  }
  ends.push_back(size);
  int64_t before = 0;
  for (int64_t end : ends) {
    if (end <= before || end > size) return std::nullopt;  // an empty piece is not supported
    before = end;
  }
  return ends;
}

// One output per piece. `indices_or_sections` is the number of pieces, or the list of positions to split at.
Layer split(Config& c) {
  constexpr int64_t kMostPieces = 4096;
  std::vector<int64_t> cuts;
  int64_t sections = 0;
  const Json* value = c.value("indices_or_sections");
  if (value && value->is_array()) {
    for (const Json& one : *value) cuts.push_back(as_integer(one).value_or(0));
  } else {
    sections = c.integer("indices_or_sections", 1, kMostPieces);
  }
  const int64_t axis = c.integer("axis", -64, 64, 0);
  const std::string where = c.where();
  const size_t pieces = sections > 0 ? static_cast<size_t>(sections) : cuts.size() + 1;
  Layer layer;
  layer.outputs = pieces;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    const auto at = positive_axis(axis, in[0].rank() + 1);
    if (!at)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: axis {} is outside [batch,{}]", where, axis, to_text(in[0])));
    LayerShape shape;
    shape.outputs.assign(pieces, in[0]);
    if (*at == 0) {
      issues.unknown(fmt::format("{}: axis=0, the batch", where));
      return shape;
    }
    const auto d = static_cast<size_t>(*at - 1);
    const auto ends = piece_ends(cuts, sections, in[0][d]);
    if (!ends)
      return fail(ErrorCode::kBadGeometry,
                  fmt::format("{}: {} cannot be split into {}", where, in[0][d],
                              sections > 0 ? fmt::format("{} equal pieces", sections)
                                           : fmt::format("pieces at {}", fmt::join(cuts, ", "))));
    for (size_t i = 0; i < ends->size(); ++i) shape.outputs[i].dims[d] = (*ends)[i] - (i == 0 ? 0 : (*ends)[i - 1]);
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const auto at = positive_axis(axis, call.shape(call.in()).rank());
    std::vector<ValueId> made;
    int64_t begin = 0;
    for (const Shape& piece : call.computed.outputs) {
      const int64_t size = piece[static_cast<size_t>(*at - 1)];
      made.push_back(call.add("slice", {call.in()}, {{"axis", *at}, {"begin", begin}, {"size", size}}));
      begin += size;
    }
    return LayerValues(std::move(made));
  };
  return layer;
}

constexpr std::array kOperations = {
    LayerClass{"Split", split},
};

}  // namespace

LayerParser find_operation(std::string_view class_name) {
  const auto* found = std::find_if(kOperations.begin(), kOperations.end(),
                                   [&](const LayerClass& entry) { return entry.name == class_name; });
  return found == kOperations.end() ? nullptr : found->parse;
}

}  // namespace plimsoll::engine
