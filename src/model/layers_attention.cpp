// MultiHeadAttention and GroupQueryAttention: projections to heads, attention over one or more axes, and a projection
// of the result (keras/src/layers/attention/).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/attention_parts.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kMostHeads = int64_t{1} << 20;

// The configuration of either class.
struct HeadsConfig {
  int64_t heads = 1, key_heads = 1, width = 1, value_width = 1;
  std::vector<int64_t> output;               // the shape of the result's last axes; empty: that of the query
  std::optional<std::vector<int64_t>> axes;  // attention_axes, as in the file
  int64_t window = 0;
  double dropout = 0;
  bool bias = true, gate = false;
  // GroupQueryAttention. MultiHeadAttention removes the masks of its inputs, and reads the query's own mask whatever
  // the call gives.
  bool grouped = false;
  WeightConfig kernel_weight, bias_weight;
  std::string prefix, gate_prefix;  // of the sublayers' groups in the file
};

std::vector<int64_t> integers(Config& c, const std::string& key, int64_t least, int64_t most) {
  std::vector<int64_t> list;
  const Json* value = c.value(key);
  if (!value) return list;
  for (const Json& one : value->is_array() ? *value : Json::array({*value})) {
    const auto n = as_integer(one);
    if (!n || *n < least || *n > most) {
      c.issues().reject(
          fmt::format("{}: '{}' must be integers from {} to {}, got {}", c.where(), key, least, most, shown(*value)));
      return {};
    }
    list.push_back(*n);
  }
  return list;
}

void read_common(Config& c, HeadsConfig& made) {
  made.dropout = read_attention_dropout(c);
  made.bias = c.flag("use_bias", true);
  made.gate = c.flag("use_gate", false);
  if (!c.is_null("sliding_window") && c.value("sliding_window"))
    made.window = c.integer("sliding_window", 1, int64_t{1} << 31);
  made.kernel_weight = read_weight(c, "kernel", "glorot_uniform");
  made.bias_weight = read_weight(c, "bias", "zeros");
  // Keras gives it to each projection.
  if (const Json* penalty = c.value("activity_regularizer"))
    c.issues().unknown(fmt::format("{}: activity_regularizer={}", c.where(), shown(*penalty)));
  c.only("flash_attention", {false});
}

HeadsConfig read_multi_head(Config& c) {
  HeadsConfig made;
  made.heads = made.key_heads = c.integer("num_heads", 1, kMostHeads);
  made.width = c.integer("key_dim", 1, kMostHeads);
  made.value_width = c.is_null("value_dim") ? made.width : c.integer("value_dim", 1, kMostHeads, made.width);
  made.output = integers(c, "output_shape", 1, kMostElements);
  if (const auto axes = integers(c, "attention_axes", -64, 64); !axes.empty()) made.axes = axes;
  made.gate_prefix = "_";
  read_common(c, made);
  return made;
}

HeadsConfig read_grouped(Config& c) {
  HeadsConfig made;
  made.heads = c.integer("num_query_heads", 1, kMostHeads);
  made.key_heads = c.integer("num_key_value_heads", 1, kMostHeads);
  made.width = made.value_width = c.integer("head_dim", 1, kMostHeads);
  if (made.heads % made.key_heads != 0)
    c.issues().reject(
        fmt::format("{}: {} heads of keys do not divide {} heads of queries", c.where(), made.key_heads, made.heads));
  made.grouped = true;
  made.prefix = made.gate_prefix = "_";
  read_common(c, made);
  return made;
}

// Which axes of [N,...,C] are attended over, from 1; nullopt if an axis is not one of them.
std::optional<std::vector<size_t>> attention_axes(const HeadsConfig& config, size_t rank) {
  std::vector<size_t> axes;
  if (!config.axes) {
    for (size_t d = 1; d + 1 < rank; ++d) axes.push_back(d);
    return axes;
  }
  for (int64_t axis : *config.axes) {
    const int64_t at = axis < 0 ? static_cast<int64_t>(rank) + axis : axis;
    if (at < 1 || at + 1 >= static_cast<int64_t>(rank)) return std::nullopt;
    axes.push_back(static_cast<size_t>(at));
  }
  std::vector<size_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return std::nullopt;
  return axes;
}

