// The forward pass of a loop over time, one chunk of steps per launch. A thread makes the states of the same units and
// samples in all steps.
#include "backends/cuda/recurrent/loop.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int gates_of(LoopCell cell) {
  return cell == LoopCell::kSimple ? 1 : cell == LoopCell::kLstm ? 4 : 3;
}

// What a thread reads for one unit of one sample before the states of the step before are known.
template <int kGates>
struct Known {
  float sums[kGates];  // from the input, with its bias
  float h, c;
  bool unmasked;
};

template <typename T, bool kMatrix, int kRows, LoopCell kCell>
class Block {
 public:
  static constexpr int kGates = gates_of(kCell), kSaved = kCell == LoopCell::kGru ? 4 : kGates;
  static constexpr bool kFast = sizeof(T) == 2;
  static constexpr int kItems = (kRows * kTile + kLoopThreads - 1) / kLoopThreads;
  using Layout = WarpLayout<kMatrix, kRows>;

  __device__ Block(const LoopForward& f, unsigned char* shared)
      : f_(f), s_(f.shape), partial_(reinterpret_cast<float*>(shared)) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    row_part_ = warp % Layout::kRowParts;
    sum_part_ = warp / Layout::kRowParts;
    first_row_ = static_cast<int>(blockIdx.y) * s_.rows;
    first_tile_ = static_cast<int>(blockIdx.x) * s_.block_tiles;
    k_blocks_ = s_.padded / s_.k_block;
    counter_ = f.counters + static_cast<int64_t>(blockIdx.y) * (1 + s_.blocks) * kLoopCounterWords;
    const int64_t tile = static_cast<int64_t>(k_blocks_) * kGates * kBlockElements<T>;
    weights_ = static_cast<const T*>(f.packed) + first_tile_ * tile;
    if (s_.in_shared) {
      constexpr int kSums = Layout::kSumParts * kRows * kPitch<kGates>;
      auto* const to = reinterpret_cast<uint4*>(partial_ + kSums);
      const auto* const from = reinterpret_cast<const uint4*>(weights_);
      const int64_t words = min(s_.block_tiles, s_.tiles - first_tile_) * tile * static_cast<int64_t>(sizeof(T)) / 16;
      for (int64_t i = threadIdx.x; i < words; i += kLoopThreads) to[i] = from[i];
      weights_ = reinterpret_cast<const T*>(to);
      __syncthreads();
    }
  }

  __device__ void run() {
    for (int step = f_.begin; step < f_.end; ++step) {
      step_ = step;
      for (int row = 0; row < s_.rows; row += kRows)
        for (int tile = 0; tile < s_.block_tiles && first_tile_ + tile < s_.tiles; ++tile) {
          Known<kGates> known[kItems];
#pragma unroll
          for (int i = 0; i < kItems; ++i) known[i] = load(step, row, tile, i);
          wait();
          if constexpr (kCell == LoopCell::kGruResetBefore) {
            make_sums<0, 2>(step, row, tile);
#pragma unroll
            for (int i = 0; i < kItems; ++i) apply_reset(row, tile, i, known[i]);
            __syncthreads();
          } else {
            make_sums<0, kGates>(step, row, tile);
#pragma unroll
            for (int i = 0; i < kItems; ++i) finish(step, row, tile, i, known[i]);
            __syncthreads();
          }
        }
      if constexpr (kCell == LoopCell::kGruResetBefore) candidates(step);
      if (step + 1 < f_.end) meet();
    }
  }

 private:
  // The row of the group, the unit, and whether they exist.
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
  __device__ T* exchange(int step) const {  // the copies that this step reads
    return static_cast<T*>(f_.exchange) + (step & 1) * copies() * f_.exchange_copy;
  }
  __device__ int copies() const {
    return s_.h_masks > 1 ? kGates : 1;
  }

  __device__ Known<kGates> load(int step, int row, int tile, int i) const {
    const Item at = item(row, tile, i);
    Known<kGates> known = {};
    if (!at.exists) return known;
    const float* sums = f_.products + (static_cast<int64_t>(step - f_.begin) * s_.n + at.n) * kGates * s_.u + at.j;
    const T* bias = static_cast<const T*>(s_.bias);
#pragma unroll
    for (int g = 0; g < kGates; ++g)
      known.sums[g] = sums[g * s_.u] + (bias == nullptr ? 0.0F : to_float(bias[g * s_.u + at.j]));
    known.h = f_.state_h[static_cast<int64_t>(at.n) * s_.u + at.j];
    if (kCell == LoopCell::kLstm) known.c = f_.state_c[static_cast<int64_t>(at.n) * s_.u + at.j];
    known.unmasked = is_unmasked<T>(s_, at.n, step);
    return known;
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

  // The partial sums of gates [kFirst, kFirst + kCount) with the states before the step.
  template <int kFirst, int kCount>
  __device__ void make_sums(int step, int row, int tile) {
    float sums[Layout::kTiles][kGates][4] = {};
    const T* const states = exchange(step);
    if (s_.h_masks > 1) {
      each_gate<kFirst, kCount>(
          [&]<int kGate>() { multiply_gates<kGate, 1>(sums, states + kGate * f_.exchange_copy, row, tile); });
    } else {
      multiply_gates<kFirst, kCount>(sums, states, row, tile);
    }
    put<kFirst, kCount>(sums);
  }
  template <int kFirst, int kCount, typename F>
  __device__ void each_gate(F f) {
    f.template operator()<kFirst>();
    if constexpr (kCount > 1) each_gate<kFirst + 1, kCount - 1>(f);
  }
  template <int kFirst, int kCount>
  __device__ void multiply_gates(float (&sums)[Layout::kTiles][kGates][4], const T* states, int row, int tile) {
    const int warp_row = row_part_ * Layout::kTiles * 16;
    const int live = (s_.rows - row - warp_row) / 16;
    const Weights<T> weights{weights_ + (static_cast<int64_t>(tile) * k_blocks_ * kGates + kFirst) * kBlockElements<T>,
                             kGates * kBlockElements<T>, kBlockElements<T>};
    step_product<T, kMatrix, Layout::kTiles, kGates, kFirst, kCount>(
        sums, states + static_cast<int64_t>(first_row_ + row + warp_row) * s_.padded, s_.padded, live, weights,
        sum_part_, k_blocks_, Layout::kSumParts);
  }
  template <int kFirst, int kCount>
  __device__ void put(const float (&sums)[Layout::kTiles][kGates][4]) {
    store_sums<Layout::kTiles, kGates, kFirst, kCount>(
        sums, partial_ + (sum_part_ * kRows + row_part_ * Layout::kTiles * 16) * kPitch<kGates>);
    __syncthreads();
  }
  __device__ float from_state(const Item& at, int gate) const {
    float sum = add_sums<Layout::kSumParts, kRows, kGates>(partial_, at.row, gate * kTile + at.unit);
    if (kCell == LoopCell::kGru && s_.bias != nullptr)
      sum += to_float(static_cast<const T*>(s_.bias)[(kGates + gate) * s_.u + at.j]);
    return sum;
  }

  // Gates z and r, which replace their products, and r * h as the operand of the candidate.
  __device__ void apply_reset(int row, int tile, int i, const Known<kGates>& known) {
    const Item at = item(row, tile, i);
    if (!at.exists) return;
    float* const sums = f_.products + product_at(at);
    const float z = value_of<kFast>(s_.recurrent_activation, known.sums[0] + from_state(at, 0));
    const float r = value_of<kFast>(s_.recurrent_activation, known.sums[1] + from_state(at, 1));
    sums[0] = z;
    sums[s_.u] = r;
    static_cast<T*>(f_.reset)[static_cast<int64_t>(at.n) * s_.padded + at.j] =
        from_float<T>(r * known.h * state_factor<T>(s_, at.n, 2, at.j));
  }
  __device__ int64_t product_at(const Item& at) const {
    return (static_cast<int64_t>(step_ - f_.begin) * s_.n + at.n) * kGates * s_.u + at.j;
  }

  __device__ void candidates(int step) {
    meet();
    for (int row = 0; row < s_.rows; row += kRows)
      for (int tile = 0; tile < s_.block_tiles && first_tile_ + tile < s_.tiles; ++tile) {
        wait();
        float sums[Layout::kTiles][kGates][4] = {};
        multiply_gates<kGates - 1, 1>(sums, static_cast<const T*>(f_.reset), row, tile);
        put<kGates - 1, 1>(sums);
#pragma unroll
        for (int i = 0; i < kItems; ++i) finish(step, row, tile, i, load(step, row, tile, i));
        __syncthreads();
      }
  }

  // The states after the step, and all that is kept of it.
  __device__ void finish(int step, int row, int tile, int i, const Known<kGates>& known) {
    const Item at = item(row, tile, i);
    if (!at.exists) return;
    float gate[kSaved] = {}, h = known.h, c = known.c;
    if (f_.checkpoint_h != nullptr && step % f_.every == 0) {
      const int64_t to = (static_cast<int64_t>(at.n) * f_.checkpoints + step / f_.every) * s_.u + at.j;
      static_cast<T*>(f_.checkpoint_h)[to] = from_float<T>(h);
      if (kCell == LoopCell::kLstm) static_cast<T*>(f_.checkpoint_c)[to] = from_float<T>(c);
    }
    if (known.unmasked) cell(at, known, gate, h, c);
    T* const next = exchange(step + 1);
    const int64_t to = static_cast<int64_t>(at.n) * s_.padded + at.j;
    for (int copy = 0; copy < copies(); ++copy)
      next[copy * f_.exchange_copy + to] = from_float<T>(h * state_factor<T>(s_, at.n, copy, at.j));
    const int64_t state = static_cast<int64_t>(at.n) * s_.u + at.j;
    f_.state_h[state] = h;
    if (kCell == LoopCell::kLstm) f_.state_c[state] = c;
    keep(step, at, known.unmasked, gate, h, c);
  }

  __device__ void cell(const Item& at, const Known<kGates>& known, float (&gate)[kSaved], float& h, float& c) const {
    const CellFunction f = s_.activation, r = s_.recurrent_activation;
    if constexpr (kCell == LoopCell::kSimple) {
      h = value_of<kFast>(f, known.sums[0] + from_state(at, 0));
    } else if constexpr (kCell == LoopCell::kLstm) {
#pragma unroll
      for (int g = 0; g < 4; ++g) gate[g] = value_of<kFast>(g == 2 ? f : r, known.sums[g] + from_state(at, g));
      c = gate[1] * c + gate[0] * gate[2];
      h = gate[3] * value_of<kFast>(f, c);
    } else if constexpr (kCell == LoopCell::kGru) {
      gate[0] = value_of<kFast>(r, known.sums[0] + from_state(at, 0));
      gate[1] = value_of<kFast>(r, known.sums[1] + from_state(at, 1));
      gate[3] = from_state(at, 2);
      gate[2] = value_of<kFast>(f, known.sums[2] + gate[1] * gate[3]);
      h = gate[0] * h + (1.0F - gate[0]) * gate[2];
    } else {
      // z and r have replaced their products; load() has added the biases again.
      const float* const sums = f_.products + product_at(at);
      gate[0] = sums[0];
      gate[1] = sums[s_.u];
      gate[2] = value_of<kFast>(f, known.sums[2] + from_state(at, 2));
      h = gate[0] * h + (1.0F - gate[0]) * gate[2];
    }
  }

  __device__ void keep(int step, const Item& at, bool unmasked, const float (&gate)[kSaved], float h, float c) {
    const LoopRecord& record = f_.record;
    const int64_t kept = static_cast<int64_t>(at.n) * record.steps + step - record.begin;
    if (record.states != nullptr) static_cast<T*>(record.states)[kept * s_.u + at.j] = from_float<T>(h);
    if (record.carries != nullptr) static_cast<T*>(record.carries)[kept * s_.u + at.j] = from_float<T>(c);
    if (record.gates != nullptr) {
#pragma unroll
      for (int g = 0; g < kSaved; ++g)
        static_cast<T*>(record.gates)[(kept * kSaved + g) * s_.u + at.j] = from_float<T>(gate[g]);
    }
    const bool last = step + 1 == s_.t;
    if (f_.y != nullptr && (s_.sequences || last)) {
      // As in Keras, a masked step repeats the output before it, and outputs are 0 before the first unmasked step.
      const float out = unmasked || (!s_.zeroes_masked && step >= s_.first[at.n]) ? h : 0.0F;
      const int64_t row = s_.sequences ? static_cast<int64_t>(at.n) * s_.t + output_step(s_, step) : at.n;
      static_cast<T*>(f_.y)[row * s_.u + at.j] = from_float<T>(out);
    }
    if (!last) return;
    const int64_t state = static_cast<int64_t>(at.n) * s_.u + at.j;
    if (f_.h != nullptr) static_cast<T*>(f_.h)[state] = from_float<T>(h);
    if (f_.c != nullptr) static_cast<T*>(f_.c)[state] = from_float<T>(c);
  }

  const LoopForward& f_;
  const LoopShape& s_;
  float* partial_;
  const T* weights_;
  unsigned* counter_;
  unsigned meetings_ = 0;
  bool pending_ = false;
  int row_part_, sum_part_, first_row_, first_tile_, k_blocks_, step_ = 0;
};

template <typename T, bool kMatrix, int kRows, LoopCell kCell>
__global__ void __launch_bounds__(kLoopThreads, 1) run_forward(const __grid_constant__ LoopForward f) {
  extern __shared__ uint4 shared[];
  Block<T, kMatrix, kRows, kCell>(f, reinterpret_cast<unsigned char*>(shared)).run();
}

}  // namespace

void launch_loop_forward(const LoopForward& f, cudaStream_t stream) {
  with_loop(f.shape, [&]<typename T, bool kMatrix, int kRows>() {
    switch (f.shape.cell) {
      case LoopCell::kSimple:
        return launch_together(run_forward<T, kMatrix, kRows, LoopCell::kSimple>, f.shape, f, stream);
      case LoopCell::kLstm:
        return launch_together(run_forward<T, kMatrix, kRows, LoopCell::kLstm>, f.shape, f, stream);
      case LoopCell::kGru:
        return launch_together(run_forward<T, kMatrix, kRows, LoopCell::kGru>, f.shape, f, stream);
      case LoopCell::kGruResetBefore:
        return launch_together(run_forward<T, kMatrix, kRows, LoopCell::kGruResetBefore>, f.shape, f, stream);
    }
  });
}

}  // namespace plimsoll::engine::cuda
