// The kernel of `recurrent_grad`. It goes through the steps backwards in segments. In a segment, blocks of samples run
// side by side; then all threads add the segment's products to the gradients of the weights. A segment's preactivation
// gradients are scratch, so no tensor grows with the number of steps.
#include <algorithm>

#include "backends/cpu/matmul/gemm.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/recurrent/recurrent.h"
#include "backends/cpu/simd/cells.h"
#include "backends/cpu/simd/simd.h"
#include "ops/op.h"

namespace plimsoll::engine::cpu {

namespace {

// What a segment of `steps` steps holds of all samples. Rows are ordered by sample, then by time.
struct Segment {
  float* sums;     // [N][steps][blocks * U]: gradients of the gates' sums; of a GRU also that of `inner`
  float* x;        // [N][steps][D]: the inputs, after a dropout that all gates share
  float* h;        // [N][steps][U]: the states before the steps
  float* reset_h;  // [N][steps][U]: r * h, if the reset gate acts before the product
  float* operand;  // [N][steps][max(D, U)]: x or h after the dropout of one gate
  // Computed again from a checkpoint, ordered by the loop's steps; states have one entry more, after the last step.
  float *states, *carries, *gates;
};

struct Backward {
  Recurrent r;
  Blocks blocks;
  int threads;
  int64_t steps;                                   // per segment
  PackedWeights w, u, w_transposed, u_transposed;  // w and u only with checkpoints
  std::vector<StepScratch> scratch;
  std::vector<float*> rows;     // per thread: [2][rows][U], or [steps][D]
  std::vector<int64_t*> began;  // per thread: [rows], the first unmasked steps
  Segment segment;
  double* bias_sums;  // [blocks * U]
  float* product;     // scratch of the products

