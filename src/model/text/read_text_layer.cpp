// Reads the configurations of text layers, as keras/src/layers/preprocessing does.
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "model/text/text_layer.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kMostDepth = int64_t{1} << 24;
constexpr int64_t kMostNgram = 64;

using Output = TextLayer::Output;

}  // namespace

bool is_text_layer(std::string_view class_name) {
  return class_name == "TextVectorization" || class_name == "StringLookup" || class_name == "Hashing";
}

class TextLayerReader {
 public:
  TextLayerReader(std::string_view class_name, Config& config)
      : c_(config), layer_(std::make_shared<TextLayer>()), class_name_(class_name) {}

  std::shared_ptr<const TextLayer> read() {
    layer_->vectorizes_ = class_name_ == "TextVectorization";
    layer_->hashes_ = class_name_ == "Hashing";
    read_output();
    if (layer_->hashes_)
      read_hashing();
    else
      read_lookup();
    layer_->tokens_.shrink();
    layer_->config_digest_ = fmt::format(
        "{} {} {} {} {} {} {} {} {} {} {}", class_name_, layer_->lower_, layer_->strip_,
        static_cast<int>(layer_->split_), fmt::join(layer_->ngrams_, "-"), static_cast<int>(layer_->output_),
        layer_->depth_, layer_->unknowns_, layer_->mask_ ? "mask " + *layer_->mask_ : "",
        layer_->salt_ ? (*layer_->salt_)[0] : 0, layer_->salt_ ? (*layer_->salt_)[1] : 0);
    c_.ignore({"name", "trainable", "dtype"});
    c_.finish();
    return layer_;
  }

 private:
  void read_output() {
    std::string mode =
        c_.choice("output_mode", {"int", "one_hot", "multi_hot", "binary", "count", "tf_idf", "tf-idf"}, "int");
    if (layer_->vectorizes_ && mode == "one_hot") c_.issues().unknown(c_.where() + ": output_mode=\"one_hot\"");
    if (layer_->hashes_ && mode.starts_with("tf")) c_.issues().reject(c_.where() + ": output_mode cannot be tf_idf");
    layer_->output_ = mode == "int"                             ? Output::kIds
                      : mode == "one_hot"                       ? Output::kOneHot
                      : mode == "multi_hot" || mode == "binary" ? Output::kMultiHot
                      : mode == "count"                         ? Output::kCount
                                                                : Output::kTfIdf;
    c_.only("sparse", {false});
    c_.only("ragged", {false});
  }

  // One integer for both words of the key, or two.
  void read_salt() {
    const Json* salt = c_.value("salt");
    if (salt == nullptr) return;
    std::array<uint64_t, 2> key{};
    bool good = salt->is_array() && salt->size() == 2;
    for (size_t i = 0; i < 2; ++i) {
      const Json& word = good ? (*salt)[i] : *salt;
      good = good || salt->is_number_integer();
      if (word.is_number_unsigned())
        key[i] = word.get<uint64_t>();
      else if (word.is_number_integer())
        key[i] = static_cast<uint64_t>(word.get<int64_t>());
      else
        good = false;
    }
    if (!good)
      c_.issues().reject(fmt::format("{}: 'salt' must be one or two integers, got {}", c_.where(), shown(*salt)));
    layer_->salt_ = key;
  }

  // A token of the configuration: text; nullopt if it is null.
  std::optional<std::string> read_token(const char* key, std::optional<std::string> otherwise) {
    if (c_.is_null(key)) return std::nullopt;
    const Json* value = c_.value(key);
    if (value == nullptr) return otherwise;
    if (value->is_string()) return value->get<std::string>();
    c_.issues().reject(fmt::format("{}: '{}' must be text, got {}", c_.where(), key, shown(*value)));
    return otherwise;
  }

  void read_hashing() {
    layer_->depth_ = c_.integer("num_bins", 1, kMostDepth);
    if (const Json* mask = c_.value("mask_value"); mask != nullptr && layer_->depth_ > 1) {
      if (mask->is_string())
        layer_->mask_ = mask->get<std::string>();
      else
        c_.issues().reject(fmt::format("{}: 'mask_value' must be text, got {}", c_.where(), shown(*mask)));
    }
    layer_->unknowns_ = layer_->depth_ - (layer_->mask_ ? 1 : 0);
    read_salt();
  }

  void read_steps() {
    const std::string steps =
        c_.is_null("standardize")
            ? "none"
            : c_.choice("standardize", {"lower_and_strip_punctuation", "lower", "strip_punctuation"},
                        "lower_and_strip_punctuation");
    layer_->lower_ = steps.starts_with("lower");
    layer_->strip_ = steps.ends_with("strip_punctuation");
    const std::string split =
        c_.is_null("split") ? "none" : c_.choice("split", {"whitespace", "character"}, "whitespace");
    layer_->split_ = split == "whitespace"  ? TextSplit::kWhitespace
                     : split == "character" ? TextSplit::kCharacter
                                            : TextSplit::kWhole;
    if (const Json* ngrams = c_.value("ngrams")) {
      if (const auto most = as_integer(*ngrams); most && *most >= 1 && *most <= kMostNgram) {
        layer_->ngrams_.resize(static_cast<size_t>(*most));
        std::iota(layer_->ngrams_.begin(), layer_->ngrams_.end(), 1);
      } else {
        bool good = ngrams->is_array() && !ngrams->empty();
        for (size_t i = 0; good && i < ngrams->size(); ++i) {
          const auto width = as_integer((*ngrams)[i]);
          good = width && *width >= 1 && *width <= kMostNgram;
          layer_->ngrams_.push_back(width.value_or(1));
        }
        if (!good)
          c_.issues().reject(fmt::format("{}: 'ngrams' must be an integer or a list of integers from 1 to {}, got {}",
                                         c_.where(), kMostNgram, shown(*ngrams)));
      }
    }
    if (layer_->split_ == TextSplit::kWhole && !layer_->ngrams_.empty())
      c_.issues().unknown(c_.where() + ": ngrams without split");
    if (c_.value("output_sequence_length") != nullptr)
      layer_->length_ = c_.integer("output_sequence_length", 1, kMostDepth);
  }

