// The compiler of tile programs, as its forms see it: the node being compiled, its operands, and the instructions that
// it emits. One form per op; ops that are a single expression are listed in ops.inl instead.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backends/cpu/fused/program.h"
#include "backends/cpu/half/convert.h"

namespace plimsoll::engine::cpu {

// The cost of an instruction in a compiled loop, relative to an add.
constexpr double kExpWork = 10;
constexpr double kCallWork = 100;  // a library call per element, not vectorised
constexpr double kPhiloxWork = 24;
constexpr double kHalfWork = 1;  // conversion from or to half precision

class Compiler {
 public:
  Compiler(const Graph& graph, std::span<const Node> nodes, std::span<const ValueId> inputs,
           std::span<const ValueId> outputs)
      : graph_(graph), nodes_(nodes), inputs_(inputs), outputs_(outputs) {
    program.outputs = static_cast<int>(outputs.size());
  }

  Result<TileProgram> run();

  const Node& node() const { return nodes_[at_]; }
  const Attrs& attrs() const { return node().attrs; }
  const TensorType& type(size_t i) const { return graph_.type(node().inputs[i]); }
  DType result_dtype(size_t i = 0) const { return graph_.type(node().outputs[i]).dtype; }
  int64_t channels() const { return program.channels; }
  double rows() const { return static_cast<double>(program.rows); }

  // Input i of the node, a tensor of the program's shape. Half precision is converted to float32 in a register.
  Operand full(size_t i);
  Operand whole(size_t i);   // input i, passed by its address
  Operand number(size_t i);  // input i, one number
  int raw(size_t i);         // input i as the index of a program input; for derived values
  Operand result(size_t i = 0);
  Operand new_register();
  Operand vector(Derive derive);
  Operand copied_vector(size_t i);
  Operand scalar(Derive derive);

  Instruction& emit(TileOp op, std::vector<Operand> in, std::vector<Operand> out, double work = 1);
  // Index of the program output that receives the node's output i, or kNone if the program does not return it.
  int output_index(size_t i) const;
  int accumulators(int count);
  void reduce(int first, Finish finish) { program.reductions.push_back({first, std::move(finish)}); }
  void refuse(std::string why) {
    if (error_.empty()) error_ = fmt::format("{} {}", node().op, why);
  }

  TileProgram program;

 private:
  bool find_shape();
  void release_dead();
  bool is_half_output(ValueId id) const;
  void round_half_results();
  void store_half_outputs();
  bool read_later(ValueId id) const;

  const Graph& graph_;
  std::span<const Node> nodes_;
  std::span<const ValueId> inputs_, outputs_;
  size_t at_ = 0;
  std::map<ValueId, Operand> places_;
  std::vector<int> free_registers_;
  std::string error_;
};

struct TileForm {
  const char* op;
  void (*compile)(Compiler&);
};
std::span<const TileForm> normalization_forms();  // compile_norm.cpp
std::span<const TileForm> update_forms();         // compile_updates.cpp

inline const float* floats(Inputs inputs, int i) {
  return static_cast<const float*>(inputs[static_cast<size_t>(i)]);
}

}  // namespace plimsoll::engine::cpu
