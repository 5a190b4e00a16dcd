// Runs a tile program: computes derived vectors, runs the tiles of each work item, adds up reductions.
#include <algorithm>
#include <cassert>

#include "backends/cpu/fused/program.h"
#include "backends/cpu/parallel.h"
#include "base/bytes.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kTileElements = 1024;    // 4 KiB: half a dozen tiles fit the L1 cache
constexpr int64_t kItems = 64;             // work items of a large program: enough for the threads of one socket
constexpr int64_t kSerialElements = 8192;  // below this, starting threads costs more than they save
constexpr int64_t kSpillTiles = 16;        // float additions into an accumulator before it is added into double

using Kind = Operand::Kind;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Bytes of the parts of a workspace, in memory order.
struct Parts {
  Bytes vectors, scalars, sums, per_thread;
  Bytes total(int threads) const { return vectors + scalars + sums + per_thread * threads; }
};

int64_t vector_length(const TileProgram& program, const Tiling& tiling) {
  return tiling.tile_rows > 1 ? tiling.length() : program.channels;
}

Parts parts_of(const TileProgram& program, const Tiling& tiling) {
  const auto count = [](size_t n) { return static_cast<Bytes>(n); };
  Parts parts{};
  parts.vectors = count(program.vectors.size()) * align_up(4 * vector_length(program, tiling));
  parts.scalars = align_up(4 * count(program.scalars.size()));
  parts.sums = align_up(8 * tiling.row_chunks * program.accumulators * program.channels);
  // One additional register per output: see separate_overwritten_inputs.
  parts.per_thread = (program.registers + program.outputs + program.accumulators) * align_up(4 * tiling.length());
  return parts;
}

}  // namespace

Tiling tiling_of(const TileProgram& program) {
  const int64_t rows = program.rows / program.segments;  // of one segment
  Tiling tiling;
  if (program.channels <= kTileElements) {
    tiling.tile_columns = program.channels;
    tiling.tile_rows = std::min(rows, std::max<int64_t>(1, kTileElements / program.channels));
  } else {
    tiling.tile_columns = kTileElements;
    tiling.column_chunks = std::min(kItems, ceil_div(program.channels, kTileElements));
  }
  const int64_t wanted = kItems / (tiling.column_chunks * program.segments);
  tiling.row_chunks = program.segments * std::clamp<int64_t>(wanted, 1, ceil_div(rows, tiling.tile_rows));
  return tiling;
}

Bytes tile_workspace(const TileProgram& program, int threads) {
  return parts_of(program, tiling_of(program)).total(threads);
}

TileRun::TileRun(TileProgram program, int threads, Inputs inputs, Inputs outputs, void* workspace)
    : program_(std::move(program)),
      tiling_(tiling_of(program_)),
      threads_(program_.elements() < kSerialElements ? 1 : threads),
      inputs_(inputs.begin(), inputs.end()),
      outputs_(outputs.begin(), outputs.end()) {
  const Parts parts = parts_of(program_, tiling_);
  auto* base = static_cast<char*>(workspace);
  vectors_ = reinterpret_cast<float*>(base);
  scalars_ = reinterpret_cast<float*>(base + parts.vectors);
  sums_ = reinterpret_cast<double*>(base + parts.vectors + parts.scalars);
  per_thread_ = base + parts.vectors + parts.scalars + parts.sums;
  thread_bytes_ = parts.per_thread;
  separate_overwritten_inputs();
  steps_.reserve(program_.instructions.size());
  for (const Instruction& instruction : program_.instructions) {
    Step step{};
    step.function = simd().tile[static_cast<size_t>(instruction.op)];
    step.source = &instruction;
    for (const Operand& operand : instruction.in) step.in[step.inputs++] = resolve(operand);
    for (const Operand& operand : instruction.out) step.out[step.outputs++] = resolve(operand);
    steps_.push_back(step);
  }
}