  int64_t width() const {
    return (r.cell == CellKind::kSimple ? 1 : r.cell == CellKind::kGruResetBefore ? 3 : 4) * r.u;
  }
  bool again() const { return r.saves == CellSaves::kCheckpoints; }
  // The column of a group of the recurrent kernel among the gradients of the sums.
  int64_t column(const ColumnGroup& group) const {
    return r.cell == CellKind::kGru && group.column == 2 * r.u ? 3 * r.u : group.column;
  }
  Bytes place(void* address);
};

Product weight_product(const Backward& b, int64_t operand_size, int64_t columns, int64_t steps) {
  Product p;
  p.m = operand_size;
  p.n = columns;
  p.k = b.r.n * steps;
  p.a_row = 1;
  p.a_column = operand_size;
  p.b_row = b.width();
  p.b_column = 1;
  p.c_row = b.r.gates() * b.r.u;
  return p;
}

Bytes product_workspace(const Backward& b) {
  Bytes most = 0;
  const int64_t last = b.r.t % b.steps;
  for (const int64_t steps : {b.steps, last})
    for (const PackedWeights& weights : {input_weights(b.r, false), state_weights(b.r, false)})
      for (const ColumnGroup& group : weights.groups)
        if (steps > 0)
          most = std::max(most, parallel_workspace(weight_product(b, weights.rows, group.width, steps), b.threads));
  return most;
}

Bytes Backward::place(void* address) {
  Workspace workspace(address);
  const auto weights = [&](bool exists, PackedWeights made) {
    if (exists) made.panels = workspace.take(made.elements());
    return made;
  };
  w = weights(again(), input_weights(r, false));
  u = weights(again(), state_weights(r, false));
  w_transposed = weights(r.out_dx >= 0, input_weights(r, true));
  u_transposed = weights(true, state_weights(r, true));
  scratch.clear();
  rows.clear();
  began.clear();
  for (int i = 0; i < threads; ++i) {
    scratch.push_back(again() ? take_step_scratch(r, blocks, workspace) : StepScratch{});
    rows.push_back(workspace.take(std::max(2 * blocks.rows * r.u, r.x_masks > 1 ? steps * r.d : 0)));
    began.push_back(reinterpret_cast<int64_t*>(workspace.take(2 * blocks.rows)));
  }
  const int64_t all = r.n * steps, computed = again() ? r.n * (steps + 1) : 0;
  segment.sums = workspace.take(all * width());
  segment.x = workspace.take(r.out_dw >= 0 ? all * r.d : 0);
  segment.h = workspace.take(all * r.u);
  segment.reset_h = workspace.take(r.cell == CellKind::kGruResetBefore ? all * r.u : 0);
  const bool masked = r.out_dw >= 0 && (r.x_masks > 1 || r.h_masks > 0);
  segment.operand = workspace.take(masked ? all * std::max(r.d, r.u) : 0);
  segment.states = workspace.take(computed * r.u);
  segment.carries = workspace.take(r.has_carry() ? computed * r.u : 0);
  segment.gates = workspace.take(again() ? all * r.saved() * r.u : 0);
  bias_sums = reinterpret_cast<double*>(workspace.take(2 * width()));
  product = workspace.take(r.out_dw >= 0 ? product_workspace(*this) / 4 : 0);
  return workspace.bytes();
}

// The steps [begin, end) of the loop.
struct Range {
  int64_t begin, end;
  int64_t steps() const { return end - begin; }
};

// Where the records of one sample's step are.
struct Record {
  const float *h, *h_after, *c, *c_after, *gates;
};

Record record_at(const Backward& b, const CellTensors& t, const Range& range, int64_t n, int64_t s, int64_t first) {
  const Recurrent& r = b.r;
  const int64_t at = s - range.begin, steps = range.steps();
  if (b.again()) {
    const float* h = b.segment.states + (n * (steps + 1) + at) * r.u;
    const float* c = r.has_carry() ? b.segment.carries + (n * (steps + 1) + at) * r.u : nullptr;
    return {h, h + r.u, c, c == nullptr ? nullptr : c + r.u, b.segment.gates + (n * steps + at) * r.saved() * r.u};
  }
  const auto state = [&](int64_t step) {  // after that step
    if (step < (r.output_is_states() ? first : 0)) return t.in(3) + n * r.u;
    return t.in(r.in_states) + (n * r.t + (r.output_is_states() ? r.output_step(step) : step)) * r.u;
  };
  const auto carry = [&](int64_t step) -> const float* {
    if (!r.has_carry()) return nullptr;
    return step < 0 ? t.in(r.in_carry) + n * r.u : t.in(r.in_carries) + (n * r.t + step) * r.u;
  };
  const float* gates = r.in_gates < 0 ? nullptr : t.in(r.in_gates) + (n * r.t + s) * r.saved() * r.u;
  return {state(s - 1), state(s), carry(s - 1), carry(s), gates};
}

// Runs the segment forward again from its checkpoint.
void compute_again(const Backward& b, const CellTensors& t, const Range& range, const StepScratch& scratch,
                   int64_t first, int64_t rows) {
  const Recurrent& r = b.r;
  const int64_t steps = range.steps();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t from = ((first + row) * r.checkpoints() + range.begin / r.every) * r.u;
    const int64_t to = (first + row) * (steps + 1) * r.u;
    const auto restore = [&](Slot slot, float* state, float* records) {
      std::copy_n(t.in(slot) + from, r.u, state + row * r.u);
      std::copy_n(t.in(slot) + from, r.u, records + to);
    };
    restore(r.in_states, scratch.h, b.segment.states);
    if (r.has_carry()) restore(r.in_carries, scratch.c, b.segment.carries);
  }
  run_steps(r, t, b.w, b.u, b.blocks, scratch, first, rows, range.begin, range.end, [&](const SampleStep& step) {
    const int64_t at = step.s - range.begin, after = (step.n * (steps + 1) + at + 1) * r.u;
    std::copy_n(step.h, r.u, b.segment.states + after);
    if (r.has_carry()) std::copy_n(step.c, r.u, b.segment.carries + after);
    if (r.saved() == 0) return;
    float* gates = b.segment.gates + (step.n * steps + at) * r.saved() * r.u;
    std::copy_n(step.gates, r.gates() * r.u, gates);
    if (step.inner != nullptr) std::copy_n(step.inner, r.u, gates + r.gates() * r.u);
  });
}

// The gradients of one step's sums; dh keeps what reaches the state before beside them, dc becomes that of the carry
// before.
void cell_back(const Recurrent& r, const Record& at, float* dh, float* dc, float* d, float* scratch) {
  if (r.cell == CellKind::kSimple) {
    std::copy_n(dh, r.u, d);
    cell_simd().cell_slopes(r.activation, at.h_after, d, r.u);
    std::fill_n(dh, r.u, 0.0F);
  } else if (r.cell == CellKind::kLstm) {
    cell_simd().lstm_cell_grad(r.activation, r.recurrent_activation, at.gates, at.c, at.c_after, dh, dc, d, scratch,
                               r.u);
    std::fill_n(dh, r.u, 0.0F);
  } else {
    const float* inner = r.cell == CellKind::kGru ? at.gates + 3 * r.u : nullptr;
    cell_simd().gru_cell_grad(r.activation, r.recurrent_activation, at.gates, inner, at.h, dh, d, r.u);
  }
}

// One step of a block. dh and dc are the outputs of the node, which hold the running gradients.
class StepBack {
 public:
  StepBack(const Backward& b, const CellTensors& t, const Range& range, int64_t first, int64_t rows, int thread)
      : b_(b),
        r_(b.r),
        t_(t),
        range_(range),
        first_(first),
        rows_(rows),
        buffers_(b.rows[static_cast<size_t>(thread)]),
        began_(b.began[static_cast<size_t>(thread)]) {
    for (int64_t row = 0; row < rows; ++row) began_[row] = first_unmasked(r_, t, first + row);
  }