// Keras counts the fans of a projection's kernel by its axes.
Json with_axes(const Json& initializer, int64_t inputs, int64_t outputs) {
  KerasObject object = keras_object(initializer);
  if (object.name.empty() || object.custom || !object.config.is_object()) return initializer;
  Json in = Json::array(), out = Json::array();
  for (int64_t i = 0; i < inputs; ++i) in.push_back(i);
  for (int64_t i = 0; i < outputs; ++i) out.push_back(inputs + i);
  object.config["input_axes"] = in;
  object.config["output_axes"] = out;
  return Json{{"class_name", object.name}, {"config", object.config}};
}

// Appends the weights of one projection, whose kernel sums over its first `inputs` axes.
Status add_projection(const HeadsConfig& config, const std::string& name, const std::string& group,
                      std::vector<int64_t> kernel, int64_t inputs, const std::string& where, LayerShape& shape) {
  std::vector<int64_t> bias(kernel.begin() + inputs, kernel.end());
  WeightConfig with = config.kernel_weight;
  with.initializer = with_axes(with.initializer, inputs, static_cast<int64_t>(kernel.size()) - inputs);
  PLIMSOLL_ASSIGN(Shape dims, checked_shape(std::move(kernel), where + ": " + name));
  shape.weights.push_back(with.spec(name + "/kernel", std::move(dims)));
  shape.weights.back().path = group + "/" + vars_path(0);
  if (!config.bias) return {};
  shape.weights.push_back(config.bias_weight.spec(name + "/bias", Shape(std::move(bias))));
  shape.weights.back().path = group + "/" + vars_path(1);
  return {};
}

// The places of the inputs of a call, checked against each other.
struct HeadsShape {
  std::vector<size_t> axes;  // attended, in [N,...,C]
  int64_t queries = 1, keys = 1;
};

Result<HeadsShape> check_inputs(const HeadsConfig& config, const AttentionArguments& call, std::span<const Shape> in,
                                const std::string& where) {
  const Shape &q = in[call.query], &v = in[call.value], &k = in[call.keys()];
  const auto axes = attention_axes(config, q.rank() + 1);
  HeadsShape made;
  bool fits = q.rank() >= 2 && axes && v.rank() == q.rank() && k.rank() == q.rank();
  if (config.grouped) fits = fits && q.rank() == 2 && q.back() == v.back();
  for (size_t d = 0; fits && d + 1 < q.rank(); ++d) {
    const bool attended = std::find(axes->begin(), axes->end(), d + 1) != axes->end();
    fits = v[d] == k[d] && (attended || q[d] == v[d]);
    if (!attended) continue;
    made.queries *= q[d];
    made.keys *= v[d];
  }
  if (!fits)
    return fail(ErrorCode::kBadGeometry, fmt::format("{}: query [{}], key [{}] and value [{}] do not fit together",
                                                     where, to_text(q), to_text(k), to_text(v)));
  made.axes = *axes;
  return made;
}

class HeadsBuilder {
 public:
  HeadsBuilder(const HeadsConfig& config, const AttentionArguments& arguments, const BuildCall& call)
      : config_(config), arguments_(arguments), call_(call) {}

  LayerValues run() {
    const ValueId query = call_.inputs[arguments_.query];
    std::vector<int64_t> heads = dims(query);
    heads.back() = config_.heads;
    const ValueId q = projected(query, 1), k = projected(call_.inputs[arguments_.keys()], 1);
    const ValueId gate = config_.gate ? call_.add("sigmoid", {projected(query, 1)}) : kNone;
    const ValueId v = projected(call_.inputs[arguments_.value], 1);
    const size_t rank = dims(query).size();
    const std::vector<size_t> axes = *attention_axes(config_, rank);
    const Visibility visible = visibility(dims(query)[1], dims(call_.inputs[arguments_.value])[1]);
    const double scale = 1 / std::sqrt(static_cast<double>(config_.width));
    const ValueId q4 = as_sequences(q, axes), k4 = as_sequences(k, axes), v4 = as_sequences(v, axes);
    ValueId made = kNone, weights = kNone;
    // With dropout Keras computes masked weights in another way, in inference too.
    const bool in_graph = config_.dropout > 0 && (call_.training || visible.hides_rows());
    if (arguments_.scores || in_graph)
      std::tie(made, weights) = attend_with_weights(call_, q4, k4, v4, scale, visible, config_.dropout);
    else
      made = attend(call_, q4, k4, v4, scale, visible);
    std::vector<int64_t> wide = heads;
    wide.push_back(config_.value_width);
    made = from_sequences(made, axes, wide);
    if (gate != kNone) made = call_.add("multiply", {made, gate});
    const ValueId output = projected(made, 2);
    if (!arguments_.scores) return output;
    return LayerValues(std::vector<ValueId>{output, weights});
  }