// The plan may place an output over an input. The instruction can write such an output in place unless a later
// instruction reads that input. In that case the output is kept in a register of its own and copied at the end of the
// tile.
void TileRun::separate_overwritten_inputs() {
  auto& list = program_.instructions;
  const size_t count = list.size();
  for (int o = 0; o < program_.outputs; ++o) {
    const auto overwrites = [&](const Operand& in) {
      return (in.kind == Kind::kInput || in.kind == Kind::kWhole) &&
             inputs_[static_cast<size_t>(in.index)] == outputs_[static_cast<size_t>(o)];
    };
    bool written = false, clash = false;
    for (size_t n = 0; n < count; ++n) {
      if (written) clash = clash || std::any_of(list[n].in.begin(), list[n].in.end(), overwrites);
      for (const Operand& out : list[n].out) written = written || (out.kind == Kind::kOutput && out.index == o);
    }
    if (!clash) continue;
    const Operand own{Kind::kRegister, program_.registers + o};
    for (size_t n = 0; n < count; ++n) {
      for (auto* operands : {&list[n].in, &list[n].out}) {
        for (Operand& operand : *operands) {
          if (operand.kind == Kind::kOutput && operand.index == o) operand = own;
        }
      }
    }
    list.push_back({TileOp::k_copy, {own}, {{Kind::kOutput, o}}, {}, {}});
  }
}

TileRun::Pointer TileRun::resolve(const Operand& operand) const {
  const auto index = static_cast<size_t>(operand.index);
  const Bytes tile_bytes = align_up(4 * tiling_.length());
  switch (operand.kind) {
    case Kind::kInput:
      return {static_cast<char*>(inputs_[index]), operand.bytes, 0, 0};
    case Kind::kOutput:
      return {static_cast<char*>(outputs_[index]), operand.bytes, 0, 0};
    case Kind::kWhole:
      return {static_cast<char*>(inputs_[index]), 0, 0, 0};
    case Kind::kVector: {
      const Bytes bytes = align_up(4 * vector_length(program_, tiling_));
      return {reinterpret_cast<char*>(vectors_) + operand.index * bytes, 0, tiling_.tile_rows > 1 ? 0 : 4, 0};
    }
    case Kind::kScalar:
      return {reinterpret_cast<char*>(scalars_ + index), 0, 0, 0};
    case Kind::kRegister:
      return {per_thread_ + operand.index * tile_bytes, 0, 0, thread_bytes_};
    case Kind::kAccumulator:
      return {per_thread_ + (program_.registers + program_.outputs + operand.index) * tile_bytes, 0, 0, thread_bytes_};
  }
  assert(false);
  return {};
}

void TileRun::prepare() {
  const Bytes bytes = align_up(4 * vector_length(program_, tiling_));
  for (size_t v = 0; v < program_.vectors.size(); ++v) {
    auto* vector = reinterpret_cast<float*>(reinterpret_cast<char*>(vectors_) + static_cast<Bytes>(v) * bytes);
    program_.vectors[v](inputs_, vector);
    for (int64_t r = 1; r < tiling_.tile_rows; ++r)
      std::copy_n(vector, program_.channels, vector + r * program_.channels);
  }
  for (size_t s = 0; s < program_.scalars.size(); ++s) program_.scalars[s](inputs_, scalars_ + s);
}

void TileRun::run_tile(int64_t row, int64_t column, int64_t n, int thread) {
  TileCall call;
  call.n = n;
  call.first = row * program_.channels + column;
  const auto place = [&](const Pointer& p) {
    return p.base + call.first * p.by_element + column * p.by_column + thread * p.by_thread;
  };
  for (const Step& step : steps_) {
    for (int i = 0; i < step.inputs; ++i) call.in[i] = place(step.in[i]);
    for (int i = 0; i < step.outputs; ++i) call.out[i] = place(step.out[i]);
    call.f = step.source->f;
    call.i = step.source->i;
    step.function(call);
  }
}

