// The backward pass of a loop over time, one chunk of steps per launch, from its last step to its first. A thread makes
// the gradients of the same units and samples in all steps.
//
// The sum over the gates of all units is long, and every block would read all of its operand. So kSplit blocks share
// the columns of kSplit tiles: each makes the sums over a share of the terms, and then adds the parts of its own tile.
#include "backends/cuda/recurrent/loop.cuh"

namespace plimsoll::engine::cuda {
namespace {

// What the backward pass of one unit of one sample reads of a step.
struct Known {
  float gate[4];
  float h, h_after, c, c_after, dy;
  bool unmasked;
};

template <typename T, bool kMatrix, int kRows, int kColumns>
class Block {
 public:
  static constexpr int kItems = (kRows * kTile + kLoopThreads - 1) / kLoopThreads;
  using Layout = WarpLayout<kMatrix, kRows>;

  __device__ Block(const LoopBackward& b, unsigned char* shared)
      : b_(b), s_(b.shape), partial_(reinterpret_cast<float*>(shared)) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    row_part_ = warp % Layout::kRowParts;
    sum_part_ = warp / Layout::kRowParts;
    first_row_ = static_cast<int>(blockIdx.y) * s_.rows;
    first_tile_ = static_cast<int>(blockIdx.x) * s_.block_tiles;
    gate_blocks_ = s_.padded / s_.k_block;
    const int all = s_.gates * gate_blocks_, part = static_cast<int>(blockIdx.x) % kColumns;
    from_ = kColumns > 1 ? all * part / kColumns : 0;
    to_ = kColumns > 1 ? all * (part + 1) / kColumns : all;
    counter_ = b.counters + static_cast<int64_t>(blockIdx.y) * (1 + s_.blocks) * kLoopCounterWords;
    row_ = static_cast<int64_t>(s_.sums) * s_.padded;
    load_weights(all);
  }

  __device__ void run() {
    const bool one = s_.rows <= kRows && s_.block_tiles == 1;  // the whole share of the block fits in registers
    Known known[kItems];
    if (one) load_all(b_.end - 1, known);
    for (int step = b_.end - 1; step >= b_.begin; --step) {
      each_tile([&](int row, int tile) {
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          if (!one) known[i] = load(step, row, tile, i);
          cell(step, row, tile, i, known[i]);
        }
      });
      meet();
      if (s_.cell == LoopCell::kGruResetBefore) {
        wait();
        each_tile([&](int row, int tile) {
          make_sums(step, row, tile, 2, 3);
#pragma unroll
          for (int i = 0; i < kItems; ++i) through_reset(step, row, tile, i);
          __syncthreads();
        });
        meet();
      }
      if (one && step > b_.begin) load_all(step - 1, known);
      wait();
      const int gates = s_.cell == LoopCell::kGruResetBefore ? 2 : s_.gates;
      if constexpr (kColumns > 1) {
        for (int row = 0; row < s_.rows; row += kRows) share_sums(step, row);
        meet_sharers();
        for (int row = 0; row < s_.rows; row += kRows)
#pragma unroll
          for (int i = 0; i < kItems; ++i) add_shares(row, i);
      } else {
        each_tile([&](int row, int tile) {
          make_sums(step, row, tile, 0, gates);
#pragma unroll
          for (int i = 0; i < kItems; ++i) {
            const Item at = item(row, tile, i);
            if (at.exists) add_to_gradient(at, sum_of(at, 0));
          }
          __syncthreads();
        });
      }
    }
  }

 private:
  struct Item {
    int row, n, unit, j;
    bool exists;
  };
  __device__ Item item(int row, int tile, int i) const {
    const int index = static_cast<int>(threadIdx.x) + i * kLoopThreads;
    Item made;
    made.row = index / kTile;
    made.unit = index % kTile;
    made.n = first_row_ + row + made.row;
    made.j = (first_tile_ + tile) * kTile + made.unit;
    made.exists = made.row < kRows && row + made.row < s_.rows && made.n < s_.n && made.j < s_.u;
    return made;
  }
  template <typename F>
  __device__ void each_tile(F f) {
    for (int row = 0; row < s_.rows; row += kRows)
      for (int tile = 0; tile < s_.block_tiles && first_tile_ + tile < s_.tiles; ++tile) f(row, tile);
  }

