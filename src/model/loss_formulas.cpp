#include "model/loss_formulas.h"

#include <algorithm>
#include <cmath>

namespace plimsoll::engine {

std::vector<int64_t> loss_axes(const Loss& loss, size_t rank) {
  std::vector<int64_t> list;
  if (!loss.axes)
    for (size_t i = 0; i < rank; ++i) list.push_back(static_cast<int64_t>(i));
  else
    for (const int64_t axis : *loss.axes) list.push_back(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
  return list;
}

namespace {

constexpr double kEpsilon = 1e-7;  // keras.config.epsilon()

Expression flat(const Expression& x) {
  return x.reshaped({x.shape().elements()});
}

Expression last_sum(const Expression& x) {
  return flat(sum(x, {static_cast<int64_t>(x.shape().rank()) - 1}));
}
Expression last_mean(const Expression& x) {
  return flat(mean(x, {static_cast<int64_t>(x.shape().rank()) - 1}));
}
Expression axis_mean(const LossCall& c, const Expression& x) {
  return flat(mean(x, loss_axes(c.loss, x.shape().rank())));
}

// Returns the input of the softmax or sigmoid that produced the value, or nothing.
std::optional<Expression> logits_behind(const Expression& value) {
  const Graph& graph = value.builder().graph();
  const NodeId producer = graph.value(value.id()).producer;
  if (producer == kNone) return std::nullopt;
  const Node& node = graph.node(producer);
  if (node.op != "softmax" && node.op != "sigmoid") return std::nullopt;
  return Expression(value.builder(), node.inputs[0]);
}

// Moves the loss's axis to the end. The ops of cross-entropies sum over the last axis.
Expression axis_last(const LossCall& c, const Expression& x) {
  const auto rank = static_cast<int64_t>(x.shape().rank());
  const int64_t axis = loss_axes(c.loss, x.shape().rank())[0];
  if (axis == rank - 1) return x;
  std::vector<int64_t> order;
  for (int64_t i = 0; i < rank; ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  return x.apply("transpose", {{"perm", std::move(order)}});
}

bool axis_is_last(const LossCall& c) {
  const auto rank = static_cast<int64_t>(c.x.shape().rank());
  return loss_axes(c.loss, c.x.shape().rank())[0] == rank - 1;
}

Expression smoothed(const LossCall& c, double towards) {
  const double smoothing = c.number("label_smoothing");
  return smoothing == 0 ? c.y : c.y.affine(1 - smoothing, smoothing * towards);
}

Expression focal_power(const Expression& x, double gamma) {
  return gamma == 0 ? x.filled(1) : power(x, gamma);
}

// Labels of 0 and 1 become -1 and 1, if the batch has no others.
Expression hinge_labels(const Expression& y) {
  const Expression others = call("square", y) - y;  // 0 only for 0 and 1
  const Expression binary = equal(sum_of_squares(others), 0);
  return y + (y - 1) * binary;
}
Expression hinge_margins(const LossCall& c) {
  return maximum(1 - hinge_labels(c.y) * c.x, 0);
}
Expression unit(const Expression& x, const std::vector<int64_t>& axes) {
  return x * minimum(call("rsqrt", sum(call("square", x), axes)), 1 / kEpsilon);
}

// A loss over the whole batch is the same number for each sample, so that sample weights multiply it as in Keras.
Expression per_sample(const LossCall& c, const Expression& value) {
  const std::vector<int64_t> axes = loss_axes(c.loss, c.x.shape().rank());
  if (std::find(axes.begin(), axes.end(), 0) == axes.end()) return flat(value);
  std::vector<int64_t> rest;
  for (size_t i = 0; i < value.shape().rank(); ++i) rest.push_back(static_cast<int64_t>(i));
  return flat(mean(value, rest)).broadcast(Shape{c.x.shape()[0]});
}

}  // namespace

Expression losses::sparse_crossentropy(const LossCall& c) {
  // A label that is ignored becomes 0. Keras then has no logits, because it also replaces the prediction.
  Expression labels = c.y;
  const bool ignores = c.loss.ignored_class.has_value();
  if (ignores) {
    const Expression y = c.y.cast(c.x.type().dtype);
    const auto ignored = static_cast<double>(*c.loss.ignored_class);
    labels = (y * (1 - equal(y, ignored))).cast(DType::kInt32);
  }
  const auto logits = ignores ? std::nullopt : logits_behind(c.prediction);
  const bool from_logits = c.flag("from_logits") || logits;
  return logits.value_or(c.prediction)
      .apply(from_logits ? "softmax_cross_entropy" : "cross_entropy", labels,
             {{"sparse", true}, {"label_smoothing", 0.0}});
}

Expression losses::categorical_crossentropy(const LossCall& c) {
  const auto logits = logits_behind(c.prediction);
  const bool from_logits = c.flag("from_logits") || logits;
  const char* op = from_logits ? "softmax_cross_entropy" : "cross_entropy";
  const double smoothing = c.number("label_smoothing");
  const Expression x = logits.value_or(c.prediction);
  if (axis_is_last(c)) return x.apply(op, c.y, {{"sparse", false}, {"label_smoothing", smoothing}});
  // Keras divides the smoothing by the size of the last axis, whatever `axis` is.
  const auto classes = static_cast<double>(c.y.shape().back());
  const Expression y = smoothing == 0 ? c.y : c.y.affine(1 - smoothing, smoothing / classes);
  return axis_last(c, x).apply(op, axis_last(c, y), {{"sparse", false}, {"label_smoothing", 0.0}});
}

Expression losses::binary_crossentropy(const LossCall& c) {
  const auto logits = logits_behind(c.prediction);
  const Attrs attrs = {{"from_logits", c.flag("from_logits") || logits},
                       {"label_smoothing", c.number("label_smoothing")}};
  const Expression x = logits.value_or(c.prediction);
  return axis_last(c, x).apply("binary_cross_entropy", axis_last(c, c.y), attrs);
}

Expression losses::squared_error(const LossCall& c) {
  return c.prediction.apply("squared_error", c.y);
}
Expression losses::absolute_error(const LossCall& c) {
  return c.prediction.apply("absolute_error", c.y);
}

Expression losses::binary_focal(const LossCall& c) {
  const Expression y = smoothed(c, 0.5);
  const auto behind = logits_behind(c.prediction);
  const DType dtype = c.x.type().dtype;
  const std::optional<Expression> logits = c.flag("from_logits") ? c.x
                                           : behind              ? std::optional(behind->cast(dtype))
                                                                 : std::nullopt;
  const Expression p = c.flag("from_logits") ? call("sigmoid", c.x) : c.x;
  Expression entropy;
  if (logits) {
    entropy = call("softplus", *logits) - *logits * y;
  } else {
    const Expression inside = clip(p, kEpsilon, 1 - kEpsilon);
    entropy = -(y * call("log", inside) + (1 - y) * call("log", 1 - inside));
  }
  const Expression hit = y * p + (1 - y) * (1 - p);
  Expression focal = focal_power(1 - hit, c.number("gamma")) * entropy;
  const double alpha = c.number("alpha");
  if (c.flag("apply_class_balancing")) focal = (y * alpha + (1 - y) * (1 - alpha)) * focal;
  return axis_mean(c, focal);
}

Expression losses::categorical_focal(const LossCall& c) {
  const Expression y = smoothed(c, 1 / static_cast<double>(c.y.shape().back()));
  const std::vector<int64_t> axes = loss_axes(c.loss, c.x.shape().rank());
  Expression p = c.x;
  if (c.flag("from_logits")) {
    // The op works on the last axis.
    const Expression moved = axis_last(c, c.x).apply("softmax");
    const Expression focal_y = axis_last(c, y);
    const Expression inside = clip(moved, kEpsilon, 1 - kEpsilon);
    const Expression entropy = -(focal_y * call("log", inside));
    return last_sum(focal_power(1 - inside, c.number("gamma")) * c.number("alpha") * entropy);
  }
  p = clip(p / sum(p, axes), kEpsilon, 1 - kEpsilon);
  const Expression entropy = -(y * call("log", p));
  return flat(sum(focal_power(1 - p, c.number("gamma")) * c.number("alpha") * entropy, axes));
}

// (1 - p^q) / q, where p is the probability of the true class.
Expression losses::generalized_crossentropy(const LossCall& c) {
  const Expression labels =
      c.y.apply("one_hot", {{"depth", c.x.shape().back()}, {"dtype", std::string(name_of(c.x.type().dtype))}});
  const double q = c.number("q");
  const Expression p = last_sum(c.x * labels.reshaped(c.x.shape().dims));
  return (1 - power(p, q)) / q;
}

Expression losses::hinge(const LossCall& c) {
  return last_mean(hinge_margins(c));
}
Expression losses::squared_hinge(const LossCall& c) {
  return last_mean(call("square", hinge_margins(c)));
}
Expression losses::categorical_hinge(const LossCall& c) {
  const auto last = static_cast<int64_t>(c.x.shape().rank()) - 1;
  const Expression other = ((1 - c.y) * c.x).apply("reduce_max", {{"axes", std::vector<int64_t>{last}}});
  return maximum(flat(other) - last_sum(c.y * c.x) + 1, 0);
}

Expression losses::percentage_error(const LossCall& c) {
  return last_mean(call("abs", (c.y - c.x) / maximum(call("abs", c.y), kEpsilon))) * 100;
}

Expression losses::squared_log_error(const LossCall& c) {
  const auto log_of = [](const Expression& v) { return call("log", maximum(v, kEpsilon) + 1); };
  return last_mean(call("square", log_of(c.x) - log_of(c.y)));
}

Expression losses::cosine_similarity(const LossCall& c) {
  const std::vector<int64_t> axes = loss_axes(c.loss, c.x.shape().rank());
  return -flat(sum(unit(c.y, axes) * unit(c.x, axes), axes));
}

Expression losses::huber(const LossCall& c) {
  const double delta = c.number("delta");
  const Expression error = c.x - c.y, size = call("abs", error);
  const Expression small = size.apply("less_equal", size.filled(delta));
  return last_mean(select(small, call("square", error) * 0.5, size * delta - 0.5 * delta * delta));
}

Expression losses::log_cosh(const LossCall& c) {
  const Expression error = c.x - c.y;
  return last_mean(error + call("softplus", error * -2) - std::log(2.0));
}

Expression losses::kl_divergence(const LossCall& c) {
  const Expression y = clip(c.y, kEpsilon, 1), x = clip(c.x, kEpsilon, 1);
  return last_sum(y * call("log", y / x));
}

Expression losses::poisson(const LossCall& c) {
  return last_mean(c.x - c.y * call("log", c.x + kEpsilon));
}

Expression losses::dice(const LossCall& c) {
  const std::vector<int64_t> axes = loss_axes(c.loss, c.x.shape().rank());
  const Expression both = sum(c.y * c.x, axes);
  return per_sample(c, 1 - both * 2 / (sum(c.y, axes) + sum(c.x, axes) + kEpsilon));
}

Expression losses::tversky(const LossCall& c) {
  const std::vector<int64_t> axes = loss_axes(c.loss, c.x.shape().rank());
  const Expression both = sum(c.y * c.x, axes), missed = sum((1 - c.x) * c.y, axes), wrong = sum(c.x * (1 - c.y), axes);
  return per_sample(c, 1 - both / (both + missed * c.number("alpha") + wrong * c.number("beta") + kEpsilon));
}

// Keras passes over rows without a positive or without a negative partner: their loss is 0.
Expression losses::circle(const LossCall& c) {
  GraphBuilder& b = c.x.builder();
  const DType dtype = c.x.type().dtype;
  const int64_t n = c.x.shape()[0];
  const double gamma = c.number("gamma"), margin = c.number("margin");
  const Expression products = c.x.apply("matmul", c.x, {{"transpose_a", false}, {"transpose_b", true}});
  const Expression distance = maximum(1 - products, 0);
  const Expression labels = c.y.cast(dtype);
  Expression same = call("equal", labels.reshaped({n, 1}), labels.reshaped({1, n}));
  const Expression other = 1 - same;
  if (c.flag("remove_diagonal")) {
    const auto index = [&](int64_t axis) {
      return Expression(
          b, b.add1("iota", {},
                    {{"shape", std::vector<int64_t>{n, n}}, {"axis", axis}, {"dtype", std::string(name_of(dtype))}}));
    };
    same = same * (1 - call("equal", index(0), index(1)));
  }
  const Expression pull = maximum((distance + margin) * same, 0) * (margin - distance) * -gamma;
  const Expression push = maximum((1 + margin - distance) * other, 0) * (1 - margin - distance) * gamma;
  // The logarithm of the sum of exponentials over the chosen elements of a row.
  constexpr double kNothing = -1e30;
  const auto log_sum = [&](const Expression& chosen, const Expression& values) {
    const Expression shown = select(chosen, values, values.filled(kNothing));
    const Expression most = shown.apply("reduce_max", {{"axes", std::vector<int64_t>{1}}});
    const Expression total = sum(call("exp", shown - most) * chosen, {1});
    const Expression any = greater(total, 0);
    return select(any, call("log", select(any, total, total.filled(1))) + most, total.filled(kNothing));
  };
  return flat(call("softplus", log_sum(same, pull) + log_sum(other, push)));
}

// Logits [N,T,K] and labels [N,T]. Keras takes the prediction as logits, whatever the model's last activation is.
Expression losses::ctc(const LossCall& c) {
  return c.x.apply("ctc", c.y);
}

}  // namespace plimsoll::engine