  void run(int64_t s) {
    const int64_t local = r_.reverse ? range_.end - 1 - s : s - range_.begin;
    for (int64_t row = 0; row < rows_; ++row) begin_row(row, s, local);
    const int64_t groups = static_cast<int64_t>(b_.u_transposed.groups.size());
    if (r_.cell == CellKind::kGruResetBefore) {
      product(static_cast<size_t>(groups - 1), local, buffers_, false);
      for (int64_t row = 0; row < rows_; ++row) through_reset(row, s, local);
    }
    const int64_t plain = r_.cell == CellKind::kGruResetBefore ? groups - 1 : groups;
    for (int64_t g = 0; g < plain; ++g) product(static_cast<size_t>(g), local, t_.out(r_.out_dh) + first_ * r_.u, true);
  }

 private:
  float* dh(int64_t row) const { return t_.out(r_.out_dh) + (first_ + row) * r_.u; }
  float* sums(int64_t row, int64_t local) const {
    return b_.segment.sums + ((first_ + row) * range_.steps() + local) * b_.width();
  }
  float* before(float* of, int64_t row, int64_t local) const {
    return of + ((first_ + row) * range_.steps() + local) * r_.u;
  }

  void begin_row(int64_t row, int64_t s, int64_t local) {
    const int64_t n = first_ + row, began = began_[row];
    const bool unmasked = is_unmasked(r_, t_, n, s), reached = unmasked || (!r_.zeroes_masked && s > began);
    if (r_.in_dy >= 0 && reached && (r_.sequences || s + 1 == r_.t)) {
      const float* dy = t_.in(r_.in_dy) + (r_.sequences ? n * r_.t + r_.output_step(s) : n) * r_.u;
      for (int64_t j = 0; j < r_.u; ++j) dh(row)[j] += dy[j];
    }
    const Record at = record_at(b_, t_, range_, n, s, began);
    std::copy_n(at.h, r_.u, before(b_.segment.h, row, local));
    if (unmasked)
      cell_back(r_, at, dh(row), r_.out_dc < 0 ? nullptr : t_.out(r_.out_dc) + n * r_.u, sums(row, local), buffers_);
    else
      std::fill_n(sums(row, local), b_.width(), 0.0F);
  }

  // to = or += the gradients of one group's sums times the transposed weights, through the dropout of the state.
  void product(size_t g, int64_t local, float* to, bool add) {
    const ColumnGroup& group = b_.u_transposed.groups[g];
    const float* from = sums(0, local) + b_.column(group);
    const int64_t from_row = range_.steps() * b_.width();
    if (r_.h_masks == 0) {
      cell_simd().panel_product(from, from_row, rows_, b_.u_transposed.group(g), group.width, r_.u, to, r_.u, add);
      return;
    }
    float* made = buffers_ + rows_ * r_.u;
    cell_simd().panel_product(from, from_row, rows_, b_.u_transposed.group(g), group.width, r_.u, made, r_.u, false);
    for (int64_t row = 0; row < rows_; ++row) {
      const float* mask =
          t_.in(r_.in_h_masks) + ((first_ + row) * r_.h_masks + (r_.h_masks == 1 ? 0 : group.mask)) * r_.u;
      for (int64_t j = 0; j < r_.u; ++j)
        to[row * r_.u + j] = made[row * r_.u + j] * mask[j] + (add ? to[row * r_.u + j] : 0.0F);
    }
  }