// Adds the accumulators into this chunk's sums and sets them to zero.
void TileRun::spill(int64_t chunk, int64_t column, int64_t n, int thread) {
  const Bytes tile_bytes = align_up(4 * tiling_.length());
  const int64_t width = std::min(tiling_.tile_columns, program_.channels - column);
  for (int a = 0; a < program_.accumulators; ++a) {
    auto* accumulator = reinterpret_cast<float*>(
        per_thread_ + (program_.registers + program_.outputs + a) * tile_bytes + thread * thread_bytes_);
    double* sum = sums_ + (chunk * program_.accumulators + a) * program_.channels + column;
    for (int64_t r = 0; r < n; r += width) {
      for (int64_t i = 0; i < width; ++i) sum[i] += static_cast<double>(accumulator[r + i]);
    }
    std::fill_n(accumulator, n, 0.0F);
  }
}

void TileRun::run_item(int64_t item, int thread) {
  const int64_t row_chunk = item / tiling_.column_chunks, column_chunk = item % tiling_.column_chunks;
  const int64_t rows = program_.rows / program_.segments, chunks = tiling_.row_chunks / program_.segments;
  const int64_t first_row = row_chunk / chunks * rows, part = row_chunk % chunks;  // the segment, and the part of it
  const int64_t row_tiles = ceil_div(rows, tiling_.tile_rows);
  const int64_t column_tiles = ceil_div(program_.channels, tiling_.tile_columns);
  const int64_t row_begin = row_tiles * part / chunks;
  const int64_t row_end = row_tiles * (part + 1) / chunks;
  const int64_t column_begin = column_tiles * column_chunk / tiling_.column_chunks;
  const int64_t column_end = column_tiles * (column_chunk + 1) / tiling_.column_chunks;
  const bool reduces = program_.accumulators > 0;
  for (int64_t ct = column_begin; ct < column_end; ++ct) {
    const int64_t column = ct * tiling_.tile_columns;
    const int64_t width = std::min(tiling_.tile_columns, program_.channels - column);
    if (reduces) {
      for (int a = 0; a < program_.accumulators; ++a) {
        std::fill_n(sums_ + (row_chunk * program_.accumulators + a) * program_.channels + column, width, 0.0);
        std::fill_n(
            reinterpret_cast<float*>(per_thread_ + thread * thread_bytes_ +
                                     (program_.registers + program_.outputs + a) * align_up(4 * tiling_.length())),
            tiling_.length(), 0.0F);
      }
    }
    int64_t held = 0, most = 0;
    for (int64_t rt = row_begin; rt < row_end; ++rt) {
      const int64_t row = rt * tiling_.tile_rows;
      const int64_t n = std::min(tiling_.tile_rows, rows - row) * width;
      run_tile(first_row + row, column, n, thread);
      most = std::max(most, n);
      if (reduces && (++held == kSpillTiles || rt + 1 == row_end)) {
        spill(row_chunk, column, most, thread);
        held = 0;
      }
    }
  }
}

void TileRun::finish() {
  const int64_t span = program_.accumulators * program_.channels, chunks = tiling_.row_chunks / program_.segments;
  for (int64_t segment = 0; segment < program_.segments; ++segment) {
    double* sums = sums_ + segment * chunks * span;
    for (int64_t chunk = 1; chunk < chunks; ++chunk) {
      for (int64_t i = 0; i < span; ++i) sums[i] += sums[chunk * span + i];
    }
    for (const Reduction& reduction : program_.reductions) {
      reduction.finish(inputs_, outputs_, sums + reduction.first_accumulator * program_.channels, segment);
    }
  }
}

void TileRun::run() {
  prepare();
  parallel_items(threads_, tiling_.row_chunks * tiling_.column_chunks,
                 [this](int64_t item, int thread) { run_item(item, thread); });
  if (program_.accumulators > 0) finish();
}

}  // namespace plimsoll::engine::cpu
