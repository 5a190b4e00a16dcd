// Keras's layers from strings to numbers: TextVectorization, StringLookup and Hashing, with the arithmetic of Keras and
// of TensorFlow's string operations. They run where data are read: a string is never a tensor of the arena.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "model/config.h"
#include "model/text/token_table.h"
#include "model/text/tokens.h"

namespace plimsoll::engine {

// The dimensions of a sample; nullopt: they depend on the data.
using OpenDims = std::vector<std::optional<int64_t>>;

class TextLayer {
 public:
  enum class Output : uint8_t { kIds, kOneHot, kMultiHot, kCount, kTfIdf };

  // The dtype of its rows: int32 for ids, uint8 for zeros and ones, float32 for counts.
  DType dtype() const;
  Output output() const { return output_; }
  // The shape of a row for samples of strings with these dimensions. What it does not take is listed in `issues`.
  OpenDims row(const OpenDims& strings, Issues& issues, const std::string& where) const;
  Bytes bytes() const;  // memory that it holds
  bool splits() const { return split_ != TextSplit::kWhole || !ngrams_.empty(); }
  std::string digest() const;  // identifies what it computes

 private:
  friend class TextLayerReader;
  friend class TextWriter;
  static constexpr int64_t kUnknown = -1, kDropped = -2;
  int64_t id(std::string_view token) const;
  int64_t bucket(std::string_view token, uint64_t buckets) const;

  bool vectorizes_ = false;  // TextVectorization
  bool hashes_ = false;      // Hashing
  bool lower_ = false, strip_ = false;
  TextSplit split_ = TextSplit::kWhole;
  std::vector<int64_t> ngrams_;  // their widths; empty: tokens alone
  std::optional<int64_t> length_;
  Output output_ = Output::kIds;
  int64_t depth_ = 0;  // of all outputs but ids
  TokenTable tokens_;
  std::optional<std::string> mask_;
  int64_t unknowns_ = 1;  // how many ids unknown tokens have, or the bins of Hashing without the masked one
  int64_t first_unknown_ = 0, first_token_ = 0;
  std::optional<std::array<uint64_t, 2>> salt_;
  std::vector<float> idf_;
  std::string config_digest_;
};

bool is_text_layer(std::string_view class_name);
// Reads the configuration of a layer. Null if something in it is not supported, which is then in the config's issues.
std::shared_ptr<const TextLayer> read_text_layer(std::string_view class_name, Config& config);

// Writes rows of a layer, one string after the other. Its memory does not grow if no string is longer than `longest`.
class TextWriter {
 public:
  TextWriter(const TextLayer& layer, Bytes longest);
  Bytes bytes() const;

  // Begins a row of that many elements.
  void begin(void* row, int64_t elements);
  // Adds the next string of the sample, which it may change. Fails with P404 if the layer does not take it.
  Status add(std::string& text);
  // Ends the row, and returns the number of tokens, which may be more than fit into it.
  int64_t end();

 private:
  Status put(std::string_view token);

  const TextLayer& layer_;
  std::string joined_;                    // an n-gram
  std::vector<std::string_view> window_;  // its tokens
  std::byte* row_ = nullptr;
  int64_t elements_ = 0, found_ = 0;
};

}  // namespace plimsoll::engine
