// Packed weights and the parts of a step that the forward and the backward kernel share.
#include <algorithm>

#include "backends/cpu/recurrent/recurrent.h"
#include "backends/cpu/simd/cells.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

int64_t padded(int64_t columns) {
  const int64_t nr = simd().gemm_nr;
  return (columns + nr - 1) / nr * nr;
}

std::vector<ColumnGroup> per_gate(const Recurrent& r) {
  std::vector<ColumnGroup> groups;
  for (int64_t gate = 0; gate < r.gates(); ++gate) groups.push_back({gate * r.u, r.u, gate});
  return groups;
}

}  // namespace

int64_t PackedWeights::group_elements(size_t g) const {
  return transposed ? groups[g].width * padded(rows) : rows * padded(groups[g].width);
}

int64_t PackedWeights::elements() const {
  int64_t sum = 0;
  for (size_t g = 0; g < groups.size(); ++g) sum += group_elements(g);
  return sum;
}

const float* PackedWeights::group(size_t g) const {
  const float* at = panels;
  for (size_t i = 0; i < g; ++i) at += group_elements(i);
  return at;
}

void PackedWeights::pack(const float* w) const {
  float* to = panels;
  for (size_t g = 0; g < groups.size(); to += group_elements(g++)) {
    const ColumnGroup& group = groups[g];
    if (transposed)
      cell_simd().pack_panels(w + group.column, 1, columns, group.width, rows, to);
    else
      cell_simd().pack_panels(w + group.column, columns, 1, rows, group.width, to);
  }
}

PackedWeights input_weights(const Recurrent& r, bool transposed) {
  const int64_t wide = r.gates() * r.u;
  return {r.x_masks > 1 ? per_gate(r) : std::vector<ColumnGroup>{{0, wide, 0}}, r.d, wide, transposed, nullptr};
}

// The candidate of a GRU is a group of its own: its operand or its sum differs from that of the gates.
PackedWeights state_weights(const Recurrent& r, bool transposed) {
  const int64_t wide = r.gates() * r.u;
  std::vector<ColumnGroup> groups = {{0, wide, 0}};
  if (r.is_gru()) groups = {{0, 2 * r.u, 0}, {2 * r.u, r.u, 0}};
  if (r.h_masks > 1) groups = per_gate(r);
  return {std::move(groups), r.u, wide, transposed, nullptr};
}

CellTensors::CellTensors(const BoundNode& node) {
  for (size_t i = 0; i < node.node.inputs.size(); ++i) inputs.push_back(input<float>(node, i));
  for (size_t i = 0; i < node.node.outputs.size(); ++i) outputs.push_back(output<float>(node, i));
}

bool is_unmasked(const Recurrent& r, const CellTensors& t, int64_t n, int64_t s) {
  return r.in_mask < 0 || t.in(r.in_mask)[n * r.t + r.input_step(s)] > 0.5F;
}

int64_t first_unmasked(const Recurrent& r, const CellTensors& t, int64_t n) {
  int64_t s = 0;
  while (s < r.t && !is_unmasked(r, t, n, s)) ++s;
  return s;
}

Blocks blocks_of(const Recurrent& r, int threads) {
  constexpr int64_t kMostRows = 24, kEnoughRows = 8, kSteps = 16;
  const int64_t rounds = std::max<int64_t>(1, (r.n + kMostRows * threads - 1) / (kMostRows * threads));
  Blocks blocks{};
  blocks.rows = std::max<int64_t>(1, (r.n + rounds * threads - 1) / (rounds * threads));
  blocks.count = (r.n + blocks.rows - 1) / blocks.rows;
  blocks.steps = blocks.rows >= kEnoughRows ? 1 : std::min(kSteps, r.t);
  return blocks;
}

StepScratch take_step_scratch(const Recurrent& r, const Blocks& blocks, Workspace& workspace) {
  StepScratch scratch{};
  scratch.h = workspace.take(blocks.rows * r.u);
  scratch.c = workspace.take(r.has_carry() ? blocks.rows * r.u : 0);
  scratch.sums = workspace.take(blocks.steps * blocks.rows * r.gates() * r.u);
  scratch.inner = workspace.take(r.is_gru() ? blocks.rows * r.u : 0);
  const int64_t of_h = r.h_masks > 0 ? blocks.rows * r.u : 0;
  const int64_t of_x = r.x_masks > 0 ? std::max(blocks.rows, blocks.steps) * r.d : 0;
  scratch.operand = workspace.take(std::max(of_h, of_x));
  scratch.after = workspace.take(2 * r.u);
  return scratch;
}

void masked_copy(const float* from, int64_t from_row, const float* masks, int64_t masks_per_sample, int64_t mask,
                 int64_t first, int64_t rows, int64_t size, float* to) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* factor = masks + ((first + row) * masks_per_sample + mask) * size;
    for (int64_t i = 0; i < size; ++i) to[row * size + i] = from[row * from_row + i] * factor[i];
  }
}

