// Attention and AdditiveAttention: one head, without projections (keras/src/layers/attention/attention.py).
#include <fmt/format.h>

#include <array>

#include "model/attention_parts.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

constexpr double kPadding = 1e9, kHalfPadding = 65504;  // subtracted from scores that are masked

struct DotConfig {
  bool additive = false;  // sum(tanh(query + key)) instead of the product
  bool scale = false;
  bool weight = false;  // score_mode "concat": a weight of the sum
  double dropout = 0;
  bool scores = false, causal = false;
};

// [N,Tq,D] and [N,Tk,D] as tanh(q + k) [N,Tq,Tk,D], times a scale.
Expression sums(const Expression& q, const Expression& k) {
  const Shape a = q.shape(), b = k.shape();
  const Shape all{a[0], a[1], b[1], a[2]};
  return q.reshaped({a[0], a[1], 1, a[2]}).broadcast(all) + k.reshaped({a[0], 1, b[1], a[2]}).broadcast(all);
}

Expression over_width(const Expression& x) {
  const std::vector<int64_t> d = x.shape().dims;
  return sum(x, {3}).reshaped({d[0], d[1], d[2]});
}

class DotBuilder {
 public:
  DotBuilder(const DotConfig& config, const BuildCall& call)
      : config_(config),
        call_(call),
        q_(call.b, call.inputs[0]),
        v_(call.b, call.inputs[1]),
        k_(call.b, call.inputs[call.inputs.size() > 2 ? 2 : 1]) {}

  LayerValues run() {
    const bool masked = call_.masks[1] != kNone;
    const bool drops = config_.dropout > 0 && call_.training;
    // A query that sees no position is another matter here, so masks need the scores.
    if (!config_.additive && !config_.weight && !masked && !config_.scores && !drops) return unmasked(fused());
    const Expression scores = hidden(all_scores());
    const ValueId weights = call_.add("softmax", {scores.id()});
    const Expression made =
        Expression(call_.b, dropped_weights(call_, weights, config_.dropout)).apply("batch_matmul", v_);
    if (!config_.scores) return unmasked(made);
    return LayerValues(std::vector<ValueId>{unmasked(made), weights});
  }

 private:
  Expression weight(size_t i) const { return {call_.b, call_.weights[i]}; }

  Expression scaled(const Expression& x) const {
    return config_.scale && !config_.additive ? x.apply("scale", weight(0)) : x;
  }

  Expression fused() const {
    const auto with_head = [](const Expression& x) {
      const Shape d = x.shape();
      return x.reshaped({d[0], d[1], 1, d[2]}).id();
    };
    Visibility visible;
    visible.causal = config_.causal;
    const Expression made(call_.b, attend(call_, with_head(scaled(q_)), with_head(k_), with_head(v_), 1, visible));
    return made.reshaped({q_.shape()[0], q_.shape()[1], v_.shape()[2]});
  }

  Expression all_scores() const {
    if (config_.additive) {
      const Expression tanh = call("tanh", sums(q_, k_));
      return over_width(config_.scale ? tanh * weight(0).broadcast(tanh.shape()) : tanh);
    }
    if (config_.weight) {
      const Expression both = sums(q_, k_);
      return over_width(call("tanh", config_.scale ? both.apply("scale", weight(0)) : both))
          .apply("scale", weight(config_.scale ? 1 : 0));
    }
    return scaled(q_.apply("batch_matmul", k_, {{"transpose_b", true}}));
  }

  Expression hidden(const Expression& scores) const {
    const Shape d = scores.shape();
    Visibility visible;
    visible.keys = call_.masks[1];
    visible.causal = config_.causal;
    if (!visible.any()) return scores;
    const DType dtype = scores.type().dtype;
    const Expression pairs = visible_pairs(call_, visible, d[1], d[2]).cast(dtype);
    const Expression seen = pairs.reshaped({pairs.shape()[0], pairs.shape()[2], d[2]}).broadcast(d);
    return select(seen, scores, scores - (dtype == DType::kFloat16 ? kHalfPadding : kPadding));
  }

  // Masked queries are 0.
  ValueId unmasked(const Expression& made) const {
    if (call_.masks[0] == kNone) return made.id();
    const Shape d = made.shape();
    const Expression counts = Expression(call_.b, call_.masks[0]).cast(made.type().dtype).reshaped({d[0], d[1], 1});
    return select(counts.broadcast(d), made, made.filled(0)).id();
  }

  const DotConfig& config_;
  const BuildCall& call_;
  const Expression q_, v_, k_;
};

Result<LayerShape> dot_shape(const DotConfig& config, std::span<const Shape> in, const std::string& where) {
  const Shape &q = in[0], &v = in[1], &k = in.back();
  if (q.rank() != 2 || v.rank() != 2 || k.rank() != 2 || q[1] != k[1] || k[0] != v[0])
    return fail(ErrorCode::kBadGeometry, fmt::format("{}: query [{}], value [{}] and key [{}] do not fit together",
                                                     where, to_text(q), to_text(v), to_text(k)));
  LayerShape shape(Shape{q[0], v[1]});
  if (config.scores) shape.outputs.push_back(Shape{q[0], k[0]});
  WeightConfig ones;
  ones.initializer = config.additive ? "glorot_uniform" : "ones";
  if (config.scale) shape.weights.push_back(ones.spec("scale", config.additive ? Shape{q[1]} : Shape{}));
  if (config.weight) shape.weights.push_back(ones.spec("concat_score_weight", Shape{}));
  return shape;
}

Layer dot_attention(Config& c, bool additive) {
  DotConfig config;
  config.additive = additive;
  config.scale = c.flag("use_scale", additive);
  config.weight = !additive && c.choice("score_mode", {"dot", "concat"}, "dot") == "concat";
  config.dropout = read_attention_dropout(c);
  Arguments arguments(c.call(), c.where(), c.issues());
  const Json* inputs = arguments.value("inputs", 0);
  bool listed = inputs && inputs->is_array() && inputs->size() == c.call().tensors.size();
  for (size_t i = 0; listed && i < inputs->size(); ++i) listed = arguments.tensor((*inputs)[i]) == i;
  if (!listed) c.issues().unknown(fmt::format("{}: called with something else than a list of tensors", c.where()));
  config.scores = call_flag(c, arguments, "return_attention_scores");
  config.causal = call_flag(c, arguments, "use_causal_mask");
  arguments.finish();
  const std::string where = c.where();
  Layer layer;
  layer.least_inputs = 2;
  layer.most_inputs = 3;
  layer.outputs = config.scores ? 2 : 1;
  layer.masking = Masking::kPasses;
  layer.draws = config.dropout > 0;
  layer.shape = [=](std::span<const Shape> in, Issues&) { return dot_shape(config, in, where); };
  layer.build = [=](const BuildCall& call) { return DotBuilder(config, call).run(); };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Attention", [](Config& c) { return dot_attention(c, false); }},
    LayerClass{"AdditiveAttention", [](Config& c) { return dot_attention(c, true); }},
};

}  // namespace

std::span<const LayerClass> dot_attention_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
