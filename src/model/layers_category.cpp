// Keras's layers that make categories of numbers: CategoryEncoding, Discretization, IntegerLookup.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "model/expression.h"
#include "model/preprocessing.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kMostBounds = 1024;  // each one is a node of the graph
constexpr int64_t kMostTokens = kMostConstants - 2;
constexpr int64_t kExactInFloat = int64_t{1} << 24;

// How ids become the output.
struct Encoding {
  std::string mode;  // "int", "one_hot", "multi_hot", "count"
  int64_t depth = 0;

  bool per_sample() const { return mode == "multi_hot" || mode == "count"; }
};

Encoding read_encoding(Config& c, const std::string& otherwise) {
  Encoding encoding;
  encoding.mode = c.choice("output_mode", {"int", "one_hot", "multi_hot", "count", "binary", "tf_idf"}, otherwise);
  if (encoding.mode == "binary") encoding.mode = "multi_hot";
  if (encoding.mode == "tf_idf") c.issues().unknown(c.where() + ": output_mode=\"tf_idf\"");
  c.only("sparse", {false});
  return encoding;
}

Result<LayerShape> encoded_shape(const Encoding& encoding, const Shape& in, Issues& issues, const std::string& where) {
  LayerShape shape(in);
  if (encoding.mode == "int") {
    shape.kinds = {TensorKind::kInteger};
    return shape;
  }
  std::vector<int64_t> dims = in.dims;
  if (encoding.per_sample()) {
    if (dims.size() != 1)
      issues.unknown(
          fmt::format("{}: output_mode=\"{}\" of samples with {} dimensions", where, encoding.mode, dims.size()));
    dims.clear();
  } else if (!dims.empty() && dims.back() == 1) {
    dims.pop_back();
  }
  dims.push_back(encoding.depth);
  return checked_shape(std::move(dims), where);
}

// `ids` are i32. An id outside of the categories counts nowhere.
ValueId encoded(const BuildCall& call, const Encoding& encoding, ValueId ids) {
  if (encoding.mode == "int") return ids;
  Expression hot(
      call.b, call.add("one_hot", {ids}, {{"depth", encoding.depth}, {"dtype", std::string(name_of(call.precision))}}));
  if (encoding.per_sample()) hot = sum(hot, {1});
  if (encoding.mode == "multi_hot") hot = minimum(hot, 1);
  return hot.reshaped(call.output_dims()).id();
}

Layer category_encoding(Config& c) {
  Encoding encoding = read_encoding(c, "multi_hot");
  if (encoding.mode == "int") c.issues().reject(c.where() + ": output_mode cannot be \"int\"");
  encoding.depth = c.integer("num_tokens", 1, INT32_MAX);
  const std::string where = c.where();
  Layer layer;
  layer.reads_integers = true;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) {
    return encoded_shape(encoding, in[0], issues, where);
  };
  layer.build = [=](const BuildCall& call) -> LayerValues { return encoded(call, encoding, call.in()); };
  return layer;
}

std::vector<double> read_numbers(Config& c, const char* key, size_t most, const std::string& if_missing) {
  std::vector<double> numbers;
  const Json* value = c.value(key);
  if (!value || !value->is_array()) {
    c.issues().reject(fmt::format("{}: {}", c.where(), if_missing));
    return numbers;
  }
  if (value->size() > most) {
    c.issues().unknown(fmt::format("{}: '{}' with more than {} numbers", c.where(), key, most));
    return numbers;
  }
  for (const Json& one : *value) {
    const auto number = as_number(one);
    if (!number) {
      c.issues().reject(fmt::format("{}: '{}' must hold numbers, got {}", c.where(), key, shown(one)));
      return {};
    }
    numbers.push_back(*number);
  }
  return numbers;
}

Layer discretization(Config& c) {
  Encoding encoding = read_encoding(c, "int");
  const std::vector<double> bounds = read_numbers(c, "bin_boundaries", kMostBounds,
                                                  "it has no 'bin_boundaries': call adapt() before saving the model");
  if (!std::is_sorted(bounds.begin(), bounds.end())) c.issues().reject(c.where() + ": 'bin_boundaries' must be sorted");
  c.ignore({"num_bins", "epsilon"});
  encoding.depth = static_cast<int64_t>(bounds.size()) + 1;
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) {
    return encoded_shape(encoding, in[0], issues, where);
  };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    const Expression x(call.b, call.in());
    Expression below = x.filled(0);
    for (const double bound : bounds) below = below + greater_equal(x, bound);
    return encoded(call, encoding, below.cast(DType::kInt32).id());
  };
  return layer;
}

// The index of each token; all other ids have the index `unknown`.
struct Vocabulary {
  std::map<int64_t, int64_t> index;
  int64_t unknown = 0;
};

