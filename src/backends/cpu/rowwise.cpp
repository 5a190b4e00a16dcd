// Recipes for ops on independent rows: softmax, layer normalisation, losses, match.
#include <functional>
#include <map>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kGrain = 8192;  // fewer elements are not worth another thread
constexpr double kEfficiency = 0.1;

// The parameters a row function needs from its node.
struct Rows {
  int64_t rows, k;
  Attrs attrs;
  float smoothing() const { return static_cast<float>(attrs.real_or("label_smoothing", 0)); }
  bool sparse() const { return attrs.flag("sparse"); }
};

using RowRange = std::function<void(int64_t begin, int64_t end)>;
using Start = RowRange (*)(const Rows&, const BoundNode&);

const float* floats(const BoundNode& node, size_t i) {
  return input<const float>(node, i);
}

RowRange start_softmax(const Rows& r, const BoundNode& node) {
  return [k = r.k, x = floats(node, 0), y = output<float>(node, 0)](int64_t begin, int64_t end) {
    simd().softmax(x + begin * k, y + begin * k, end - begin, k);
  };
}

RowRange start_softmax_grad(const Rows& r, const BoundNode& node) {
  return [k = r.k, dy = floats(node, 0), y = floats(node, 1), dx = output<float>(node, 0)](int64_t begin, int64_t end) {
    simd().softmax_grad(dy + begin * k, y + begin * k, dx + begin * k, end - begin, k);
  };
}

RowRange start_layer_norm(const Rows& r, const BoundNode& node) {
  const bool scale = r.attrs.flag("scale"), center = r.attrs.flag("center");
  const float* gamma = scale ? floats(node, 1) : nullptr;
  const float* beta = center ? floats(node, scale ? 2 : 1) : nullptr;
  return [=, k = r.k, epsilon = r.attrs.real("epsilon"), rms = r.attrs.flag("rms"), x = floats(node, 0),
          y = output<float>(node, 0), mean = output<float>(node, 1),
          rstd = output<float>(node, 2)](int64_t begin, int64_t end) {
    simd().layer_norm(x + begin * k, gamma, beta, y + begin * k, mean + begin, rstd + begin, end - begin, k, epsilon,
                      rms);
  };
}

RowRange start_layer_norm_input_grad(const Rows& r, const BoundNode& node) {
  const float* gamma = r.attrs.flag("scale") ? floats(node, 4) : nullptr;
  return [=, k = r.k, rms = r.attrs.flag("rms"), dy = floats(node, 0), x = floats(node, 1), mean = floats(node, 2),
          rstd = floats(node, 3), dx = output<float>(node, 0)](int64_t begin, int64_t end) {
    simd().layer_norm_input_grad(dy + begin * k, x + begin * k, mean + begin, rstd + begin, gamma, dx + begin * k,
                                 end - begin, k, rms);
  };
}

// The target at input i: integer labels or probability distributions.
struct Target {
  const int32_t* label;
  const float* values;
  int64_t k;
  const int32_t* labels_from(int64_t row) const { return label == nullptr ? nullptr : label + row; }
  const float* values_from(int64_t row) const { return values == nullptr ? nullptr : values + row * k; }
};
Target target_at(const Rows& r, const BoundNode& node, size_t i) {
  if (r.sparse()) return {input<const int32_t>(node, i), nullptr, r.k};
  return {nullptr, floats(node, i), r.k};
}

RowRange start_cross_entropy(const Rows& r, const BoundNode& node) {
  const auto call = node.node.op == "cross_entropy" ? simd().cross_entropy : simd().softmax_cross_entropy;
  return [call, k = r.k, smoothing = r.smoothing(), target = target_at(r, node, 1), x = floats(node, 0),
          loss = output<float>(node, 0)](int64_t begin, int64_t end) {
    call(x + begin * k, target.labels_from(begin), target.values_from(begin), smoothing, loss + begin, end - begin, k);
  };
}

RowRange start_cross_entropy_grad(const Rows& r, const BoundNode& node) {
  const auto call =
      node.node.op == "cross_entropy_grad" ? simd().cross_entropy_grad : simd().softmax_cross_entropy_grad;
  return [call, k = r.k, smoothing = r.smoothing(), target = target_at(r, node, 2), dloss = floats(node, 0),
          x = floats(node, 1), dx = output<float>(node, 0)](int64_t begin, int64_t end) {
    call(dloss + begin, x + begin * k, target.labels_from(begin), target.values_from(begin), smoothing, dx + begin * k,
         end - begin, k);
  };
}

RowRange start_binary_cross_entropy(const Rows& r, const BoundNode& node) {
  return [k = r.k, smoothing = r.smoothing(), logits = r.attrs.flag("from_logits"), x = floats(node, 0),
          target = floats(node, 1), loss = output<float>(node, 0)](int64_t begin, int64_t end) {
    simd().binary_cross_entropy(x + begin * k, target + begin * k, logits, smoothing, loss + begin, end - begin, k);
  };
}

