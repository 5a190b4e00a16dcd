// The kernel of `recurrent`: blocks of samples side by side, each through all its steps.
#include <algorithm>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recurrent/recurrent.h"
#include "ops/op.h"

namespace plimsoll::engine::cpu {

namespace {

struct Forward {
  Recurrent r;
  Blocks blocks;
  int threads;
  PackedWeights w, u;
  std::vector<StepScratch> scratch;  // one per thread

  Bytes place(void* address) {
    Workspace workspace(address);
    w = input_weights(r, false);
    u = state_weights(r, false);
    w.panels = workspace.take(w.elements());
    u.panels = workspace.take(u.elements());
    scratch.clear();
    for (int i = 0; i < threads; ++i) scratch.push_back(take_step_scratch(r, blocks, workspace));
    return workspace.bytes();
  }
};

// Writes the states before step s if the backward pass begins a segment there.
void save_checkpoint(const Recurrent& r, const CellTensors& t, const StepScratch& scratch, int64_t first, int64_t rows,
                     int64_t s) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = ((first + row) * r.checkpoints() + s / r.every) * r.u;
    std::copy_n(scratch.h + row * r.u, r.u, t.out(r.out_states) + at);
    if (r.out_carries >= 0) std::copy_n(scratch.c + row * r.u, r.u, t.out(r.out_carries) + at);
  }
}

void save_step(const Recurrent& r, const CellTensors& t, const SampleStep& step) {
  const int64_t at = step.n * r.t + step.s;
  if (r.out_states >= 0) std::copy_n(step.h, r.u, t.out(r.out_states) + at * r.u);
  if (r.out_carries >= 0) std::copy_n(step.c, r.u, t.out(r.out_carries) + at * r.u);
  if (r.out_gates < 0) return;
  float* gates = t.out(r.out_gates) + at * r.saved() * r.u;
  if (!step.unmasked) {
    std::fill_n(gates, r.saved() * r.u, 0.0F);
    return;
  }
  std::copy_n(step.gates, r.gates() * r.u, gates);
  if (step.inner != nullptr) std::copy_n(step.inner, r.u, gates + r.gates() * r.u);
}

// As in Keras, a masked step repeats the output before it, and outputs are 0 before the first unmasked step.
void write_output(const Recurrent& r, const CellTensors& t, const SampleStep& step) {
  float* y = t.out(0);
  if (r.sequences) {
    y += (step.n * r.t + r.output_step(step.s)) * r.u;
    const float* before = step.s == 0 ? nullptr : t.out(0) + (step.n * r.t + r.output_step(step.s - 1)) * r.u;
    const float* repeated = r.zeroes_masked ? nullptr : before;
    if (step.unmasked)
      std::copy_n(step.h, r.u, y);
    else if (repeated != nullptr)
      std::copy_n(repeated, r.u, y);
    else
      std::fill_n(y, r.u, 0.0F);
  } else if (step.s + 1 == r.t) {
    const bool any = step.unmasked || (!r.zeroes_masked && first_unmasked(r, t, step.n) < r.t);
    if (any)
      std::copy_n(step.h, r.u, y + step.n * r.u);
    else
      std::fill_n(y + step.n * r.u, r.u, 0.0F);
  }
}

void run_block(const Forward& f, const CellTensors& t, int64_t block, int thread) {
  const Recurrent& r = f.r;
  const StepScratch& scratch = f.scratch[static_cast<size_t>(thread)];
  const int64_t first = block * f.blocks.rows, rows = std::min(f.blocks.rows, r.n - first);
  std::copy_n(t.in(3) + first * r.u, rows * r.u, scratch.h);
  if (r.has_carry()) std::copy_n(t.in(r.in_carry) + first * r.u, rows * r.u, scratch.c);
  const auto visit = [&](const SampleStep& step) {
    if (r.saves == CellSaves::kEverything) save_step(r, t, step);
    write_output(r, t, step);
  };
  const int64_t segment = r.saves == CellSaves::kCheckpoints ? r.every : r.t;
  for (int64_t s = 0; s < r.t; s += segment) {
    if (r.saves == CellSaves::kCheckpoints) save_checkpoint(r, t, scratch, first, rows, s);
    run_steps(r, t, f.w, f.u, f.blocks, scratch, first, rows, s, std::min(r.t, s + segment), visit);
  }
  std::copy_n(scratch.h, rows * r.u, t.out(1) + first * r.u);
  if (r.out_carry >= 0) std::copy_n(scratch.c, rows * r.u, t.out(r.out_carry) + first * r.u);
}

}  // namespace

Result<Recipe> recurrent_recipe(const Problem& p) {
  constexpr double kEfficiency = 0.5;
  Forward forward;
  forward.r = read_recurrent(p.attrs(), p.in_shape(0), p.in_shape(2));
  forward.threads = p.machine.threads;
  forward.blocks = blocks_of(forward.r, forward.threads);
  const Bytes workspace = forward.place(nullptr);
  const double seconds = p.machine.seconds(flops_of(p.graph, p.node), kEfficiency, p.traffic());
  return own_recipe("recurrent", workspace, seconds, [forward](const BoundNode& node) {
    Forward bound = forward;
    bound.place(node.workspace);
    return [bound, tensors = CellTensors(node)] {
      bound.w.pack(tensors.in(1));
      bound.u.pack(tensors.in(2));
      parallel_items(bound.threads, bound.blocks.count,
                     [&](int64_t block, int thread) { run_block(bound, tensors, block, thread); });
    };
  });
}

}  // namespace plimsoll::engine::cpu
