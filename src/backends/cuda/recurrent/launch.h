// The kernels of loops over time: launch functions and their plain arguments. Launch functions report errors through
// cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/common/element.h"
#include "ops/cell_function.h"

namespace plimsoll::engine::cuda {

enum class LoopCell : uint8_t { kSimple, kLstm, kGru, kGruResetBefore };

// What all kernels of a loop know. Addresses are those of the node's tensors or of its workspace.
struct LoopShape {
  Element element;
  LoopCell cell;
  CellFunction activation, recurrent_activation;
  bool matrix;  // tensor cores
  bool reverse, keeps_order, sequences, zeroes_masked;
  int n, t, d, u;
  int gates, sums, saved;          // vectors of u numbers: of the weights, of their gradients, saved per step
  int padded, k_block;             // u rounded up to whole blocks of the sum
  int tiles, block_tiles, blocks;  // of 8 units
  int groups, rows, row_tile;
  int split;
  int x_masks, h_masks;
  int shared_bytes;
  bool in_shared;                             // whether the weights of a block are in shared memory
  const void *mask, *x_mask, *h_mask, *bias;  // null if there is none
  const void *h0, *c0;
  const int* first;  // the first step of each sample that is not masked
};

// The states and gates of steps [begin, begin + steps), by sample and then by step.
struct LoopRecord {
  void *states = nullptr, *carries = nullptr, *gates = nullptr;  // null: not recorded
  int begin = 0, steps = 0;
  bool is_output = false;  // the states are the output of the node: at its steps, and 0 before the first unmasked one
  // Where the states before step `begin` are: `start_row` elements from one sample to the next.
  const void *start_h = nullptr, *start_c = nullptr;
  int64_t start_row = 0;
};

struct LoopForward {
  LoopShape shape;
  LoopRecord record;
  int begin, end;
  const void* packed;
  float* products;  // of steps [begin, end): [step][n][gates * u]
  float *state_h, *state_c;
  void *exchange, *reset;  // [2][copies][padded rows][padded], [padded rows][padded]
  int64_t exchange_copy;   // elements of one copy
  unsigned* counters;
  void *y, *h, *c;                    // outputs; null if not wanted
  void *checkpoint_h, *checkpoint_c;  // null without checkpoints
  int every, checkpoints;
};
void launch_loop_forward(const LoopForward& f, cudaStream_t stream);

struct LoopBackward {
  LoopShape shape;
  LoopRecord record;
  int begin, end;
  const void* packed;
  const void* dy;
  float *grad_h, *grad_c;
  void* sums;  // of steps [begin, end): [step][n][sums * padded]
  float* partial;
  int64_t partial_part;  // elements of one part
  unsigned* counters;
};
void launch_loop_backward(const LoopBackward& b, cudaStream_t stream);

// The recurrent kernel [u][gates * u] in the order in which blocks read it; `back`: its transpose.
void launch_pack(const LoopShape& s, const void* weights, void* packed, bool back, cudaStream_t stream);
// The first step of each sample that is not masked.
void launch_first_steps(const LoopShape& s, int* first, cudaStream_t stream);
// The states before step `begin`: as float32, and as operands in the copy of the exchange that the step reads.
void launch_begin_states(const LoopForward& f, cudaStream_t stream);
// to[n * u] = from as float32; from null: zeros.
void launch_begin_gradient(const LoopShape& s, const void* from, float* to, cudaStream_t stream);
void launch_end_gradient(const LoopShape& s, const float* from, void* to, cudaStream_t stream);

// Inputs of steps [begin, end) after the dropout of a gate: to[step][n][d].
void launch_gather_inputs(const LoopShape& s, const void* x, int gate, int begin, int end, void* to,
                          cudaStream_t stream);
// States before the steps [begin, end), after the dropout of a gate: to[step][n][u]. `times_reset`: times the reset
// gate.
void launch_gather_states(const LoopShape& s, const LoopRecord& record, int gate, bool times_reset, int begin, int end,
                          void* to, cudaStream_t stream);
// dx at the steps [begin, end) from [parts][step][n][d], where each part is the gradient after the dropout of one gate.
void launch_scatter_inputs(const LoopShape& s, const float* from, int parts, int begin, int end, void* dx,
                           cudaStream_t stream);
// to[columns] += the sums over `rows` rows.
void launch_column_sums(const LoopShape& s, const void* from, int64_t rows, float* to, cudaStream_t stream);
// The gradients of the biases from the sums of their columns.
void launch_bias_gradient(const LoopShape& s, const float* from, void* to, cudaStream_t stream);
// to = from, rounded.
void launch_round(Element element, const float* from, int64_t count, void* to, cudaStream_t stream);

}  // namespace plimsoll::engine::cuda