namespace {

// c += x b for the columns of one group. `a` has `count` rows; `sample` is that of the first, and the rows are of the
// samples from there on or, with `one_sample`, all of that one.
struct GroupProduct {
  const float* a;
  int64_t a_row, count, sample;
  bool one_sample;
  float* c;
  int64_t c_row;
};

void add_input_product(const Recurrent& r, const CellTensors& t, const PackedWeights& w, const StepScratch& scratch,
                       const GroupProduct& p) {
  for (size_t g = 0; g < w.groups.size(); ++g) {
    const ColumnGroup& group = w.groups[g];
    const float* a = p.a;
    int64_t a_row = p.a_row;
    if (r.x_masks > 0) {
      const float* masks = t.in(r.in_x_masks);
      for (int64_t row = 0; row < p.count; ++row)
        masked_copy(p.a + row * p.a_row, r.d, masks, r.x_masks, group.mask, p.sample + (p.one_sample ? 0 : row), 1, r.d,
                    scratch.operand + row * r.d);
      a = scratch.operand;
      a_row = r.d;
    }
    cell_simd().panel_product(a, a_row, p.count, w.group(g), r.d, group.width, p.c + group.column, p.c_row, true);
  }
}

// The states, after dropout, as the operand of a group.
const float* state_operand(const Recurrent& r, const CellTensors& t, const StepScratch& scratch, const float* h,
                           int64_t mask, int64_t first, int64_t rows) {
  if (r.h_masks == 0) return h;
  masked_copy(h, r.u, t.in(r.in_h_masks), r.h_masks, r.h_masks == 1 ? 0 : mask, first, rows, r.u, scratch.operand);
  return scratch.operand;
}

}  // namespace

void input_sums(const Recurrent& r, const CellTensors& t, const PackedWeights& w, const StepScratch& scratch,
                int64_t first, int64_t rows, int64_t begin, int64_t end) {
  const int64_t wide = r.gates() * r.u, steps = end - begin;
  const float* bias = t.in(r.in_bias);
  for (int64_t i = 0; i < steps * rows; ++i) {
    if (bias != nullptr)
      std::copy_n(bias, wide, scratch.sums + i * wide);
    else
      std::fill_n(scratch.sums + i * wide, wide, 0.0F);
  }
  const int64_t low = r.reverse ? r.t - end : begin;  // the first step in time
  const float* x = t.in(0) + (first * r.t + low) * r.d;
  if (steps == 1) {
    add_input_product(r, t, w, scratch, {x, r.t * r.d, rows, first, false, scratch.sums, wide});
    return;
  }
  for (int64_t row = 0; row < rows; ++row)
    add_input_product(r, t, w, scratch,
                      {x + row * r.t * r.d, r.d, steps, first + row, true, scratch.sums + row * wide, rows * wide});
}

void state_sums(const Recurrent& r, const CellTensors& t, const PackedWeights& u, const StepScratch& scratch,
                float* sums, int64_t first, int64_t rows) {
  const int64_t wide = r.gates() * r.u;
  const bool after = r.cell == CellKind::kGru, before = r.cell == CellKind::kGruResetBefore;
  const float* bias = after && r.bias ? t.in(r.in_bias) + wide : nullptr;
  for (size_t g = 0; g < u.groups.size(); ++g) {
    const ColumnGroup& group = u.groups[g];
    const bool candidate = r.is_gru() && group.column == 2 * r.u;
    const float* h = scratch.h;
    if (candidate && before) {
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t j = 0; j < r.u; ++j)
          scratch.inner[row * r.u + j] = sums[row * wide + r.u + j] * scratch.h[row * r.u + j];
      h = scratch.inner;
    }
    const bool apart = candidate && after;
    float* c = apart ? scratch.inner : sums + group.column;
    const int64_t c_row = apart ? r.u : wide;
    const float* a = state_operand(r, t, scratch, h, group.mask, first, rows);
    cell_simd().panel_product(a, r.u, rows, u.group(g), r.u, group.width, c, c_row, !apart);
    if (bias != nullptr)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t j = 0; j < group.width; ++j) c[row * c_row + j] += bias[group.column + j];
    // z and r are complete before the candidate's group.
    if (r.is_gru() && group.column + group.width == 2 * r.u)
      for (int64_t row = 0; row < rows; ++row)
        cell_simd().cell_values(r.recurrent_activation, sums + row * wide, sums + row * wide, 2 * r.u);
  }
}

void finish_cell(const Recurrent& r, const StepScratch& scratch, float* gates, int64_t row) {
  const float* h = scratch.h + row * r.u;
  float* after = scratch.after;
  switch (r.cell) {
    case CellKind::kSimple:
      return cell_simd().cell_values(r.activation, gates, after, r.u);
    case CellKind::kLstm:
      return cell_simd().lstm_cell(r.activation, r.recurrent_activation, gates, scratch.c + row * r.u, after + r.u,
                                   after, r.u);
    case CellKind::kGru:
      return cell_simd().gru_cell(r.activation, gates, scratch.inner + row * r.u, h, after, r.u);
    case CellKind::kGruResetBefore:
      return cell_simd().gru_cell(r.activation, gates, nullptr, h, after, r.u);
  }
}

}  // namespace plimsoll::engine::cpu