  // The product with r * h: from its gradient those of r and h.
  void through_reset(int64_t row, int64_t s, int64_t local) {
    const int64_t n = first_ + row;
    float *d = sums(row, local) + r_.u, *reset_h = before(b_.segment.reset_h, row, local);
    std::fill_n(d, r_.u, 0.0F);
    std::fill_n(reset_h, r_.u, 0.0F);
    if (!is_unmasked(r_, t_, n, s)) return;
    const Record at = record_at(b_, t_, range_, n, s, began_[row]);
    const float *back = buffers_ + row * r_.u, *reset = at.gates + r_.u;
    for (int64_t j = 0; j < r_.u; ++j) {
      d[j] = back[j] * at.h[j];
      dh(row)[j] += back[j] * reset[j];
      reset_h[j] = reset[j] * at.h[j];
    }
    cell_simd().cell_slopes(r_.recurrent_activation, reset, d, r_.u);
  }

  const Backward& b_;
  const Recurrent& r_;
  const CellTensors& t_;
  const Range range_;
  const int64_t first_, rows_;
  float* buffers_;  // [2][rows][U]
  int64_t* began_;
};

// dx of one sample's segment, and the copy of its input for the product with it.
void input_back(const Backward& b, const CellTensors& t, const Range& range, int64_t n, float* buffer) {
  const Recurrent& r = b.r;
  const int64_t steps = range.steps(), low = r.reverse ? r.t - range.end : range.begin, at = (n * r.t + low) * r.d;
  const float* masks = r.x_masks > 0 ? t.in(r.in_x_masks) + n * r.x_masks * r.d : nullptr;
  if (r.out_dw >= 0) {
    float* x = b.segment.x + n * steps * r.d;
    std::copy_n(t.in(0) + at, steps * r.d, x);
    if (r.x_masks == 1)
      for (int64_t i = 0; i < steps * r.d; ++i) x[i] *= masks[i % r.d];
  }
  if (r.out_dx < 0) return;
  float* dx = t.out(r.out_dx) + at;
  const PackedWeights& w = b.w_transposed;
  for (size_t g = 0; g < w.groups.size(); ++g) {
    float* to = r.x_masks > 1 ? buffer : dx;
    const float* sums = b.segment.sums + n * steps * b.width() + w.groups[g].column;
    cell_simd().panel_product(sums, b.width(), steps, w.group(g), w.groups[g].width, r.d, to, r.d, false);
    if (masks == nullptr) continue;
    const float* mask = masks + (r.x_masks == 1 ? 0 : w.groups[g].mask) * r.d;
    for (int64_t i = 0; i < steps * r.d; ++i) dx[i] = to[i] * mask[i % r.d] + (g > 0 ? dx[i] : 0.0F);
  }
}

void block_back(const Backward& b, const CellTensors& t, const Range& range, int64_t block, int thread) {
  const int64_t first = block * b.blocks.rows, rows = std::min(b.blocks.rows, b.r.n - first);
  if (b.again()) compute_again(b, t, range, b.scratch[static_cast<size_t>(thread)], first, rows);
  StepBack step(b, t, range, first, rows, thread);
  for (int64_t s = range.end - 1; s >= range.begin; --s) step.run(s);
  for (int64_t row = 0; row < rows; ++row) input_back(b, t, range, first + row, b.rows[static_cast<size_t>(thread)]);
}

// Adds the segment's products of one operand [N][steps][size] to the columns of one group.
void add_products(const Backward& b, const float* operand, int64_t size, const float* sums, int64_t columns, float* to,
                  const Range& range) {
  Product p = weight_product(b, size, columns, range.steps());
  p.a = operand;
  p.b = sums;
  p.c = to;
  p.accumulate = range.end < b.r.t;  // the last segment comes first
  multiply_parallel(p, b.threads, b.product);
}

// The operand after the dropout of one group.
const float* dropped(const Backward& b, const float* masks, int64_t count, int64_t mask, const float* operand,
                     int64_t size, int64_t steps) {
  if (count == 0) return operand;
  parallel_ranges(b.threads, b.r.n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t i = 0; i < steps; ++i)
        masked_copy(operand + (n * steps + i) * size, size, masks, count, mask, n, 1, size,
                    b.segment.operand + (n * steps + i) * size);
  });
  return b.segment.operand;
}

