// attention and attention_grad by online softmax: one pass over the keys of each query with a running maximum, so that
// no T x T matrix is stored. The code uses plain loops and accumulates sums over positions in double.
#include <cmath>
#include <limits>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"
#include "ops/op.h"

namespace plimsoll::engine::cpu {

namespace {

struct Heads {
  int64_t n, t, h, d, parts;  // parts is 3 if q, k and v are packed in one tensor, else 1
  bool causal;
  float scale;

  int64_t row(int64_t sample, int64_t position, int64_t head) const { return ((sample * t + position) * h + head) * d; }
  int64_t in_row(int64_t sample, int64_t position, int64_t head) const {
    return ((sample * t + position) * parts * h + head) * d;
  }
  template <typename T>
  T* part(T* first, int64_t i) const {
    return first + i * h * d;
  }
  int64_t visible(int64_t position) const { return causal ? position + 1 : t; }
};

Heads heads_of(const Shape& q, const Attrs& attrs) {
  const bool packed = q.rank() == 5;
  return {q[0],
          q[1],
          q[packed ? 3 : 2],
          q.back(),
          packed ? 3 : 1,
          attrs.flag("causal"),
          static_cast<float>(attrs.real("scale"))};
}

double dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

struct Forward {
  const float *q, *k, *v;
  float *y, *stats;
};

// One query's output. `sums` is scratch for d doubles.
void attend(const Heads& s, const Forward& f, int64_t item, double* sums) {
  const int64_t position = item % s.t, head = item / s.t % s.h, sample = item / s.t / s.h;
  const int64_t row = s.in_row(sample, position, head), y_row = s.row(sample, position, head);
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  std::fill(sums, sums + s.d, 0.0);
  for (int64_t j = 0; j < s.visible(position); ++j) {
    const double score = static_cast<double>(s.scale) * dot(f.q + row, f.k + s.in_row(sample, j, head), s.d);
    if (score > most) {
      const double shrink = std::exp(most - score);
      for (int64_t i = 0; i < s.d; ++i) sums[i] *= shrink;
      sum *= shrink;
      most = score;
    }
    const double weight = std::exp(score - most);
    const float* from = f.v + s.in_row(sample, j, head);
    for (int64_t i = 0; i < s.d; ++i) sums[i] += weight * static_cast<double>(from[i]);
    sum += weight;
  }
  for (int64_t i = 0; i < s.d; ++i) f.y[y_row + i] = static_cast<float>(sums[i] / sum);
  f.stats[item] = static_cast<float>(most + std::log(sum));
}

struct Backward {
  const float *dy, *q, *k, *v, *y, *stats;
  float *dq, *dk, *dv;
};

// The softmax weight of one (query, key) pair, and the gradient of its score times the scale.
std::pair<double, double> pair_gradient(const Heads& s, const Backward& b, int64_t row, int64_t y_row, int64_t other,
                                        double lse, double own) {
  const double weight = std::exp(static_cast<double>(s.scale) * dot(b.q + row, b.k + other, s.d) - lse);
  return {weight, static_cast<double>(s.scale) * weight * (dot(b.dy + y_row, b.v + other, s.d) - own)};
}

// dq of one position, then dk and dv of the same position. Each item sums over the other positions itself, so no two
// items write to the same address.
void attend_back(const Heads& s, const Backward& b, int64_t item, double* sums) {
  const int64_t position = item % s.t, head = item / s.t % s.h, sample = item / s.t / s.h;
  const int64_t row = s.in_row(sample, position, head), y_row = s.row(sample, position, head), first = item - position;
  double *dq = sums, *dk = sums + s.d, *dv = sums + 2 * s.d;
  std::fill(sums, sums + 3 * s.d, 0.0);
  const double own = dot(b.dy + y_row, b.y + y_row, s.d), lse = static_cast<double>(b.stats[item]);
  for (int64_t j = 0; j < s.visible(position); ++j) {
    const int64_t other = s.in_row(sample, j, head);
    const double gradient = pair_gradient(s, b, row, y_row, other, lse, own).second;
    for (int64_t i = 0; i < s.d; ++i) dq[i] += gradient * static_cast<double>(b.k[other + i]);
  }
  for (int64_t j = s.causal ? position : 0; j < s.t; ++j) {
    const int64_t query = s.in_row(sample, j, head), y_query = s.row(sample, j, head);
    const auto [weight, gradient] = pair_gradient(s, b, query, y_query, row, static_cast<double>(b.stats[first + j]),
                                                  dot(b.dy + y_query, b.y + y_query, s.d));
    for (int64_t i = 0; i < s.d; ++i) {
      dv[i] += weight * static_cast<double>(b.dy[y_query + i]);
      dk[i] += gradient * static_cast<double>(b.q[query + i]);
    }
  }
  for (int64_t i = 0; i < s.d; ++i) {
    b.dq[row + i] = static_cast<float>(dq[i]);
    b.dk[row + i] = static_cast<float>(dk[i]);
    b.dv[row + i] = static_cast<float>(dv[i]);
  }
}

constexpr double kEfficiency = 0.05;  // share of the peak: these are scalar loops in double

}  // namespace

Result<Recipe> attention_recipe(const Problem& p) {
  const bool forward = p.node.op == "attention";
  const Heads s = heads_of(p.in_shape(forward ? 0 : 1), p.attrs());
  const int threads = p.machine.threads;
  const int64_t scratch = (forward ? 1 : 3) * s.d;
  const double seconds = p.machine.seconds(flops_of(p.graph, p.node), kEfficiency, p.traffic());
  const auto each = [=](const BoundNode& node, auto work) {
    return [=, sums = static_cast<double*>(node.workspace)] {
      parallel_items(threads, s.n * s.h * s.t, [&](int64_t item, int thread) { work(item, sums + thread * scratch); });
    };
  };
  const Bytes workspace = threads * scratch * static_cast<Bytes>(sizeof(double));
  if (forward)
    return own_recipe("attention", workspace, seconds, [=](const BoundNode& node) {
      const auto* q = input<const float>(node, 0);
      const bool packed = s.parts == 3;
      const Forward f{q, packed ? s.part(q, 1) : input<const float>(node, 1),
                      packed ? s.part(q, 2) : input<const float>(node, 2), output<float>(node, 0),
                      output<float>(node, 1)};
      return each(node, [=](int64_t item, double* sums) { attend(s, f, item, sums); });
    });
  return own_recipe("attention_grad", workspace, seconds, [=](const BoundNode& node) {
    const auto *dy = input<const float>(node, 0), *q = input<const float>(node, 1);
    auto* dq = output<float>(node, 0);
    const Backward b = s.parts == 3 ? Backward{dy,
                                               q,
                                               s.part(q, 1),
                                               s.part(q, 2),
                                               input<const float>(node, 2),
                                               input<const float>(node, 3),
                                               dq,
                                               s.part(dq, 1),
                                               s.part(dq, 2)}
                                    : Backward{dy,
                                               q,
                                               input<const float>(node, 2),
                                               input<const float>(node, 3),
                                               input<const float>(node, 4),
                                               input<const float>(node, 5),
                                               dq,
                                               output<float>(node, 1),
                                               output<float>(node, 2)};
    return each(node, [=](int64_t item, double* sums) { attend_back(s, b, item, sums); });
  });
}

}  // namespace plimsoll::engine::cpu
