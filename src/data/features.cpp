#include "data/features.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll::engine {
namespace {

tl::unexpected<Error> bad_entry(const std::string& entry) {
  return fail(
      Error{ErrorCode::kUsage,
            fmt::format(
                "--features: '{}' must be NAME=FEATURE, NAME=FEATURE:DTYPE, NAME=FEATURE:variable or NAME=FEATURE:cut",
                entry),
            {},
            {"--features x=image,y=label", "--features x=image_raw:uint8,y=label",
             "--features x=words:variable   if records have different lengths"}});
}

std::vector<std::string> usual_names(PortRole role) {
  switch (role) {
    case PortRole::kInput:
      return {"x", "image", "images", "image_raw", "image/encoded", "features", "input", "inputs", "data"};
    case PortRole::kText:
      return {"x", "text", "texts", "review", "sentence", "content", "features", "input", "inputs", "data"};
    case PortRole::kTarget:
      return {"y", "label", "labels", "class", "image/class/label", "target", "targets"};
    case PortRole::kWeights:
      break;
  }
  return {"sample_weight", "sample_weights", "weight"};
}

std::string short_name(PortRole role) {
  return role == PortRole::kInput || role == PortRole::kText ? "x" : role == PortRole::kTarget ? "y" : "sample_weight";
}

}  // namespace

Result<std::vector<NamedFeature>> parse_features(const std::string& text) {
  std::vector<NamedFeature> features;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = entry.find('='), colon = entry.rfind(':');
    if (equals == std::string::npos || equals == 0 || equals + 1 == entry.size()) return bad_entry(entry);
    NamedFeature one;
    one.port = entry.substr(0, equals);
    one.feature = entry.substr(equals + 1);
    if (colon != std::string::npos && colon > equals) {
      const std::string word = entry.substr(colon + 1);
      one.dtype = dtype_from_name(word);
      if (word == "variable") one.length = FeatureLength::kVariable;
      if (word == "cut") one.length = FeatureLength::kCut;
      one.text = word == "text";
      if (one.dtype || one.text || one.length != FeatureLength::kFixed)
        one.feature = entry.substr(equals + 1, colon - equals - 1);
    }
    features.push_back(std::move(one));
  }
  return features;
}

std::optional<FeatureChoice> choose_feature(const std::vector<NamedFeature>& named,
                                            const std::vector<std::string>& there, const std::string& port,
                                            PortRole role, bool single) {
  const auto has = [&](const std::string& name) { return std::find(there.begin(), there.end(), name) != there.end(); };
  for (const NamedFeature& one : named)
    if (one.port == port || (single && one.port == short_name(role))) {
      if (!has(one.feature)) return std::nullopt;
      return FeatureChoice{one.feature, one.dtype, one.length};
    }
  if (role != PortRole::kWeights && has(port)) return FeatureChoice{port, {}, {}};
  if (!single) return std::nullopt;
  for (const std::string& name : usual_names(role))
    if (has(name)) return FeatureChoice{name, {}, {}};
  return std::nullopt;
}

}  // namespace plimsoll::engine
