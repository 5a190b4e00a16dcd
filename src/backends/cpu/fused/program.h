// Compiles element-wise ops, a single op or a fused body of several, to instructions over small tiles.
//
// The tensors of a program share one shape, seen as rows of `channels` elements. The shape is cut into tiles that fit
// the L1 cache. For each tile every instruction runs once: it reads inputs in place, keeps intermediate results in
// registers (tile-sized scratch) and writes outputs in place. Channel vectors are expanded to the length of a tile once
// per run, so that instructions are flat loops whatever the number of channels. Reductions add into tile-long float
// accumulators, which are added into doubles every few tiles. The sums of fixed chunks are then added in order, so the
// result does not depend on the number of threads.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/simd/simd.h"
#include "graph/graph.h"

namespace plimsoll::engine::cpu {

struct Operand {
  enum class Kind : uint8_t {
    kInput,   // element i of the tile is element first + i of input `index`
    kOutput,  // the same for output `index`
    kWhole,   // the address of input `index`, for scalars and seeds
    kRegister,
    kVector,       // derived channel vector
    kScalar,       // derived scalar
    kAccumulator,  // accumulator of a reduction
  };
  Kind kind;
  int index;
  int bytes = 4;  // size of an element
};

struct Instruction {
  TileOp op;
  std::vector<Operand> in, out;
  float f[4] = {};
  int64_t i[6] = {};
  std::shared_ptr<const TileView> view = nullptr;  // of a broadcast; i[0] is its address
};

using Inputs = std::span<void* const>;

// Computed at the start of each run because it depends on values in memory (variances, a learning rate). The result is
// `channels` floats for a vector, one float for a scalar.
using Derive = std::function<void(Inputs inputs, float* result)>;
// `finish` is called at the end, for each segment of rows, with the sums of this reduction's accumulators, `channels`
// doubles each.
using Finish = std::function<void(Inputs inputs, Inputs outputs, const double* sums, int64_t segment)>;
struct Reduction {
  int first_accumulator = 0;
  Finish finish;
};

struct TileProgram {
  int64_t rows = 1, channels = 1;
  int64_t segments = 1;  // parts of equally many rows that are summed separately
  std::vector<Instruction> instructions;
  std::vector<Derive> vectors, scalars;
  std::vector<Reduction> reductions;
  int registers = 0, accumulators = 0, outputs = 0;
  double work = 0;  // cost per element, relative to an add

  int64_t elements() const { return rows * channels; }
};

// `nodes` read `inputs` and each other's results and produce `outputs`. Fails with kUnsupported if a node cannot be
// part of a tile program.
Result<TileProgram> compile_tiles(const Graph& graph, std::span<const Node> nodes, std::span<const ValueId> inputs,
                                  std::span<const ValueId> outputs);

bool has_tile_form(const std::string& op);

// How a program's shape is cut into tiles and work items.
struct Tiling {
  // A tile is either whole rows (tile_columns = channels) or part of one row (tile_rows = 1).
  int64_t tile_rows = 1, tile_columns = 1;
  // Number of work items; depends only on the shape. Each segment of rows has equally many chunks.
  int64_t row_chunks = 1, column_chunks = 1;
  int64_t length() const { return tile_rows * tile_columns; }
};
Tiling tiling_of(const TileProgram& program);
Bytes tile_workspace(const TileProgram& program, int threads);

// A program bound to addresses.
class TileRun {
 public:
  TileRun(TileProgram program, int threads, Inputs inputs, Inputs outputs, void* workspace);
  void run();

 private:
  struct Pointer {
    char* base;
    int64_t by_element, by_column, by_thread;  // bytes the address advances per element, column and thread
  };
  struct Step {
    TileFunction function;
    Pointer in[8], out[3];
    int inputs, outputs;
    const Instruction* source;
  };

  void separate_overwritten_inputs();
  Pointer resolve(const Operand& operand) const;
  void prepare();
  void run_item(int64_t item, int thread);
  void run_tile(int64_t row, int64_t column, int64_t n, int thread);
  void spill(int64_t chunk, int64_t column, int64_t n, int thread);
  void finish();

  TileProgram program_;
  Tiling tiling_;
  int threads_;
  std::vector<void*> inputs_, outputs_;
  std::vector<Step> steps_;
  // Parts of the workspace.
  float* vectors_;  // derived vectors, expanded to the tile length if a tile holds whole rows
  float* scalars_;
  double* sums_;  // row_chunks x accumulators x channels
  char* per_thread_;
  int64_t thread_bytes_;
};

}  // namespace plimsoll::engine::cpu
