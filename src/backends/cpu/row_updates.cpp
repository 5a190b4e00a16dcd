// sgd_rows and adam_rows: the update of an embedding table from dy and the ids, without a gradient as large as the
// table. The tokens are sorted by id, so that each row adds up its tokens in their order, with the same bits as
// embedding_grad. An update that leaves rows without a gradient as they are visits only the rows that occur, so its
// work does not grow with the table.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

struct RowUpdate {
  int64_t rows = 0, width = 0, tokens = 0;
  bool every_row = true;
  int states = 0;  // besides the weight
  TileOp op = TileOp::k_sgd;
  float f[3] = {};
  double beta_1 = 0, beta_2 = 0, decay = 0;
  bool adam = false;
};

RowUpdate update_of(const Problem& p) {
  RowUpdate u;
  const Attrs& attrs = p.attrs();
  u.rows = p.in_shape(0)[0], u.width = p.in_shape(0)[1], u.tokens = p.in_shape(2).elements();
  u.decay = attrs.real_or("weight_decay", 0);
  u.adam = p.node.op == "adam_rows";
  if (u.adam) {
    u.states = 2;
    u.op = TileOp::k_adam;
    u.beta_1 = attrs.real("beta_1"), u.beta_2 = attrs.real("beta_2");
    u.f[0] = static_cast<float>(1 - u.beta_1);
    u.f[1] = static_cast<float>(1 - u.beta_2);
    u.f[2] = static_cast<float>(attrs.real("epsilon"));
    return u;
  }
  const double momentum = attrs.real_or("momentum", 0);
  u.states = momentum != 0 ? 1 : 0;
  u.op = momentum == 0 ? TileOp::k_sgd : attrs.flag("nesterov") ? TileOp::k_sgd_nesterov : TileOp::k_sgd_momentum;
  u.f[0] = static_cast<float>(momentum);
  u.f[1] = static_cast<float>(u.decay);
  u.every_row = momentum != 0 || u.decay != 0;
  return u;
}

struct RowArrays {
  const float *w, *dy, *rate;
  const int32_t* ids;
  const int64_t* iteration;  // of adam
  const float* states[2];
  float *new_w, *new_states[2];
  int64_t* order;    // id and token, sorted
  float* sums;       // two rows per thread: the sum, and zeros
  float numbers[2];  // adam: the rate with both corrections, the weight decay
};

// Inputs: w, dy, ids, then the update's own: sgd: rate, state?; adam: m, v, rate, iteration.
RowArrays arrays_of(const BoundNode& node, const RowUpdate& u) {
  RowArrays a{};
  a.w = input<const float>(node, 0);
  a.dy = input<const float>(node, 1);
  a.ids = input<const int32_t>(node, 2);
  const size_t first = u.adam ? 3 : 4;
  for (int i = 0; i < u.states; ++i) {
    a.states[i] = input<const float>(node, first + static_cast<size_t>(i));
    a.new_states[i] = output<float>(node, 1 + static_cast<size_t>(i));
  }
  a.rate = input<const float>(node, u.adam ? 5 : 3);
  if (u.adam) a.iteration = input<const int64_t>(node, 6);
  a.new_w = output<float>(node, 0);
  a.order = static_cast<int64_t*>(node.workspace);
  a.sums = reinterpret_cast<float*>(a.order + u.tokens);
  return a;
}

int64_t id_of(int64_t key) {
  return key >> 32;
}

// Sorts the tokens whose ids are in the table. Returns their number.
int64_t sort_tokens(const RowUpdate& u, const RowArrays& a) {
  int64_t count = 0;
  for (int64_t t = 0; t < u.tokens; ++t)
    if (a.ids[t] >= 0 && a.ids[t] < u.rows) a.order[count++] = (static_cast<int64_t>(a.ids[t]) << 32) | t;
  std::sort(a.order, a.order + count);
  return count;
}

