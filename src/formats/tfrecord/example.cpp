// The fields of tf.train.Example, from tensorflow/core/example/example.proto and feature.proto.
#include "formats/tfrecord/example.h"

#include <bit>
#include <cstring>

namespace plimsoll::engine {
namespace {

enum ExampleField { kFeatures = 1 };
enum FeaturesField { kEntry = 1 };  // a map is a list of entries
enum EntryField { kKey = 1, kValue = 2 };
enum ListField { kElement = 1 };

// Calls use(number of 32 bits) for every float. Lists may be packed or not, or mixed.
template <typename Use>
bool for_floats(std::span<const std::byte> list, Use use) {
  ProtoReader reader(list);
  while (reader.next()) {
    if (reader.field() != kElement) continue;
    const auto packed = reader.bytes();
    if (!reader.is_bytes()) {
      use(static_cast<uint32_t>(reader.number()));
      continue;
    }
    if (packed.size() % 4 != 0) return false;
    for (size_t i = 0; i < packed.size(); i += 4) {
      uint32_t word = 0;
      std::memcpy(&word, packed.data() + i, sizeof word);
      use(word);
    }
  }
  return reader.ok();
}

template <typename Use>
bool for_integers(std::span<const std::byte> list, Use use) {
  ProtoReader reader(list);
  while (reader.next()) {
    if (reader.field() != kElement) continue;
    auto packed = reader.bytes();
    if (!reader.is_bytes()) {
      use(static_cast<int64_t>(reader.number()));
      continue;
    }
    while (!packed.empty()) {
      uint64_t number = 0;
      if (!take_varint(packed, number)) return false;
      use(static_cast<int64_t>(number));
    }
  }
  return reader.ok();
}

}  // namespace

std::string_view name_of(FeatureKind kind) {
  switch (kind) {
    case FeatureKind::kBytes:
      return "bytes";
    case FeatureKind::kFloats:
      return "floats";
    case FeatureKind::kIntegers:
      return "integers";
    case FeatureKind::kNone:
      break;
  }
  return "nothing";
}

std::optional<int64_t> Feature::count() const {
  int64_t count = 0;
  const auto add = [&](auto) { ++count; };
  if (kind == FeatureKind::kFloats) return for_floats(list, add) ? std::optional(count) : std::nullopt;
  if (kind == FeatureKind::kIntegers) return for_integers(list, add) ? std::optional(count) : std::nullopt;
  if (kind == FeatureKind::kNone) return 0;
  ProtoReader reader(list);
  while (reader.next()) count += reader.field() == kElement ? 1 : 0;
  return reader.ok() ? std::optional(count) : std::nullopt;
}

std::optional<std::span<const std::byte>> Feature::only_bytes() const {
  if (kind != FeatureKind::kBytes || count() != 1) return std::nullopt;
  ProtoReader reader(list);
  while (reader.next())
    if (reader.field() == kElement) return reader.bytes();
  return std::nullopt;
}

std::optional<std::span<const std::byte>> Feature::bytes_at(int64_t number) const {
  if (kind != FeatureKind::kBytes) return std::nullopt;
  ProtoReader reader(list);
  for (int64_t i = 0; reader.next();)
    if (reader.field() == kElement && i++ == number) return reader.bytes();
  return std::nullopt;
}

std::optional<int64_t> Feature::take_floats(std::span<float> into) const {
  size_t at = 0;
  const bool whole = kind == FeatureKind::kFloats && for_floats(list, [&](uint32_t word) {
                       if (at < into.size()) into[at] = std::bit_cast<float>(word);
                       ++at;
                     });
  return whole ? std::optional(static_cast<int64_t>(at)) : std::nullopt;
}

std::optional<int64_t> Feature::take_integers(std::span<int64_t> into) const {
  size_t at = 0;
  const bool whole = kind == FeatureKind::kIntegers && for_integers(list, [&](int64_t number) {
                       if (at < into.size()) into[at] = number;
                       ++at;
                     });
  return whole ? std::optional(static_cast<int64_t>(at)) : std::nullopt;
}

std::optional<Feature> ExampleReader::next() {
  for (;;) {
    while (features_.next()) {
      if (features_.field() != kEntry) continue;
      Feature feature;
      ProtoReader entry(features_.bytes());
      while (entry.next()) {
        if (entry.field() == kKey) feature.name = entry.text();
        if (entry.field() != kValue) continue;
        ProtoReader value(entry.bytes());
        while (value.next()) {
          if (value.field() < 1 || value.field() > 3) continue;
          feature.kind = static_cast<FeatureKind>(value.field());
          feature.list = value.bytes();
        }
        ok_ = ok_ && value.ok();
      }
      ok_ = ok_ && entry.ok();
      if (!ok_) return std::nullopt;
      return feature;
    }
    ok_ = ok_ && features_.ok();
    if (!ok_ || !example_.next()) break;
    if (example_.field() == kFeatures) features_ = ProtoReader(example_.bytes());
  }
  ok_ = ok_ && example_.ok();
  return std::nullopt;
}

std::optional<Feature> find_feature(std::span<const std::byte> record, std::string_view name, bool& ok) {
  std::optional<Feature> found;
  ExampleReader reader(record);
  while (const auto feature = reader.next())
    if (feature->name == name) found = feature;
  ok = reader.ok();
  return found;
}

}  // namespace plimsoll::engine