 private:
  std::vector<int64_t> dims(ValueId x) const { return call_.shape(x).dims; }

  // The product of x [...,inputs] with the next kernel [inputs,outputs], and its bias. `inputs`: the number of axes
  // that are summed over.
  ValueId projected(ValueId x, size_t inputs) {
    const Expression kernel(call_.b, call_.weights[next_++]);
    const std::vector<int64_t> from = dims(x), shape = kernel.shape().dims;
    int64_t width = 1;
    for (size_t i = 0; i < inputs; ++i) width *= shape[i];
    const int64_t outputs = kernel.shape().elements() / width, rows = Shape(from).elements() / width;
    ValueId made = call_.add(
        "matmul", {Expression(call_.b, x).reshaped({rows, width}).id(), kernel.reshaped({width, outputs}).id()});
    if (config_.bias)
      made = call_.add("bias_add", {made, Expression(call_.b, call_.weights[next_++]).reshaped({outputs}).id()});
    std::vector<int64_t> to(from.begin(), from.end() - static_cast<int64_t>(inputs));
    to.insert(to.end(), shape.begin() + static_cast<int64_t>(inputs), shape.end());
    return Expression(call_.b, made).reshaped(std::move(to)).id();
  }

  // The axes of [N,...,H,D]: those that are not attended over, those that are, the heads and the width.
  static std::vector<int64_t> order(size_t rank, const std::vector<size_t>& axes) {
    std::vector<int64_t> perm;
    for (size_t d = 0; d + 2 < rank; ++d)
      if (std::find(axes.begin(), axes.end(), d) == axes.end()) perm.push_back(static_cast<int64_t>(d));
    for (size_t d : axes) perm.push_back(static_cast<int64_t>(d));
    perm.push_back(static_cast<int64_t>(rank) - 2);
    perm.push_back(static_cast<int64_t>(rank) - 1);
    return perm;
  }

  ValueId transposed(ValueId x, const std::vector<int64_t>& perm) const {
    return std::is_sorted(perm.begin(), perm.end()) ? x : call_.add("transpose", {x}, {{"perm", perm}});
  }

  // [N,...,H,D] as [samples, positions, H, D].
  ValueId as_sequences(ValueId x, const std::vector<size_t>& axes) const {
    const std::vector<int64_t> d = dims(x);
    int64_t positions = 1;
    for (size_t axis : axes) positions *= d[axis];
    const int64_t heads = d[d.size() - 2], width = d.back();
    const ValueId made = transposed(x, order(d.size(), axes));
    return Expression(call_.b, made)
        .reshaped({Shape(d).elements() / (positions * heads * width), positions, heads, width})
        .id();
  }

  // The inverse, for a tensor [N,...,H,V].
  ValueId from_sequences(ValueId x, const std::vector<size_t>& axes, const std::vector<int64_t>& to) const {
    const std::vector<int64_t> perm = order(to.size(), axes);
    std::vector<int64_t> moved, back(perm.size());
    for (size_t i = 0; i < perm.size(); ++i) {
      moved.push_back(to[static_cast<size_t>(perm[i])]);
      back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
    }
    return transposed(Expression(call_.b, x).reshaped(std::move(moved)).id(), back);
  }

  ValueId mask(const GivenMask& given, size_t input) const {
    return given.tensor ? as_mask(call_, *given.tensor) : call_.masks[input];
  }

  Visibility visibility(int64_t queries, int64_t keys) const {
    Visibility made;
    made.causal = arguments_.causal;
    made.window = config_.window;
    made.queries = config_.grouped ? mask(arguments_.query_mask, arguments_.query) : call_.masks[arguments_.query];
    made.keys = mask(arguments_.value_mask, arguments_.value);
    if (arguments_.key)
      made.keys = both(call_, made.keys, mask(arguments_.key_mask, *arguments_.key));
    else if (arguments_.key_mask.tensor)
      made.keys = both(call_, made.keys, as_mask(call_, *arguments_.key_mask.tensor));
    made.pairs = pair_mask(call_, arguments_.attention_mask, queries, keys);
    return made;
  }

  const HeadsConfig& config_;
  const AttentionArguments& arguments_;
  const BuildCall& call_;
  size_t next_ = 0;  // of the weights
};