void update_row(const RowUpdate& u, const RowArrays& a, int64_t row, const float* gradient) {
  const int64_t at = row * u.width;
  TileCall call{};
  call.n = u.width;
  call.f = u.f;
  call.in[0] = a.w + at;
  call.in[1] = gradient;
  call.out[0] = a.new_w + at;
  if (u.adam) {
    call.in[2] = a.states[0] + at;
    call.in[3] = a.states[1] + at;
    call.in[4] = &a.numbers[0];
    call.in[5] = &a.numbers[1];
  } else {
    call.in[2] = a.rate;
    if (u.states > 0) call.in[3] = a.states[0] + at;
  }
  for (int i = 0; i < u.states; ++i) call.out[1 + i] = a.new_states[i] + at;
  simd().tile[static_cast<int>(u.op)](call);
}

// Adds up the tokens of the row that begins at `token`, and updates it. Returns the first token of the next row.
int64_t update_named_row(const RowUpdate& u, const RowArrays& a, int64_t token, int64_t count, float* sum) {
  const int64_t row = id_of(a.order[token]);
  std::fill_n(sum, u.width, 0.0F);
  for (; token < count && id_of(a.order[token]) == row; ++token) {
    const float* dy = a.dy + (a.order[token] & 0xFFFFFFFF) * u.width;
    for (int64_t c = 0; c < u.width; ++c) sum[c] += dy[c];
  }
  update_row(u, a, row, sum);
  return token;
}

// Rows [begin, end) of the table, named or not.
void update_rows(const RowUpdate& u, const RowArrays& a, int64_t count, int64_t begin, int64_t end, float* sum,
                 const float* zeros) {
  int64_t token = std::lower_bound(a.order, a.order + count, begin << 32) - a.order;
  for (int64_t row = begin; row < end; ++row) {
    if (token < count && id_of(a.order[token]) == row)
      token = update_named_row(u, a, token, count, sum);
    else
      update_row(u, a, row, zeros);
  }
}

// The named rows that begin among the tokens [begin, end).
void update_named(const RowUpdate& u, const RowArrays& a, int64_t count, int64_t begin, int64_t end, float* sum) {
  while (begin > 0 && begin < end && id_of(a.order[begin]) == id_of(a.order[begin - 1])) ++begin;
  for (int64_t token = begin; token < end;) token = update_named_row(u, a, token, count, sum);
}

void run(const RowUpdate& u, RowArrays a, int threads) {
  if (u.adam) {
    const auto t = static_cast<double>(*a.iteration);
    const auto rate = static_cast<double>(*a.rate);
    a.numbers[0] = static_cast<float>(rate * std::sqrt(1 - std::pow(u.beta_2, t)) / (1 - std::pow(u.beta_1, t)));
    a.numbers[1] = static_cast<float>(rate * u.decay);
  }
  const int64_t count = sort_tokens(u, a);
  const auto pieces = [&](int64_t items, auto work) {
    const int64_t parts = std::clamp<int64_t>(items * u.width / 16384, 1, int64_t{8} * threads);
    parallel_items(threads, parts, [&](int64_t part, int thread) {
      float* sum = a.sums + 2 * thread * u.width;
      work(items * part / parts, items * (part + 1) / parts, sum, sum + u.width);
    });
  };
  for (int thread = 0; thread < threads; ++thread) std::fill_n(a.sums + (2 * thread + 1) * u.width, u.width, 0.0F);
  if (u.every_row)
    return pieces(u.rows, [&](int64_t begin, int64_t end, float* sum, const float* zeros) {
      update_rows(u, a, count, begin, end, sum, zeros);
    });
  if (a.new_w != a.w) std::memcpy(a.new_w, a.w, static_cast<size_t>(u.rows * u.width) * sizeof(float));
  pieces(count,
         [&](int64_t begin, int64_t end, float* sum, const float*) { update_named(u, a, count, begin, end, sum); });
}

}  // namespace

Result<Recipe> row_update_recipe(const Problem& p) {
  const RowUpdate u = update_of(p);
  const int threads = p.machine.threads;
  const Bytes workspace = u.tokens * 8 + 2 * threads * u.width * 4;
  const double named = 4.0 * static_cast<double>(u.tokens * u.width) * 4;
  return own_recipe(
      p.node.op, workspace, p.machine.seconds(0, 1, u.every_row ? p.traffic() : named),
      [=](const BoundNode& node) { return [=, arrays = arrays_of(node, u)] { run(u, arrays, threads); }; });
}

}  // namespace plimsoll::engine::cpu
