// tf.train.Example: a record of named features, each a list of byte strings, floats or integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "formats/saved_model/protobuf.h"

namespace plimsoll::engine {

enum class FeatureKind : uint8_t { kNone, kBytes, kFloats, kIntegers };
std::string_view name_of(FeatureKind kind);

// A feature, which refers to the record's bytes.
struct Feature {
  std::string_view name;
  FeatureKind kind = FeatureKind::kNone;
  std::span<const std::byte> list;  // the list as a serialised message

  // Each returns nullopt if the list is damaged.
  std::optional<int64_t> count() const;
  // The only byte string; nullopt also if there are none or several.
  std::optional<std::span<const std::byte>> only_bytes() const;
  // Write the elements, of which there must be count(); return whether there were that many.
  bool read_floats(std::span<float> into) const { return take_floats(into) == static_cast<int64_t>(into.size()); }
  bool read_integers(std::span<int64_t> into) const { return take_integers(into) == static_cast<int64_t>(into.size()); }
  // Write as many elements as there is room for, and return how many there are; nullopt if the list is damaged or of
  // another kind.
  std::optional<int64_t> take_floats(std::span<float> into) const;
  std::optional<int64_t> take_integers(std::span<int64_t> into) const;
  // A byte string; nullopt if there is none with this number.
  std::optional<std::span<const std::byte>> bytes_at(int64_t number) const;
};

// Reads the features of a serialised Example, one after the other. Fields that it does not know are skipped.
class ExampleReader {
 public:
  explicit ExampleReader(std::span<const std::byte> record) : example_(record), features_({}) {}

  // Returns the next feature; nullopt at the end, and where the record is damaged.
  std::optional<Feature> next();
  bool ok() const { return ok_; }

 private:
  ProtoReader example_, features_;
  bool ok_ = true;
};

// Returns the feature with that name. If it stands in the record several times, the last one counts, as in protobuf.
std::optional<Feature> find_feature(std::span<const std::byte> record, std::string_view name, bool& ok);

}  // namespace plimsoll::engine