// Masks that the call is given must have the sizes of the positions.
Status check_given_masks(const HeadsConfig& config, const AttentionArguments& call, const HeadsShape& heads,
                         std::span<const Shape> in, const std::string& where) {
  const auto wrong = [&](const std::string& why) {
    return fail(ErrorCode::kBadGeometry, fmt::format("{}: {}", where, why));
  };
  const auto check = [&](const GivenMask& mask, const char* name, int64_t positions) -> Status {
    if (!mask.tensor || in[*mask.tensor] == Shape{positions}) return {};
    return wrong(fmt::format("a {} [{}] for {} positions", name, to_text(in[*mask.tensor]), positions));
  };
  if (config.grouped) PLIMSOLL_TRY(check(call.query_mask, "query_mask", heads.queries));
  PLIMSOLL_TRY(check(call.value_mask, "value_mask", heads.keys));
  PLIMSOLL_TRY(check(call.key_mask, "key_mask", heads.keys));
  if (!call.attention_mask) return {};
  Shape mask = call.attention_mask.tensor ? with_batch(-1, in[*call.attention_mask.tensor])
                                          : call.attention_mask.constant->shape;
  const std::string why =
      check_pair_mask(mask, call.attention_mask.tensor.has_value(), config.heads, heads.queries, heads.keys);
  return why.empty() ? Status{} : wrong(why);
}

Result<LayerShape> shape_of(const HeadsConfig& config, const AttentionArguments& call, std::span<const Shape> in,
                            Issues& issues, const std::string& where) {
  PLIMSOLL_ASSIGN(const HeadsShape heads, check_inputs(config, call, in, where));
  const Shape& query = in[call.query];
  if (query.rank() != 2) {
    // Keras builds masks for sequences only.
    if (call.causal || config.window > 0 || call.attention_mask || call.value_mask || call.key_mask)
      issues.unknown(fmt::format("{}: a mask for inputs of {} dimensions", where, query.rank() + 1));
    if (call.scores) issues.unknown(fmt::format("{}: scores for inputs of {} dimensions", where, query.rank() + 1));
  } else {
    PLIMSOLL_TRY(check_given_masks(config, call, heads, in, where));
  }
  std::vector<int64_t> output(query.dims.begin(), query.dims.end() - 1), last = config.output;
  if (last.empty()) last = {query.back()};
  output.insert(output.end(), last.begin(), last.end());
  PLIMSOLL_ASSIGN(LayerShape shape, checked_shape(std::move(output), where));
  if (call.scores) {
    PLIMSOLL_ASSIGN(Shape scores, checked_shape({config.heads, heads.queries, heads.keys}, where));
    shape.outputs.push_back(std::move(scores));
  }
  const std::string& p = config.prefix;
  const int64_t key_width = in[call.keys()].back(), value_width = in[call.value].back();
  PLIMSOLL_TRY(
      add_projection(config, "query", p + "query_dense", {query.back(), config.heads, config.width}, 1, where, shape));
  PLIMSOLL_TRY(
      add_projection(config, "key", p + "key_dense", {key_width, config.key_heads, config.width}, 1, where, shape));
  if (config.gate)
    PLIMSOLL_TRY(add_projection(config, "gate", config.gate_prefix + "gate_dense",
                                {query.back(), config.heads, config.value_width}, 1, where, shape));
  PLIMSOLL_TRY(add_projection(config, "value", p + "value_dense", {value_width, config.key_heads, config.value_width},
                              1, where, shape));
  std::vector<int64_t> kernel{config.heads, config.value_width};
  kernel.insert(kernel.end(), last.begin(), last.end());
  PLIMSOLL_TRY(add_projection(config, "attention_output", p + "output_dense", std::move(kernel), 2, where, shape));
  return shape;
}

Layer attention_of_heads(Config& c, const HeadsConfig& config) {
  const AttentionArguments call = read_attention_arguments(c);
  const std::string where = c.where();
  Layer layer;
  layer.least_inputs = layer.most_inputs = c.call().tensors.size();
  layer.outputs = call.scores ? 2 : 1;
  layer.masking = Masking::kPasses;
  layer.passed_mask = call.query;
  layer.draws = config.dropout > 0;
  if (!config.grouped) {
    layer.unmasks = {call.query, call.value};
    if (call.key) layer.unmasks.push_back(*call.key);
  }
  layer.shape = [=](std::span<const Shape> in, Issues& issues) { return shape_of(config, call, in, issues, where); };
  layer.build = [=](const BuildCall& build) { return HeadsBuilder(config, call, build).run(); };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"MultiHeadAttention", [](Config& c) { return attention_of_heads(c, read_multi_head(c)); }},
    LayerClass{"GroupQueryAttention", [](Config& c) { return attention_of_heads(c, read_grouped(c)); }},
};

}  // namespace

std::span<const LayerClass> attention_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
