// Which features of a record become which arrays, and how. Private to data/.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/features.h"
#include "data/record_index.h"
#include "formats/image/resize.h"
#include "formats/tfrecord/example.h"

namespace plimsoll::engine {

// How a feature becomes a row.
struct RecordField {
  enum class As : uint8_t { kRaw, kPicture, kFloats, kIntegers, kText };
  std::string feature;
  As as = As::kRaw;
  DType dtype = DType::kUInt8;
  std::vector<int64_t> dims;  // of a row; of text: how many strings
  // Lists: a record may have fewer elements, and `padding` fills the rest. `cuts`: or more, and they are left out.
  bool variable = false, cuts = false;
  double padding = 0;
  std::shared_ptr<BilinearRows> picture;  // for kPicture

  int64_t elements() const { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }
  Bytes bytes() const { return elements() * size_of(dtype); }
};

// What the first record says about a feature.
struct DescribedFeature {
  FeatureKind kind = FeatureKind::kNone;
  int64_t count = 0;  // elements, or bytes of the only byte string
  bool one = false;   // one byte string
  bool picture = false;

  std::string text() const {
    if (picture) return "a picture";
    if (kind == FeatureKind::kBytes && !one) return fmt::format("{} byte strings", count);
    return fmt::format("{} {}", count, name_of(kind));
  }
};

struct RecordSchema {
  std::vector<std::string> names;
  std::vector<DescribedFeature> features;

  const DescribedFeature& of(const std::string& name) const {
    return features[static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
  }
  std::string text() const {
    std::string text;
    for (size_t i = 0; i < names.size(); ++i)
      text += fmt::format("{}{}: {}", i == 0 ? "" : ", ", names[i], features[i].text());
    return text;
  }
};

// Reads the first record.
Result<RecordSchema> read_schema(const RecordIndex& index, const std::string& path);

// The field of the model's input with that name; `sample` is nullopt if its shape is not known yet.
Result<RecordField> input_field(const std::string& path, const RecordSchema& schema, const DataSpec& spec,
                                const PortSpec& port, bool single, const std::optional<Shape>& sample);
// One field per input, then one per output if there are targets, then perhaps one of sample weights.
Result<std::vector<RecordField>> choose_fields(const std::string& path, const RecordSchema& schema,
                                               const DataSpec& spec);

}  // namespace plimsoll::engine
