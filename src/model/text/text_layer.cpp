#include "model/text/text_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/digest.h"
#include "model/text/fingerprint.h"

namespace plimsoll::engine {

DType TextLayer::dtype() const {
  switch (output_) {
    case Output::kIds:
      return DType::kInt32;
    case Output::kOneHot:
    case Output::kMultiHot:
      return DType::kUInt8;
    case Output::kCount:
    case Output::kTfIdf:
      break;
  }
  return DType::kFloat32;
}

OpenDims TextLayer::row(const OpenDims& strings, Issues& issues, const std::string& where) const {
  const bool one = strings.empty() || (strings.size() == 1 && strings[0] == 1);
  if (splits() && !one) {
    issues.unknown(where + ": several strings per sample; it takes one");
    return {depth_};
  }
  if (splits()) return {output_ == Output::kIds ? length_ : std::optional(depth_)};
  OpenDims dims = strings;
  if (output_ == Output::kIds) {
    if (!length_) return dims;
    if (dims.size() != 1) issues.unknown(where + ": output_sequence_length without split");
    return {length_};
  }
  if (output_ == Output::kOneHot) {
    if (!dims.empty() && dims.back() == 1) dims.pop_back();
  } else {
    if (dims.size() != 1)
      issues.unknown(fmt::format("{}: this output_mode of samples with {} dimensions", where, dims.size()));
    dims.clear();
  }
  dims.emplace_back(depth_);
  return dims;
}

Bytes TextLayer::bytes() const {
  return static_cast<Bytes>(sizeof *this + idf_.capacity() * sizeof(float)) + tokens_.bytes();
}

std::string TextLayer::digest() const {
  Digest digest;
  digest.add(std::as_bytes(std::span(config_digest_)));
  for (int64_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view token = tokens_[i];
    const uint64_t size = token.size();
    digest.add(std::as_bytes(std::span(&size, 1)));
    digest.add(std::as_bytes(std::span(token)));
  }
  digest.add(std::as_bytes(std::span(idf_)));
  return digest.text();
}

int64_t TextLayer::bucket(std::string_view token, uint64_t buckets) const {
  return static_cast<int64_t>((salt_ ? siphash(token, *salt_) : fingerprint64(token)) % buckets);
}

int64_t TextLayer::id(std::string_view token) const {
  if (hashes_) {
    if (mask_ && token == *mask_) return 0;
    return bucket(token, static_cast<uint64_t>(unknowns_)) + (mask_ ? 1 : 0);
  }
  if (mask_ && token == *mask_) return output_ == Output::kIds ? 0 : kDropped;
  if (const auto found = tokens_.find(token)) return first_token_ + *found;
  if (unknowns_ == 0) return kUnknown;
  return first_unknown_ + (unknowns_ == 1 ? 0 : bucket(token, static_cast<uint64_t>(unknowns_)));
}

TextWriter::TextWriter(const TextLayer& layer, Bytes longest) : layer_(layer) {
  const int64_t widest = layer.ngrams_.empty() ? 1 : *std::max_element(layer.ngrams_.begin(), layer.ngrams_.end());
  // Each character of a text that is split into characters may become three bytes.
  const Bytes grown = layer.split_ == TextSplit::kCharacter ? 3 * longest : longest;
  const auto most = static_cast<size_t>(std::min<Bytes>(widest, longest + 1));
  if (widest > 1) joined_.reserve(static_cast<size_t>(grown) + most);
  window_.reserve(most);
}

Bytes TextWriter::bytes() const {
  return static_cast<Bytes>(sizeof *this + joined_.capacity() + window_.capacity() * sizeof(std::string_view));
}

void TextWriter::begin(void* row, int64_t elements) {
  row_ = static_cast<std::byte*>(row);
  elements_ = elements;
  found_ = 0;
  if (row_ != nullptr) std::memset(row_, 0, static_cast<size_t>(elements * size_of(layer_.dtype())));
}

Status TextWriter::put(std::string_view token) {
  const int64_t id = layer_.id(token);
  if (id == TextLayer::kUnknown)
    return fail(ErrorCode::kLabelOutOfRange,
                fmt::format("the string '{}' is not in the vocabulary, and num_oov_indices is 0",
                            token.substr(0, std::min<size_t>(token.size(), 80))));
  const int64_t place = found_++;
  if (row_ == nullptr) return {};
  if (layer_.output_ == TextLayer::Output::kIds) {
    const auto number = static_cast<int32_t>(id);
    if (place < elements_) std::memcpy(row_ + place * size_of(DType::kInt32), &number, sizeof number);
    return {};
  }
  if (id < 0 || id >= layer_.depth_) return {};
  if (layer_.output_ == TextLayer::Output::kOneHot) {
    if (place * layer_.depth_ + id < elements_) row_[place * layer_.depth_ + id] = std::byte{1};
  } else if (layer_.output_ == TextLayer::Output::kMultiHot) {
    row_[id] = std::byte{1};
  } else {
    auto* const counts = reinterpret_cast<float*>(row_);
    counts[id] += 1.0F;
  }
  return {};
}

Status TextWriter::add(std::string& text) {
  if (layer_.lower_) lower_ascii(text);
  if (layer_.strip_) strip_punctuation(text);
  if (!layer_.splits()) return put(text);
  static const std::vector<int64_t> kTokens{1};
  Status status;
  for_ngrams(text, layer_.split_, layer_.ngrams_.empty() ? kTokens : layer_.ngrams_, joined_, window_,
             [&](std::string_view token) {
               status = put(token);
               // Ids beyond the row's end change nothing.
               const bool full = layer_.output_ == TextLayer::Output::kIds && row_ != nullptr && found_ >= elements_;
               return status.has_value() && !full;
             });
  return status;
}

int64_t TextWriter::end() {
  if (row_ != nullptr && layer_.output_ == TextLayer::Output::kTfIdf) {
    auto* const counts = reinterpret_cast<float*>(row_);
    for (size_t i = 0; i < layer_.idf_.size(); ++i) counts[i] *= layer_.idf_[i];
  }
  return found_;
}

}  // namespace plimsoll::engine
