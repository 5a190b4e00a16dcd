// attention and attention_grad for few positions: plain loops that add up in double. attention_tiles.cpp has the kernel
// for more positions. Neither stores a matrix of all queries and keys.
#include "backends/cpu/attention.h"

#include <cmath>
#include <limits>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"
#include "ops/op.h"

namespace plimsoll::engine::cpu {

namespace {

double dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// One query: which of [N,H,Tq] it is, and whether it sees any position.
struct Query {
  int64_t sample, head, shared, position;
  bool any;

  Query(const AttentionForm& f, const AttentionArrays& a, int64_t item)
      : sample(item / f.tq / f.h),
        head(item / f.tq % f.h),
        shared(f.shared(head)),
        position(item % f.tq),
        any(a.masks.sees_any(f, sample, head, position)) {}

  bool sees(const AttentionForm& f, const AttentionArrays& a, int64_t j) const {
    return !any || a.masks.visible(f, sample, head, position, j);
  }
  double score(const AttentionForm& f, const AttentionArrays& a, int64_t j) const {
    if (!any) return 0;
    return static_cast<double>(static_cast<float>(f.scale)) *
           dot(a.q + f.q_row(sample, position, head), a.k + f.k_row(sample, j, shared), f.d);
  }
};

// One query's output. `sums` is scratch for dv doubles.
void attend(const AttentionForm& f, const AttentionArrays& a, int64_t item, double* sums) {
  const Query query(f, a, item);
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  std::fill(sums, sums + f.dv, 0.0);
  for (int64_t j = 0; j < f.tk; ++j) {
    if (!query.sees(f, a, j)) continue;
    const double score = query.score(f, a, j);
    if (score > most) {
      const double shrink = std::exp(most - score);
      for (int64_t c = 0; c < f.dv; ++c) sums[c] *= shrink;
      sum *= shrink;
      most = score;
    }
    const double weight = std::exp(score - most);
    const float* from = a.v + f.v_row(query.sample, j, query.shared);
    for (int64_t c = 0; c < f.dv; ++c) sums[c] += weight * static_cast<double>(from[c]);
    sum += weight;
  }
  float* y = a.y + f.y_row(query.sample, query.position, query.head);
  for (int64_t c = 0; c < f.dv; ++c) y[c] = static_cast<float>(sums[c] / sum);
  a.stats[item] = static_cast<float>(most + std::log(sum));
}

// The softmax weight of one (query, key) pair, and the gradient of its score times the scale.
std::pair<double, double> pair_gradient(const AttentionForm& f, const AttentionArrays& a, const Query& query, int64_t j,
                                        int64_t item) {
  const double weight = std::exp(query.score(f, a, j) - static_cast<double>(a.stats[item]));
  if (!query.any) return {weight, 0};
  const int64_t row = f.y_row(query.sample, query.position, query.head);
  const double own = dot(a.dy + row, a.y + row, f.dv),
               product = dot(a.dy + row, a.v + f.v_row(query.sample, j, query.shared), f.dv);
  return {weight, static_cast<double>(static_cast<float>(f.scale)) * weight * (product - own)};
}

void query_gradient(const AttentionForm& f, const AttentionArrays& a, int64_t item, double* dq) {
  const Query query(f, a, item);
  std::fill(dq, dq + f.d, 0.0);
  for (int64_t j = 0; query.any && j < f.tk; ++j) {
    if (!query.sees(f, a, j)) continue;
    const double gradient = pair_gradient(f, a, query, j, item).second;
    const float* key = a.k + f.k_row(query.sample, j, query.shared);
    for (int64_t c = 0; c < f.d; ++c) dq[c] += gradient * static_cast<double>(key[c]);
  }
  float* to = a.dq + f.q_row(query.sample, query.position, query.head);
  for (int64_t c = 0; c < f.d; ++c) to[c] = static_cast<float>(dq[c]);
}

// Each item sums over all queries of its key, so no two items write to the same address.
void key_gradient(const AttentionForm& f, const AttentionArrays& a, int64_t item, double* sums) {
  const int64_t j = item % f.tk, shared = item / f.tk % f.g, sample = item / f.tk / f.g, each = f.h / f.g;
  double *dk = sums, *dv = sums + f.d;
  std::fill(sums, sums + f.d + f.dv, 0.0);
  for (int64_t head = shared * each; head < (shared + 1) * each; ++head) {
    for (int64_t i = 0; i < f.tq; ++i) {
      const int64_t of_query = (sample * f.h + head) * f.tq + i;
      const Query query(f, a, of_query);
      if (!query.sees(f, a, j)) continue;
      const auto [weight, gradient] = pair_gradient(f, a, query, j, of_query);
      const float *dy = a.dy + f.y_row(sample, i, head), *q = a.q + f.q_row(sample, i, head);
      for (int64_t c = 0; c < f.dv; ++c) dv[c] += weight * static_cast<double>(dy[c]);
      for (int64_t c = 0; c < f.d; ++c) dk[c] += gradient * static_cast<double>(q[c]);
    }
  }
  float *to_k = a.dk + f.k_row(sample, j, shared), *to_v = a.dv + f.v_row(sample, j, shared);
  for (int64_t c = 0; c < f.d; ++c) to_k[c] = static_cast<float>(dk[c]);
  for (int64_t c = 0; c < f.dv; ++c) to_v[c] = static_cast<float>(dv[c]);
}

void run_plain(const AttentionForm& f, const AttentionArrays& a, int threads, void* workspace) {
  const auto each = [&](int64_t items, auto work) {
    auto* sums = static_cast<double*>(workspace);
    parallel_items(threads, items, [&](int64_t item, int thread) { work(f, a, item, sums + thread * (f.d + f.dv)); });
  };
  if (a.dy == nullptr) return each(f.n * f.h * f.tq, attend);
  each(f.n * f.h * f.tq, query_gradient);
  each(f.n * f.g * f.tk, key_gradient);
}

AttentionArrays arrays_of(const BoundNode& node, const AttentionForm& f, bool backward) {
  AttentionArrays a;
  const bool packed = f.parts == 3;
  const size_t first = backward ? 1 : 0, masks = f.masks.size();
  a.q = input<const float>(node, first);
  a.k = packed ? a.q + f.part() : input<const float>(node, first + 1);
  a.v = packed ? a.k + f.part() : input<const float>(node, first + 2);
  a.masks = attention_masks<float>(f, first + 3, [&](size_t i) { return input<const float>(node, i); });
  if (!backward) {
    a.y = output<float>(node, 0);
    a.stats = output<float>(node, 1);
    return a;
  }
  const size_t y = packed ? 2 : 4 + masks;
  a.dy = input<const float>(node, 0);
  a.y = input<float>(node, y);
  a.stats = input<float>(node, y + 1);
  a.dq = output<float>(node, 0);
  a.dk = packed ? a.dq + f.part() : output<float>(node, 1);
  a.dv = packed ? a.dk + f.part() : output<float>(node, 2);
  return a;
}

}  // namespace

AttentionKernel plain_attention(const AttentionForm& f, bool, int threads) {
  constexpr double kEfficiency = 0.05;  // share of the peak: these are scalar loops in double
  return {threads * (f.d + f.dv) * static_cast<Bytes>(sizeof(double)), kEfficiency, run_plain};
}

Result<Recipe> attention_recipe(const Problem& p) {
  constexpr int64_t kFewPositions = 16;
  const bool backward = p.node.op == "attention_grad";
  const AttentionForm f =
      attention_form(p.node.op, p.inputs(), p.attrs(), [&](size_t i) -> const Shape& { return p.in_shape(i); });
  const int threads = p.machine.threads;
  const bool tiled = f.tk > kFewPositions;
  const AttentionKernel kernel = tiled ? tiled_attention(f, backward, threads) : plain_attention(f, backward, threads);
  const double seconds = p.machine.seconds(flops_of(p.graph, p.node), kernel.efficiency, p.traffic());
  return own_recipe(p.node.op + (tiled ? ":tiles" : ""), kernel.workspace, seconds, [=](const BoundNode& node) {
    return [=, arrays = arrays_of(node, f, backward), workspace = node.workspace] {
      kernel.run(f, arrays, threads, workspace);
    };
  });
}

}  // namespace plimsoll::engine::cpu