void add_weight_gradients(const Backward& b, const CellTensors& t, const Range& range) {
  const Recurrent& r = b.r;
  for (const ColumnGroup& group : input_weights(r, false).groups) {
    const float* x =
        dropped(b, t.in(r.in_x_masks), r.x_masks > 1 ? r.x_masks : 0, group.mask, b.segment.x, r.d, range.steps());
    add_products(b, x, r.d, b.segment.sums + group.column, group.width, t.out(r.out_dw) + group.column, range);
  }
  for (const ColumnGroup& group : state_weights(r, false).groups) {
    const bool reset = r.cell == CellKind::kGruResetBefore && group.column == 2 * r.u;
    const float* h = dropped(b, t.in(r.in_h_masks), r.h_masks, r.h_masks == 1 ? 0 : group.mask,
                             reset ? b.segment.reset_h : b.segment.h, r.u, range.steps());
    add_products(b, h, r.u, b.segment.sums + b.column(group), group.width, t.out(r.out_du) + group.column, range);
  }
  if (r.out_db < 0) return;
  parallel_ranges(b.threads, b.width(), 64, [&](int64_t begin, int64_t end) {
    if (range.end == r.t) std::fill(b.bias_sums + begin, b.bias_sums + end, 0.0);
    simd().reduce_rows(ReduceKind::kSum, b.segment.sums + begin, b.width(), r.n * range.steps(), end - begin,
                       b.bias_sums + begin);
  });
}

void write_bias(const Backward& b, float* db) {
  const Recurrent& r = b.r;
  const int64_t wide = r.gates() * r.u;
  for (int64_t j = 0; j < wide; ++j) db[j] = static_cast<float>(b.bias_sums[j]);
  if (r.cell != CellKind::kGru) return;
  for (int64_t j = 0; j < wide; ++j) db[wide + j] = static_cast<float>(b.bias_sums[j < 2 * r.u ? j : j + r.u]);
}

void begin_state(const CellTensors& t, Slot from, Slot to, int64_t count) {
  if (to < 0) return;
  if (from >= 0)
    std::copy_n(t.in(from), count, t.out(to));
  else
    std::fill_n(t.out(to), count, 0.0F);
}

void run_backward(const Backward& b, const CellTensors& t) {
  const Recurrent& r = b.r;
  if (b.again()) b.w.pack(t.in(1));
  if (b.again()) b.u.pack(t.in(2));
  if (r.out_dx >= 0) b.w_transposed.pack(t.in(1));
  b.u_transposed.pack(t.in(2));
  begin_state(t, r.in_dh, r.out_dh, r.n * r.u);
  begin_state(t, r.in_dc, r.out_dc, r.n * r.u);
  for (int64_t end = r.t; end > 0;) {
    const Range range{(end - 1) / b.steps * b.steps, end};
    parallel_items(b.threads, b.blocks.count,
                   [&](int64_t block, int thread) { block_back(b, t, range, block, thread); });
    if (r.out_dw >= 0) add_weight_gradients(b, t, range);
    end = range.begin;
  }
  if (r.out_db >= 0) write_bias(b, t.out(r.out_db));
}

}  // namespace

Result<Recipe> recurrent_grad_recipe(const Problem& p) {
  constexpr double kEfficiency = 0.5;
  constexpr int64_t kRowsOfProduct = 1024;  // long enough that adding to the weights' gradients costs little
  Backward backward{};
  backward.r = read_recurrent(p.attrs(), p.in_shape(0), p.in_shape(2));
  const Recurrent& r = backward.r;
  backward.threads = p.machine.threads;
  backward.blocks = blocks_of(r, backward.threads);
  backward.steps = std::min(r.t, r.saves == CellSaves::kCheckpoints
                                     ? r.every
                                     : std::max<int64_t>(1, kRowsOfProduct / std::max<int64_t>(1, r.n)));
  const Bytes workspace = backward.place(nullptr);
  const double seconds = p.machine.seconds(flops_of(p.graph, p.node), kEfficiency, p.traffic());
  return own_recipe("recurrent_grad", workspace, seconds, [backward](const BoundNode& node) {
    Backward bound = backward;
    bound.place(node.workspace);
    return [bound, tensors = CellTensors(node)] { run_backward(bound, tensors); };
  });
}

}  // namespace plimsoll::engine::cpu
