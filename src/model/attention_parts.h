// What the attention layers share: the arguments of their calls, masks of positions, and attention with weights that
// are values of the graph.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/arguments.h"
#include "model/expression.h"
#include "model/layer.h"

namespace plimsoll::engine {

// A mask that a call is given: one of its tensors, or a constant of the file.
struct GivenMask {
  std::optional<size_t> tensor;
  std::optional<Constant> constant;

  explicit operator bool() const { return tensor || constant; }
};

// The arguments of a call of MultiHeadAttention or GroupQueryAttention: numbers of the call's tensors.
struct AttentionArguments {
  size_t query = 0, value = 0;
  std::optional<size_t> key;
  GivenMask query_mask, value_mask, key_mask, attention_mask;
  bool scores = false, causal = false;

  size_t keys() const { return key.value_or(value); }
};
// An argument that is true or false and given by name; false if it is missing.
bool call_flag(Config& config, Arguments& arguments, const char* name);
// Lists what cannot be read.
AttentionArguments read_attention_arguments(Config& config);

// Which positions [Tk] the queries [Tq] see. Values that are kNone do not restrict anything.
struct Visibility {
  ValueId queries = kNone;  // [N,Tq]
  ValueId keys = kNone;     // [N,Tk]
  ValueId pairs = kNone;    // [1 or N, 1 or H, Tq, Tk]
  bool causal = false;
  int64_t window = 0;  // 0: none

  // Whether a query may see no position at all.
  bool hides_rows() const { return queries != kNone || keys != kNone || pairs != kNone || window > 0; }
  bool any() const { return queries != kNone || keys != kNone || pairs != kNone || causal || window > 0; }
};

// The product of two masks, of which either may be kNone.
ValueId both(const BuildCall& call, ValueId a, ValueId b);
// A tensor of the call as a mask: 1 where it is not 0.
ValueId as_mask(const BuildCall& call, size_t input);
// The mask as [1 or N, 1 or heads, Tq, Tk].
ValueId pair_mask(const BuildCall& call, const GivenMask& mask, int64_t queries, int64_t keys);
// Returns "" or why a mask of this shape (with -1 for the batch) cannot be one of pairs.
std::string check_pair_mask(const Shape& mask, bool batched, int64_t heads, int64_t queries, int64_t keys);

// 1 where a query sees a position: [1 or N, 1 or H, Tq, Tk].
Expression visible_pairs(const BuildCall& call, const Visibility& visible, int64_t queries, int64_t keys);

// Attention of queries [N,Tq,H,D] over keys [N,Tk,G,D] and values [N,Tk,G,V]: [N,Tq,H,V], without a matrix of weights
// in the graph.
ValueId attend(const BuildCall& call, ValueId q, ValueId k, ValueId v, double scale, const Visibility& visible);

// Drops weights in training, as layer Dropout does.
ValueId dropped_weights(const BuildCall& call, ValueId weights, double rate);

// The same with weights in the graph. Returns the output and the weights [N,H,Tq,Tk] before dropout.
std::pair<ValueId, ValueId> attend_with_weights(const BuildCall& call, ValueId q, ValueId k, ValueId v, double scale,
                                                const Visibility& visible, double dropout);

// "dropout" of an attention layer.
double read_attention_dropout(Config& config);

std::span<const LayerClass> attention_layers();      // layers_attention.cpp
std::span<const LayerClass> dot_attention_layers();  // layers_dot_attention.cpp

}  // namespace plimsoll::engine