  // The packed weights are [tile][k block]. In shared memory, those of several tiles with the same terms are adjacent.
  __device__ void load_weights(int all) {
    const T* const packed = static_cast<const T*>(b_.packed);
    const int first = kColumns > 1 ? first_tile_ / kColumns * kColumns : first_tile_;
    const int tiles = kColumns > 1 ? kColumns : min(s_.block_tiles, s_.tiles - first_tile_);
    weights_ = {packed + (static_cast<int64_t>(first) * all + from_) * kBlockElements<T>, kBlockElements<T>,
                static_cast<int64_t>(all) * kBlockElements<T>};
    if (!s_.in_shared) return;
    constexpr int kSums = Layout::kSumParts * kRows * kPitch<kColumns>;
    constexpr int kWords = kBlockElements<T> * static_cast<int>(sizeof(T)) / 16;
    auto* const to = reinterpret_cast<uint4*>(partial_ + kSums);
    const int blocks = to_ - from_;
    for (int i = static_cast<int>(threadIdx.x); i < tiles * blocks * kWords; i += kLoopThreads) {
      const int word = i % kWords, k = i / kWords % blocks, tile = i / kWords / blocks;
      to[i] =
          reinterpret_cast<const uint4*>(weights_.first + tile * weights_.tile_stride + k * weights_.k_stride)[word];
    }
    weights_ = {reinterpret_cast<const T*>(to), kBlockElements<T>, static_cast<int64_t>(blocks) * kBlockElements<T>};
    __syncthreads();
  }

  __device__ void wait() {
    if (!pending_) return;
    wait_for(counter_, ++meetings_ * static_cast<unsigned>(s_.blocks));
    pending_ = false;
  }
  __device__ void meet() {
    if (s_.blocks == 1) {
      __syncthreads();
      return;
    }
    arrive(counter_);
    pending_ = true;
  }
  __device__ void meet_sharers() {
    unsigned* const counter = counter_ + (1 + static_cast<int64_t>(blockIdx.x) / kColumns) * kLoopCounterWords;
    arrive(counter);
    wait_for(counter, ++shares_ * kColumns);
  }

