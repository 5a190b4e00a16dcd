// attention and attention_grad in tiles of queries and keys, by online softmax: the scores of one tile are a product of
// matrices, and a running maximum per query rescales what was added up before. The backward pass computes the scores of
// a tile again. Tiles are visited in a fixed order, so the result does not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/attention.h"
#include "backends/cpu/matmul/gemm.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kQueries = 64, kKeys = 256;  // of a tile
constexpr float kHidden = -1e30F;              // the score of a position that is not seen; exp gives 0

// Positions of one head of one sample.
struct Tile {
  int64_t sample, head, i, j, rows, columns;

  int64_t shared(const AttentionForm& f) const { return f.shared(head); }
};

int64_t tile_rows(const AttentionForm& f) {
  return std::min(kQueries, f.tq);
}
int64_t tile_columns(const AttentionForm& f) {
  return std::min(kKeys, f.tk);
}

// The scratch of one thread, in elements. Offsets are multiples of 16 elements.
struct Scratch {
  int64_t tile, row, gemm, all;

  Scratch(const AttentionForm& f) {
    const int64_t m = tile_rows(f), n = tile_columns(f);
    const auto aligned = [](int64_t elements) { return align_up(4 * elements) / 4; };
    tile = aligned(m * n);
    row = aligned(m);
    gemm = 0;
    const auto needs = [&](int64_t rows, int64_t columns, int64_t k, int64_t a_column) {
      Product product{rows, columns, k};
      product.a_column = a_column;
      gemm = std::max(gemm, static_cast<int64_t>(serial_workspace(product)) / 4);
    };
    // Tiles at the ends are smaller, and may be packed otherwise; packing both operands is the most.
    for (const int64_t turned : {0, 1}) {
      needs(m, n, f.d, turned);
      needs(m, n, f.dv, turned);
      needs(m, f.dv, n, turned);
      needs(m, f.d, n, turned);
      needs(n, f.dv, m, turned);
      needs(n, f.d, m, turned);
    }
    gemm = aligned(gemm);
    all = 2 * tile + 3 * row + gemm;
  }
};

class Worker {
 public:
  Worker(const AttentionForm& f, const AttentionArrays& a, float* scratch)
      : f_(f),
        a_(a),
        at_(f),
        scores_(scratch),
        products_(scratch + at_.tile),
        most_(scratch + 2 * at_.tile),
        sum_(most_ + at_.row),
        any_(sum_ + at_.row),
        gemm_(any_ + at_.row),
        scale_(static_cast<float>(f.scale)),
        masked_(!f.masks.empty()) {}

  // The output of one tile of queries.
  void forward(int64_t item) {
    Tile t = queries(item);
    look(t);
    std::fill_n(most_, t.rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sum_, t.rows, 0.0F);
    for (int64_t r = 0; r < t.rows; ++r) std::fill_n(y_row(t, r), f_.dv, 0.0F);
    for (; next_keys(t); t.j += t.columns) {
      multiply_scores(t);
      for (int64_t r = 0; r < t.rows; ++r) fold(t, r);
      multiply({t.rows, f_.dv, t.columns, scores_, tile_columns(f_), 1, values(t), f_.parts * f_.g * f_.dv, 1,
                y_row(t, 0), f_.h * f_.dv, nullptr, false, true});
    }
    for (int64_t r = 0; r < t.rows; ++r) {
      simd().scaled_row(y_row(t, r), 1 / sum_[r], f_.dv);
      a_.stats[stat(t, r)] = static_cast<float>(static_cast<double>(most_[r]) + std::log(static_cast<double>(sum_[r])));
    }
  }

  // dq of one tile of queries.
  void query_gradient(int64_t item) {
    Tile t = queries(item);
    look(t);
    for (int64_t r = 0; r < t.rows; ++r) std::fill_n(q_row(a_.dq, t, r), f_.d, 0.0F);
    for (; next_keys(t); t.j += t.columns) {
      weigh(t);
      differentiate(t);
      add_query_gradient(t);
    }
  }

  // dk and dv of one tile of keys; with `all`, dq of the queries of its heads too, to which other tiles add later.
  void key_gradient(int64_t sample, int64_t shared, int64_t j, bool all) {
    const int64_t each = f_.h / f_.g;
    Tile t{sample, shared * each, 0, j, 0, std::min(tile_columns(f_), f_.tk - j)};
    for (int64_t c = 0; c < t.columns; ++c) {
      std::fill_n(a_.dk + f_.k_row(sample, j + c, shared), f_.d, 0.0F);
      std::fill_n(a_.dv + f_.v_row(sample, j + c, shared), f_.dv, 0.0F);
    }
    for (; t.head < (shared + 1) * each; ++t.head) {
      for (t.i = 0; t.i < f_.tq; t.i += tile_rows(f_)) {
        t.rows = std::min(tile_rows(f_), f_.tq - t.i);
        look(t);
        if (!is_seen(t)) continue;
        weigh(t);
        multiply({t.columns, f_.dv, t.rows, scores_, 1, tile_columns(f_), a_.dy + f_.y_row(sample, t.i, t.head),
                  f_.h * f_.dv, 1, a_.dv + f_.v_row(sample, j, shared), f_.parts * f_.g * f_.dv, nullptr, false, true});
        differentiate(t);
        multiply({t.columns, f_.d, t.rows, products_, 1, tile_columns(f_), a_.q + f_.q_row(sample, t.i, t.head),
                  f_.parts * f_.h * f_.d, 1, a_.dk + f_.k_row(sample, j, shared), f_.parts * f_.g * f_.d, nullptr,
                  false, true});
        if (all) add_query_gradient(t);
      }
    }
  }