  void read_lookup() {
    std::optional<std::string> out = "[UNK]";
    if (layer_->vectorizes_) {
      read_steps();
      layer_->mask_ = "";
    } else {
      layer_->mask_ = read_token("mask_token", std::nullopt);
      out = read_token("oov_token", out);
      layer_->unknowns_ = c_.integer("num_oov_indices", 0, kMostDepth, 1);
      c_.only("invert", {false});
      read_salt();
      c_.ignore({"vocabulary_dtype", "oov_method"});
    }
    c_.ignore({"encoding", "vocabulary_size", "has_input_vocabulary"});
    layer_->first_unknown_ = layer_->mask_ && layer_->output_ == Output::kIds ? 1 : 0;
    layer_->first_token_ = layer_->first_unknown_ + layer_->unknowns_;
    const int64_t before = read_vocabulary(out);
    const int64_t size = layer_->first_token_ + layer_->tokens_.size();
    const int64_t most = c_.value("max_tokens") != nullptr ? c_.integer("max_tokens", 2, INT32_MAX) : 0;
    if (most > 0 && size > most)
      c_.issues().reject(fmt::format("{}: its vocabulary has {} tokens, but max_tokens is {}", c_.where(), size, most));
    const bool pads = c_.flag("pad_to_max_tokens", false);
    if (pads && most == 0) c_.issues().reject(c_.where() + ": pad_to_max_tokens needs max_tokens");
    layer_->depth_ = pads && most > 0 ? most : size;
    if (layer_->output_ != Output::kIds && layer_->depth_ > kMostDepth)
      c_.issues().unknown(
          fmt::format("{}: a vocabulary of more than {} tokens, one number per token", c_.where(), kMostDepth));
    read_idf(before);
  }

  // Returns how many special tokens the list begins with.
  int64_t read_vocabulary(const std::optional<std::string>& out) {
    const Json* list = c_.value("vocabulary");
    if (list == nullptr || !list->is_array() || list->empty()) {
      c_.issues().reject(fmt::format(
          "{}: it has no vocabulary: call adapt() before saving the model, or save it as .keras", c_.where()));
      return 0;
    }
    const auto special = static_cast<size_t>(layer_->first_token_);
    // As in Keras, the list may begin with all special tokens.
    bool begins = list->size() >= special;
    for (size_t i = 0; begins && i < special; ++i) {
      const auto& wanted = static_cast<int64_t>(i) < layer_->first_unknown_ ? layer_->mask_ : out;
      begins = wanted && (*list)[i].is_string() && (*list)[i].get_ref<const std::string&>() == *wanted;
    }
    const size_t first = begins ? special : 0;
    for (size_t i = first; i < list->size(); ++i) {
      if (!(*list)[i].is_string()) {
        c_.issues().reject(fmt::format("{}: 'vocabulary' must hold texts, got {}", c_.where(), shown((*list)[i])));
        return 0;
      }
      const auto& token = (*list)[i].get_ref<const std::string&>();
      if (layer_->mask_ && token == *layer_->mask_)
        c_.issues().reject(fmt::format("{}: the mask token '{}' is in its vocabulary", c_.where(), token));
      else if (!layer_->tokens_.add(token))
        c_.issues().reject(fmt::format("{}: the token '{}' is there twice", c_.where(), token));
    }
    return static_cast<int64_t>(first);
  }

  // As set_vocabulary() does: special tokens that the list does not have get the mean weight.
  void read_idf(int64_t before) {
    const Json* list = c_.value("idf_weights");
    if (layer_->output_ != Output::kTfIdf) return;
    const int64_t listed = before + layer_->tokens_.size();
    if (list == nullptr || !list->is_array() || static_cast<int64_t>(list->size()) < listed) {
      c_.issues().reject(c_.where() + ": it has no 'idf_weights' for its vocabulary: call adapt() before saving");
      return;
    }
    std::vector<double> weights;
    for (const Json& one : *list) weights.push_back(as_number(one).value_or(NAN));
    const double mean = std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
    for (int64_t i = before; i < layer_->first_token_; ++i) layer_->idf_.push_back(static_cast<float>(mean));
    for (const double weight : weights) layer_->idf_.push_back(static_cast<float>(weight));
    layer_->idf_.resize(static_cast<size_t>(layer_->depth_), 0.0F);
    for (const float weight : layer_->idf_)
      if (!std::isfinite(weight)) {
        c_.issues().reject(c_.where() + ": 'idf_weights' must be finite numbers");
        return;
      }
  }

  Config& c_;
  std::shared_ptr<TextLayer> layer_;
  const std::string class_name_;
};

std::shared_ptr<const TextLayer> read_text_layer(std::string_view class_name, Config& config) {
  return TextLayerReader(class_name, config).read();
}

}  // namespace plimsoll::engine