  __device__ void load_all(int step, Known (&known)[kItems]) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) known[i] = load(step, 0, 0, i);
  }

  __device__ float state_after(const Item& at, int step) const {
    return recorded_state<T>(s_, b_.record, at.n, at.j, step);
  }
  __device__ float carry_after(const Item& at, int step) const {
    const LoopRecord& record = b_.record;
    if (step < record.begin) return to_float(static_cast<const T*>(record.start_c)[at.n * record.start_row + at.j]);
    return to_float(static_cast<const T*>(
        record.carries)[(static_cast<int64_t>(at.n) * record.steps + step - record.begin) * s_.u + at.j]);
  }

  __device__ Known load(int step, int row, int tile, int i) const {
    const Item at = item(row, tile, i);
    Known known = {};
    if (!at.exists) return known;
    const LoopRecord& record = b_.record;
    known.unmasked = is_unmasked<T>(s_, at.n, step);
    const bool reached = known.unmasked || (!s_.zeroes_masked && step > s_.first[at.n]);
    if (b_.dy != nullptr && reached && (s_.sequences || step + 1 == s_.t)) {
      const int64_t from = s_.sequences ? static_cast<int64_t>(at.n) * s_.t + output_step(s_, step) : at.n;
      known.dy = to_float(static_cast<const T*>(b_.dy)[from * s_.u + at.j]);
    }
    if (!known.unmasked) return known;
    if (s_.cell == LoopCell::kSimple)
      known.h_after = state_after(at, step);
    else if (s_.cell != LoopCell::kLstm)
      known.h = state_after(at, step - 1);
    if (s_.cell == LoopCell::kLstm) {
      known.c = carry_after(at, step - 1);
      known.c_after = carry_after(at, step);
    }
    const T* const gates = static_cast<const T*>(record.gates) +
                           (static_cast<int64_t>(at.n) * record.steps + step - record.begin) * s_.saved * s_.u + at.j;
#pragma unroll
    for (int g = 0; g < 4; ++g)
      if (g < s_.saved) known.gate[g] = to_float(gates[g * s_.u]);
    return known;
  }

  __device__ T* sums_at(const Item& at, int step) const {
    return static_cast<T*>(b_.sums) + (static_cast<int64_t>(step - b_.begin) * s_.n + at.n) * row_ + at.j;
  }

  // The gradients of a step's sums; the running gradients become what reaches the states before without the products.
  __device__ void cell(int step, int row, int tile, int i, const Known& known) {
    const Item at = item(row, tile, i);
    if (!at.exists) return;
    const int64_t state = static_cast<int64_t>(at.n) * s_.u + at.j;
    float dh = b_.grad_h[state] + known.dy, d[4] = {};
    const CellFunction f = s_.activation, r = s_.recurrent_activation;
    const float* const gate = known.gate;
    if (known.unmasked && s_.cell == LoopCell::kSimple) {
      d[0] = dh * slope_at(f, known.h_after);
      dh = 0;
    } else if (known.unmasked && s_.cell == LoopCell::kLstm) {
      const float squashed = value_of<sizeof(T) == 2>(f, known.c_after);
      const float dc = b_.grad_c[state] + dh * gate[3] * slope_at(f, squashed);
      d[0] = dc * gate[2] * slope_at(r, gate[0]);
      d[1] = dc * known.c * slope_at(r, gate[1]);
      d[2] = dc * gate[0] * slope_at(f, gate[2]);
      d[3] = dh * squashed * slope_at(r, gate[3]);
      b_.grad_c[state] = dc * gate[1];
      dh = 0;
    } else if (known.unmasked) {
      d[0] = dh * (known.h - gate[2]) * slope_at(r, gate[0]);
      d[2] = dh * (1.0F - gate[0]) * slope_at(f, gate[2]);
      if (s_.cell == LoopCell::kGru) {
        d[1] = d[2] * gate[3] * slope_at(r, gate[1]);
        d[3] = d[2] * gate[1];
      }
      dh *= gate[0];
    }
    T* const to = sums_at(at, step);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (k < s_.sums) to[static_cast<int64_t>(k) * s_.padded] = from_float<T>(d[k]);
    b_.grad_h[state] = dh;
  }

  // The product with r * h: from its gradient those of r and h.
  __device__ void through_reset(int step, int row, int tile, int i) {
    const Item at = item(row, tile, i);
    if (!at.exists || !is_unmasked<T>(s_, at.n, step)) return;
    const Known known = load(step, row, tile, i);
    const float back = sum_of(at, 0) * (s_.h_masks == 1 ? state_factor<T>(s_, at.n, 2, at.j) : 1.0F);
    sums_at(at, step)[s_.padded] = from_float<T>(back * known.h * slope_at(s_.recurrent_activation, known.gate[1]));
    b_.grad_h[static_cast<int64_t>(at.n) * s_.u + at.j] += back * known.gate[1];
  }

  __device__ void add_to_gradient(const Item& at, float sum) {
    if (s_.h_masks == 1) sum *= state_factor<T>(s_, at.n, 0, at.j);
    b_.grad_h[static_cast<int64_t>(at.n) * s_.u + at.j] += sum;
  }

  // Adds the products of the k blocks [begin, end) of the gates' sums to those of a warp.
  using Sums = float[Layout::kTiles][kColumns][4];
  __device__ void multiply_blocks(Sums& sums, int step, int row, int tile, int begin, int end) {
    const int warp_row = row_part_ * Layout::kTiles * 16;
    const T* const rows = static_cast<const T*>(b_.sums) +
                          (static_cast<int64_t>(step - b_.begin) * s_.n + first_row_ + row + warp_row) * row_;
    Weights<T> weights = weights_;
    weights.first += tile * weights.tile_stride - from_ * weights.k_stride;
    const int live = (s_.rows - row - warp_row) / 16;
    // The candidate of a GRU that resets after the product has its sums' gradients behind those for the input.
    const int late = s_.cell == LoopCell::kGru ? 2 * gate_blocks_ : end;
    const int from = begin + sum_part_, middle = min(end, late);
    step_product<T, kMatrix, Layout::kTiles, kColumns, 0, kColumns>(sums, rows, row_, live, weights, from, middle,
                                                                    Layout::kSumParts);
    if (end <= late) return;
    int next = from;
    while (next < late) next += Layout::kSumParts;
    step_product<T, kMatrix, Layout::kTiles, kColumns, 0, kColumns>(sums, rows + s_.padded, row_, live, weights, next,
                                                                    end, Layout::kSumParts);
  }
  __device__ void put(const Sums& sums) {
    store_sums<Layout::kTiles, kColumns, 0, kColumns>(
        sums, partial_ + (sum_part_ * kRows + row_part_ * Layout::kTiles * 16) * kPitch<kColumns>);
    __syncthreads();
  }
  __device__ float sum_of(const Item& at, int column) const {
    return add_sums<Layout::kSumParts, kRows, kColumns>(partial_, at.row, column * kTile + at.unit);
  }

  // The sums over gates [begin, end) of one tile. With a dropout per gate, each gate's sums are multiplied by its mask.
  __device__ void make_sums(int step, int row, int tile, int begin, int end) {
    Sums sums = {};
    if (s_.h_masks <= 1) {
      multiply_blocks(sums, step, row, tile, begin * gate_blocks_, end * gate_blocks_);
      put(sums);
      return;
    }
    for (int gate = begin; gate < end; ++gate) {
      Sums part = {};
      multiply_blocks(part, step, row, tile, gate * gate_blocks_, (gate + 1) * gate_blocks_);
      add_masked(sums, part, gate, row, tile);
    }
    put(sums);
  }
  __device__ void add_masked(Sums& sums, const Sums& part, int gate, int row, int tile) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int m = 0; m < Layout::kTiles; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int n = first_row_ + row + (row_part_ * Layout::kTiles + m) * 16 + lane / 4 + e / 2 * 8;
        const int j = (first_tile_ + tile) * kTile + lane % 4 * 2 + e % 2;
        if (n < s_.n && j < s_.u) sums[m][0][e] += part[m][0][e] * state_factor<T>(s_, n, gate, j);
      }
  }

  // This block's part of the sums of all tiles that it shares.
  __device__ void share_sums(int step, int row) {
    Sums sums = {};
    multiply_blocks(sums, step, row, 0, from_, to_);
    put(sums);
    const int columns = s_.tiles * kTile, first = first_tile_ / kColumns * kColumns * kTile;
    float* const to = b_.partial + static_cast<int64_t>(blockIdx.x % kColumns) * b_.partial_part;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kColumns * kTile; i += kLoopThreads) {
      const int column = i % (kColumns * kTile), at = i / (kColumns * kTile);
      if (row + at >= s_.rows) continue;
      to[static_cast<int64_t>(first_row_ + row + at) * columns + first + column] =
          add_sums<Layout::kSumParts, kRows, kColumns>(partial_, at, column);
    }
    __syncthreads();
  }
  __device__ void add_shares(int row, int i) {
    const Item at = item(row, 0, i);
    if (!at.exists) return;
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kColumns; ++part)
      sum += __ldcg(b_.partial + part * b_.partial_part + static_cast<int64_t>(at.n) * s_.tiles * kTile + at.j);
    add_to_gradient(at, sum);
  }

  const LoopBackward& b_;
  const LoopShape& s_;
  float* partial_;
  Weights<T> weights_;
  unsigned* counter_;
  unsigned meetings_ = 0, shares_ = 0;
  bool pending_ = false;
  int64_t row_;
  int row_part_, sum_part_, first_row_, first_tile_, gate_blocks_, from_, to_;
};

template <typename T, bool kMatrix, int kRows, int kColumns>
__global__ void __launch_bounds__(kLoopThreads, 1) run_backward(const __grid_constant__ LoopBackward b) {
  extern __shared__ uint4 shared[];
  Block<T, kMatrix, kRows, kColumns>(b, reinterpret_cast<unsigned char*>(shared)).run();
}

}  // namespace

void launch_loop_backward(const LoopBackward& b, cudaStream_t stream) {
  with_loop(b.shape, [&]<typename T, bool kMatrix, int kRows>() {
    if (b.shape.split > 1)
      launch_together(run_backward<T, kMatrix, kRows, 4>, b.shape, b, stream);
    else
      launch_together(run_backward<T, kMatrix, kRows, 1>, b.shape, b, stream);
  });
}

}  // namespace plimsoll::engine::cuda