  // All gradients of the heads that share keys.
  void gradient(int64_t item) {
    const int64_t sample = item / f_.g, shared = item % f_.g, each = f_.h / f_.g;
    for (int64_t head = shared * each; head < (shared + 1) * each; ++head)
      for (int64_t i = 0; i < f_.tq; ++i) std::fill_n(a_.dq + f_.q_row(sample, i, head), f_.d, 0.0F);
    for (int64_t j = 0; j < f_.tk; j += tile_columns(f_)) key_gradient(sample, shared, j, true);
  }

 private:
  Tile queries(int64_t item) const {
    const int64_t tiles = (f_.tq + tile_rows(f_) - 1) / tile_rows(f_);
    Tile t{item / tiles / f_.h, item / tiles % f_.h, item % tiles * tile_rows(f_), 0, 0, 0};
    t.rows = std::min(tile_rows(f_), f_.tq - t.i);
    return t;
  }

  // Finds the next tile of keys that any of the queries sees. A query that sees nothing reads all of them.
  bool next_keys(Tile& t) const {
    for (; t.j < f_.tk; t.j += t.columns) {
      t.columns = std::min(tile_columns(f_), f_.tk - t.j);
      if (is_seen(t)) return true;
    }
    return false;
  }

  bool is_seen(const Tile& t) const {
    if (blind_) return true;
    if (f_.causal && t.j > t.i + t.rows - 1) return false;
    return f_.window <= 0 || (t.j - (t.i + t.rows - 1) < f_.window && t.i - (t.j + t.columns - 1) < f_.window);
  }

  // Finds which queries of the tile see any position.
  void look(const Tile& t) {
    blind_ = false;
    for (int64_t r = 0; r < t.rows; ++r) {
      const bool may_be_blind = masked_ || f_.window > 0;
      any_[r] = !may_be_blind || a_.masks.sees_any(f_, t.sample, t.head, t.i + r) ? 1.0F : 0.0F;
      blind_ = blind_ || any_[r] == 0;
    }
  }

  float* y_row(const Tile& t, int64_t r) const { return a_.y + f_.y_row(t.sample, t.i + r, t.head); }
  template <typename T>
  T* q_row(T* q, const Tile& t, int64_t r) const {
    return q + f_.q_row(t.sample, t.i + r, t.head);
  }
  const float* keys(const Tile& t) const { return a_.k + f_.k_row(t.sample, t.j, t.shared(f_)); }
  const float* values(const Tile& t) const { return a_.v + f_.v_row(t.sample, t.j, t.shared(f_)); }
  int64_t stat(const Tile& t, int64_t r) const { return (t.sample * f_.h + t.head) * f_.tq + t.i + r; }

  void multiply(const Product& product) { multiply_serial(product, gemm_); }

  // The products of queries and keys, of which those that are not seen are hidden.
  void multiply_scores(const Tile& t) {
    multiply({t.rows, t.columns, f_.d, q_row(a_.q, t, 0), f_.parts * f_.h * f_.d, 1, keys(t), 1, f_.parts * f_.g * f_.d,
              scores_, tile_columns(f_), nullptr, false, false});
  }

  float* row_of(float* tile, int64_t r) const { return tile + r * tile_columns(f_); }

  // Sets what a query does not see to `value`.
  void hide(const Tile& t, int64_t r, float* row, float value) const {
    const int64_t i = t.i + r;
    int64_t begin = 0, end = t.columns;
    if (f_.causal) end = std::min(end, i - t.j + 1);
    if (f_.window > 0) {
      begin = std::max(begin, i - f_.window + 1 - t.j);
      end = std::min(end, i + f_.window - t.j);
    }
    begin = std::min(begin, t.columns);
    end = std::max(end, begin);
    std::fill(row, row + begin, value);
    std::fill(row + end, row + t.columns, value);
    if (a_.masks.k != nullptr) hide_by(a_.masks.k + t.sample * f_.tk + t.j, row, begin, end, value);
    if (a_.masks.m != nullptr) hide_by(a_.masks.row(f_, t.sample, t.head, i) + t.j, row, begin, end, value);
  }
  static void hide_by(const float* mask, float* row, int64_t begin, int64_t end, float value) {
    for (int64_t c = begin; c < end; ++c)
      if (!(mask[c] > 0)) row[c] = value;
  }