// Sums index - unknown over the token that is equal, node by node.
ValueId compared(const BuildCall& call, const Vocabulary& vocabulary) {
  const Expression ids = Expression(call.b, call.in()).cast(wide(call.precision));
  Expression found = ids.filled(static_cast<double>(vocabulary.unknown));
  for (const auto& [token, index] : vocabulary.index)
    found = found + equal(ids, static_cast<double>(token)) * static_cast<double>(index - vocabulary.unknown);
  return found.cast(DType::kInt32).id();
}

// Gathers from a table of all ids between the smallest and the largest token. An id outside of it reads `unknown` from
// the table's first entry.
ValueId gathered(const BuildCall& call, const Vocabulary& vocabulary) {
  const int64_t first = vocabulary.index.begin()->first, last = vocabulary.index.rbegin()->first;
  std::vector<double> table(static_cast<size_t>(last - first + 3), static_cast<double>(vocabulary.unknown));
  for (const auto& [token, index] : vocabulary.index)
    table[static_cast<size_t>(token - first + 1)] = static_cast<double>(index);
  const Shape shape{static_cast<int64_t>(table.size())};
  const DType exact = wide(call.precision);  // tokens are below 2^24, so an id beyond that is none of them
  const ValueId values = call.add("constant", {}, constant_attrs(shape, exact, table));
  const Expression places = clip(Expression(call.b, call.in()).cast(exact) - static_cast<double>(first - 1), 0,
                                 static_cast<double>(last - first + 2));
  const ValueId found = call.add("gather", {values, places.cast(DType::kInt32).id()}, {{"axis", int64_t{0}}});
  return Expression(call.b, found).cast(DType::kInt32).id();
}

Vocabulary read_vocabulary(Config& c, int64_t unknowns) {
  Vocabulary vocabulary;
  const auto tokens = read_numbers(c, "vocabulary", static_cast<size_t>(kMostTokens),
                                   "it has no vocabulary: call adapt() before saving the model");
  const auto mask = c.optional_real("mask_token"), out = c.optional_real("oov_token");
  int64_t next = 0;
  if (mask) vocabulary.index[static_cast<int64_t>(*mask)] = next++;
  vocabulary.unknown = next;
  next += unknowns;
  // As in Keras, the list may begin with the special tokens.
  size_t first = 0;
  if (mask && !tokens.empty() && tokens[0] == *mask) first = 1;
  if (out && tokens.size() > first && tokens[first] == *out) ++first;
  for (size_t i = first; i < tokens.size(); ++i) {
    const double token = tokens[i];
    if (token != static_cast<double>(static_cast<int64_t>(token)) || std::abs(token) >= kExactInFloat) {
      c.issues().unknown(fmt::format("{}: a token of {}; tokens are whole numbers below 2^24", c.where(), token));
      return vocabulary;
    }
    if (!vocabulary.index.emplace(static_cast<int64_t>(token), next++).second)
      c.issues().reject(fmt::format("{}: the token {} is there twice", c.where(), token));
  }
  return vocabulary;
}

Layer integer_lookup(Config& c) {
  Encoding encoding = read_encoding(c, "int");
  const int64_t unknowns = c.integer("num_oov_indices", 0, INT32_MAX, 1);
  if (unknowns > 1) c.issues().unknown(fmt::format("{}: num_oov_indices={}", c.where(), unknowns));
  if (unknowns == 0) c.issues().unknown(c.where() + ": num_oov_indices=0, which makes an unknown id an error");
  const Vocabulary vocabulary = read_vocabulary(c, unknowns);
  c.only("invert", {false});
  const auto most = c.optional_real("max_tokens");
  const int64_t tokens = static_cast<int64_t>(vocabulary.index.size()) + unknowns;
  encoding.depth = c.flag("pad_to_max_tokens", false) && most ? static_cast<int64_t>(*most) : tokens;
  c.ignore({"vocabulary_dtype", "idf_weights", "vocabulary_size", "encoding", "oov_method", "salt"});
  const std::string where = c.where();
  Layer layer;
  layer.reads_integers = true;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) {
    return encoded_shape(encoding, in[0], issues, where);
  };
  const bool dense =
      !vocabulary.index.empty() && vocabulary.index.rbegin()->first - vocabulary.index.begin()->first < kMostTokens - 1;
  if (!dense && vocabulary.index.size() > kMostBounds)
    c.issues().unknown(fmt::format("{}: more than {} tokens that are spread over more than {} numbers", where,
                                   kMostBounds, kMostTokens));
  layer.build = [=](const BuildCall& call) -> LayerValues {
    const bool few = vocabulary.index.size() <= 8;
    return encoded(call, encoding, dense && !few ? gathered(call, vocabulary) : compared(call, vocabulary));
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"CategoryEncoding", category_encoding},
    LayerClass{"Discretization", discretization},
    LayerClass{"IntegerLookup", integer_lookup},
};

}  // namespace

std::span<const LayerClass> category_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