RowRange start_binary_cross_entropy_grad(const Rows& r, const BoundNode& node) {
  return [k = r.k, smoothing = r.smoothing(), logits = r.attrs.flag("from_logits"), dloss = floats(node, 0),
          x = floats(node, 1), target = floats(node, 2), dx = output<float>(node, 0)](int64_t begin, int64_t end) {
    simd().binary_cross_entropy_grad(dloss + begin, x + begin * k, target + begin * k, logits, smoothing,
                                     dx + begin * k, end - begin, k);
  };
}

RowRange start_error(const Rows& r, const BoundNode& node) {
  const auto call = node.node.op == "squared_error" ? simd().squared_error : simd().absolute_error;
  return [call, k = r.k, x = floats(node, 0), target = floats(node, 1), loss = output<float>(node, 0)](
             int64_t begin, int64_t end) { call(x + begin * k, target + begin * k, loss + begin, end - begin, k); };
}

RowRange start_error_grad(const Rows& r, const BoundNode& node) {
  const auto call = node.node.op == "squared_error_grad" ? simd().squared_error_grad : simd().absolute_error_grad;
  return [call, k = r.k, dloss = floats(node, 0), x = floats(node, 1), target = floats(node, 2),
          dx = output<float>(node, 0)](int64_t begin, int64_t end) {
    call(dloss + begin, x + begin * k, target + begin * k, dx + begin * k, end - begin, k);
  };
}

int64_t argmax(const float* x, int64_t k) {
  return std::max_element(x, x + k) - x;
}

RowRange start_match(const Rows& r, const BoundNode& node) {
  const std::string& kind = r.attrs.text("kind");
  const int64_t k = r.k;
  const auto* x = floats(node, 0);
  auto* y = output<float>(node, 0);
  if (kind == "sparse") {
    return [=, label = input<const int32_t>(node, 1)](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = argmax(x + i * k, k) == label[i] ? 1.0F : 0.0F;
    };
  }
  if (kind == "categorical") {
    return [=, target = floats(node, 1)](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = argmax(x + i * k, k) == argmax(target + i * k, k) ? 1.0F : 0.0F;
    };
  }
  return [=, target = floats(node, 1), threshold = r.attrs.real("threshold")](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t right = 0;
      for (int64_t j = i * k; j < (i + 1) * k; ++j) {
        right += (static_cast<double>(x[j]) > threshold ? 1.0F : 0.0F) == target[j] ? 1 : 0;
      }
      y[i] = static_cast<float>(static_cast<double>(right) / static_cast<double>(k));
    }
  };
}

struct RowOp {
  Start start;
  size_t shaped;  // index of the input whose last dimension is the row
};

const std::map<std::string, RowOp>& row_ops() {
  static const std::map<std::string, RowOp> kOps = {
      {"softmax", {start_softmax, 0}},
      {"softmax_grad", {start_softmax_grad, 0}},
      {"layer_norm", {start_layer_norm, 0}},
      {"layer_norm_input_grad", {start_layer_norm_input_grad, 0}},
      {"softmax_cross_entropy", {start_cross_entropy, 0}},
      {"cross_entropy", {start_cross_entropy, 0}},
      {"softmax_cross_entropy_grad", {start_cross_entropy_grad, 1}},
      {"cross_entropy_grad", {start_cross_entropy_grad, 1}},
      {"binary_cross_entropy", {start_binary_cross_entropy, 0}},
      {"binary_cross_entropy_grad", {start_binary_cross_entropy_grad, 1}},
      {"squared_error", {start_error, 0}},
      {"absolute_error", {start_error, 0}},
      {"squared_error_grad", {start_error_grad, 1}},
      {"absolute_error_grad", {start_error_grad, 1}},
      {"match", {start_match, 0}},
  };
  return kOps;
}

}  // namespace

Result<Recipe> row_recipe(const Problem& p) {
  const RowOp& op = row_ops().at(p.node.op);
  const Shape& shape = p.in_shape(op.shaped);
  const Rows r{shape.elements() / shape.back(), shape.back(), p.attrs()};
  const int threads = p.machine.threads;
  const double seconds = p.machine.seconds(static_cast<double>(shape.elements()) * 12, kEfficiency, p.traffic());
  return own_recipe(p.node.op, 0, seconds, [r, threads, start = op.start](const BoundNode& node) {
    return [rows = r.rows, grain = 1 + kGrain / r.k, threads, range = start(r, node)] {
      parallel_ranges(threads, rows, grain, range);
    };
  });
}

}  // namespace plimsoll::engine::cpu