  // Turns one query's scores into weights, and rescales its sums by the new maximum.
  void fold(const Tile& t, int64_t r) {
    float* row = row_of(scores_, r);
    if (any_[r] == 0) {  // its scores count as 0
      std::fill_n(row, t.columns, 1.0F);
      most_[r] = 0;
      sum_[r] += static_cast<float>(t.columns);
      return;
    }
    simd().scaled_row(row, scale_, t.columns);
    hide(t, r, row, kHidden);
    const float top = std::max(most_[r], simd().scaled_scores(row, 1, t.columns));
    if (top <= kHidden) {  // nothing seen so far
      std::fill_n(row, t.columns, 0.0F);
      return;
    }
    const float shrink = std::exp(most_[r] - top);
    simd().scaled_row(y_row(t, r), shrink, f_.dv);
    sum_[r] = static_cast<float>(static_cast<double>(sum_[r] * shrink) + simd().score_weights(row, top, t.columns));
    most_[r] = top;
  }

  // The weights of a tile, from the statistics.
  void weigh(const Tile& t) {
    multiply_scores(t);
    for (int64_t r = 0; r < t.rows; ++r) {
      float* row = row_of(scores_, r);
      const float lse = a_.stats[stat(t, r)];
      if (any_[r] == 0) {
        std::fill_n(row, t.columns, std::exp(-lse));
        continue;
      }
      simd().scaled_row(row, scale_, t.columns);
      simd().score_weights(row, lse, t.columns);
      hide(t, r, row, 0);
    }
  }

  // The gradients of the scores of a tile, times the scale, from the weights.
  void differentiate(const Tile& t) {
    multiply({t.rows, t.columns, f_.dv, a_.dy + f_.y_row(t.sample, t.i, t.head), f_.h * f_.dv, 1, values(t), 1,
              f_.parts * f_.g * f_.dv, products_, tile_columns(f_), nullptr, false, false});
    for (int64_t r = 0; r < t.rows; ++r) {
      float* row = row_of(products_, r);
      if (any_[r] == 0) {
        std::fill_n(row, t.columns, 0.0F);
        continue;
      }
      const auto own = static_cast<float>(simd().dot(a_.dy + f_.y_row(t.sample, t.i + r, t.head), y_row(t, r), f_.dv));
      simd().score_gradients(row_of(scores_, r), row, own, scale_, t.columns);
    }
  }

  void add_query_gradient(const Tile& t) {
    multiply({t.rows, f_.d, t.columns, products_, tile_columns(f_), 1, keys(t), f_.parts * f_.g * f_.d, 1,
              q_row(a_.dq, t, 0), f_.parts * f_.h * f_.d, nullptr, false, true});
  }

  const AttentionForm& f_;
  const AttentionArrays& a_;
  const Scratch at_;
  float *scores_, *products_, *most_, *sum_, *any_, *gemm_;
  const float scale_;
  const bool masked_;
  bool blind_ = false;  // a query of the present tile sees nothing
};

void run_tiles(const AttentionForm& f, const AttentionArrays& a, int threads, void* workspace) {
  const int64_t scratch = Scratch(f).all;
  const auto each = [&](int64_t items, auto work) {
    parallel_items(threads, items, [&](int64_t item, int thread) {
      Worker worker(f, a, static_cast<float*>(workspace) + thread * scratch);
      work(worker, item);
    });
  };
  const int64_t of_queries = f.n * f.h * ((f.tq + tile_rows(f) - 1) / tile_rows(f));
  if (a.dy == nullptr) return each(of_queries, [](Worker& worker, int64_t item) { worker.forward(item); });
  // One pass computes each tile's scores once. With few heads two passes use more threads. Both add up in the same
  // order.
  constexpr int64_t kManyHeads = 8;
  if (f.n * f.g >= kManyHeads) return each(f.n * f.g, [](Worker& worker, int64_t item) { worker.gradient(item); });
  each(of_queries, [](Worker& worker, int64_t item) { worker.query_gradient(item); });
  const int64_t tiles = (f.tk + tile_columns(f) - 1) / tile_columns(f);
  each(f.n * f.g * tiles, [&](Worker& worker, int64_t item) {
    worker.key_gradient(item / tiles / f.g, item / tiles % f.g, item % tiles * tile_columns(f), false);
  });
}

}  // namespace

AttentionKernel tiled_attention(const AttentionForm& f, bool, int threads) {
  constexpr double kEfficiency = 0.4;  // share of the peak; tiles are packed for each product
  return {threads * Scratch(f).all * static_cast<Bytes>(sizeof(float)), kEfficiency, run_tiles};
}

}  // namespace plimsoll::engine::cpu
