// Which feature of a record, or column of a table, is which array of the model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace plimsoll::engine {

// Whether all records have as many elements of a feature: shorter lists are padded, and longer ones may be cut.
enum class FeatureLength : uint8_t { kFixed, kVariable, kCut };

// One entry of --features: "x=image:uint8", "x=words:variable", "x=words:cut".
struct NamedFeature {
  std::string port, feature;
  std::optional<DType> dtype;
  FeatureLength length = FeatureLength::kFixed;
  bool text = false;  // "x=review:text": strings, where no model says so
};
Result<std::vector<NamedFeature>> parse_features(const std::string& text);

// Names that are tried for a model with one input, one output, and for sample weights. The model's own names come
// first.
enum class PortRole : uint8_t { kInput, kText, kTarget, kWeights };

// Finds the feature of a port among `there`. `single`: the model has no other port of this role. nullopt: none.
struct FeatureChoice {
  std::string feature;
  std::optional<DType> dtype;
  FeatureLength length = FeatureLength::kFixed;
};
std::optional<FeatureChoice> choose_feature(const std::vector<NamedFeature>& named,
                                            const std::vector<std::string>& there, const std::string& port,
                                            PortRole role, bool single);

}  // namespace plimsoll::engine
