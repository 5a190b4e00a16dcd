// What the forward and the backward kernel of recurrent layers share: packed weights, scratch of a thread, and the loop
// over steps for a block of samples. A block runs all its steps on one thread, so threads never wait for each other
// inside the loop, and a sample's numbers do not depend on its block.
#pragma once

#include <vector>

#include "backends/cpu/recipe.h"
#include "ops/recurrent.h"

namespace plimsoll::engine::cpu {

// Hands out parts of a workspace. Without an address it only counts, so the offer and the kernel cannot differ.
class Workspace {
 public:
  explicit Workspace(void* address = nullptr) : address_(static_cast<float*>(address)) {}
  float* take(int64_t count) {
    float* part = address_ == nullptr ? nullptr : address_ + used_;
    used_ += align_up(count * 4) / 4;
    return part;
  }
  Bytes bytes() const { return used_ * 4; }

 private:
  float* address_;
  int64_t used_ = 0;
};

// Columns of a weight matrix that are multiplied by the same operand: all of them, or those of one gate where dropout
// or the reset gate changes the operand.
struct ColumnGroup {
  int64_t column, width;
  int64_t mask;  // which dropout vector of the operand
};

// A weight matrix [rows][gates * U], packed group by group for products with it or with its transpose.
struct PackedWeights {
  std::vector<ColumnGroup> groups;
  int64_t rows = 0, columns = 0;
  bool transposed = false;
  float* panels = nullptr;

  int64_t group_elements(size_t g) const;
  int64_t elements() const;
  const float* group(size_t g) const;
  void pack(const float* w) const;
};
PackedWeights input_weights(const Recurrent& r, bool transposed);
PackedWeights state_weights(const Recurrent& r, bool transposed);

// The tensors of a bound node.
struct CellTensors {
  std::vector<float*> inputs, outputs;
  explicit CellTensors(const BoundNode& node);
  const float* in(Slot slot) const { return slot < 0 ? nullptr : inputs[static_cast<size_t>(slot)]; }
  float* out(Slot slot) const { return slot < 0 ? nullptr : outputs[static_cast<size_t>(slot)]; }
};

bool is_unmasked(const Recurrent& r, const CellTensors& t, int64_t n, int64_t s);
int64_t first_unmasked(const Recurrent& r, const CellTensors& t, int64_t n);  // a step of the loop; T if there is none

// Samples per block, and how many steps' input products a block makes at once: many samples fill a product by
// themselves.
struct Blocks {
  int64_t rows, count, steps;
};
Blocks blocks_of(const Recurrent& r, int threads);

// The scratch of one thread for the steps of a block.
struct StepScratch {
  float *h, *c;    // [rows][U], the states; c only of an LSTM
  float* sums;     // [steps][rows][gates * U]
  float* inner;    // [rows][U], the candidate's part from the state, or r * h
  float* operand;  // [rows][U] or [max(rows, steps)][D], an operand after dropout
  float* after;    // [2][U], the states after a step
};
StepScratch take_step_scratch(const Recurrent& r, const Blocks& blocks, Workspace& workspace);

// One step of one sample as the loop passes it to its caller. The states after a masked step are those before it.
struct SampleStep {
  int64_t n, s;
  bool unmasked;
  const float *gates, *inner;  // the values of the gates; inner: null if the cell has none
  const float *h, *c;          // the states after the step
};

// Runs the steps [begin, end) of samples [first, first + rows), from the states in `scratch` to those after the last
// step. Calls visit(SampleStep) for every step of every sample.
template <typename Visit>
void run_steps(const Recurrent& r, const CellTensors& t, const PackedWeights& w, const PackedWeights& u,
               const Blocks& blocks, const StepScratch& scratch, int64_t first, int64_t rows, int64_t begin,
               int64_t end, const Visit& visit);

// Adds the products of the inputs of steps [begin, end) to the biases: scratch.sums, by time within these steps.
void input_sums(const Recurrent& r, const CellTensors& t, const PackedWeights& w, const StepScratch& scratch,
                int64_t first, int64_t rows, int64_t begin, int64_t end);
// Adds what comes from the state to one step's sums, and turns the gates of a GRU into their values.
void state_sums(const Recurrent& r, const CellTensors& t, const PackedWeights& u, const StepScratch& scratch,
                float* sums, int64_t first, int64_t rows);
// Makes the states after the step, in scratch.after.
void finish_cell(const Recurrent& r, const StepScratch& scratch, float* gates, int64_t row);

template <typename Visit>
void run_steps(const Recurrent& r, const CellTensors& t, const PackedWeights& w, const PackedWeights& u,
               const Blocks& blocks, const StepScratch& scratch, int64_t first, int64_t rows, int64_t begin,
               int64_t end, const Visit& visit) {
  const int64_t wide = r.gates() * r.u;
  for (int64_t from = begin; from < end; from += blocks.steps) {
    const int64_t to = std::min(end, from + blocks.steps);
    input_sums(r, t, w, scratch, first, rows, from, to);
    for (int64_t s = from; s < to; ++s) {
      float* sums = scratch.sums + (r.reverse ? to - 1 - s : s - from) * rows * wide;
      state_sums(r, t, u, scratch, sums, first, rows);
      for (int64_t row = 0; row < rows; ++row) {
        const bool unmasked = is_unmasked(r, t, first + row, s);
        if (unmasked) {
          finish_cell(r, scratch, sums + row * wide, row);
          std::copy_n(scratch.after, r.u, scratch.h + row * r.u);
          if (r.has_carry()) std::copy_n(scratch.after + r.u, r.u, scratch.c + row * r.u);
        }
        visit(SampleStep{first + row, s, unmasked, sums + row * wide,
                         r.cell == CellKind::kGru ? scratch.inner + row * r.u : nullptr, scratch.h + row * r.u,
                         r.has_carry() ? scratch.c + row * r.u : nullptr});
      }
    }
  }
}

// to[row][i] = from[row][i] * mask[first + row][mask][i], for `rows` samples of `size` elements.
void masked_copy(const float* from, int64_t from_row, const float* masks, int64_t masks_per_sample, int64_t mask,
                 int64_t first, int64_t rows, int64_t size, float* to);

Result<Recipe> recurrent_recipe(const Problem& problem);       // recurrent
Result<Recipe> recurrent_grad_recipe(const Problem& problem);  // recurrent_grad

}  // namespace plimsoll::engine::cpu
