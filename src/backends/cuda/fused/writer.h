// Collects the source of a fused kernel while it goes through the nodes; forms.cpp has the code that each op writes.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "backends/cuda/fused/kernel.h"

namespace plimsoll::engine::cuda {

class FusedWriter {
 public:
  FusedWriter(const Graph& graph, std::span<const Node> nodes, std::span<const ValueId> inputs,
              std::span<const ValueId> outputs)
      : graph_(graph), nodes_(nodes), inputs_(inputs), outputs_(outputs) {}

  // With `parts` above 0, writes a kernel for that many sets of tensors of this kind.
  Result<FusedKernel> run(bool with_source, size_t parts = 0);

  // The node being written, and expressions for its inputs.
  const Node& node() const { return nodes_[at_]; }
  const Attrs& attrs() const { return node().attrs; }
  const TensorType& type(size_t i) const { return graph_.type(node().inputs[i]); }
  DType output_dtype(size_t i) const { return graph_.type(node().outputs[i]).dtype; }
  std::string full(size_t i);        // an element of a full-size input
  std::string vector(size_t i);      // an element of a channel vector, as float
  std::string repeated(size_t i);    // an element of a smaller input, repeated to the full size
  std::string scalar(size_t i);      // a scalar as float
  std::string raw_scalar(size_t i);  // the pointer to a small input
  std::string derived_vector(const std::string& expression);  // computed once per thread; `k` indexes the vectors
  std::string derived_scalar(const std::string& expression);  // computed once per block

  void result(size_t i, const std::string& expression);  // output i of the node
  void before_row(const std::string& statement) { row_ += statement; }
  std::string fresh(const char* stem) { return fmt::format("{}{}", stem, names_++); }
  // Adds a channel sum of an expression and returns its index.
  int sum(const std::string& expression);
  // Computes output i of the node from the finished sums of channel `c`, which are the doubles total<index>.
  void result_of_sums(size_t i, const std::string& expression);
  void refuse(std::string why) {
    if (error_.empty()) error_ = fmt::format("{} {}", node().op, why);
  }
  double rows() const { return static_cast<double>(kernel_.rows * kernel_.segments); }  // of the whole tensor
  int width() const { return kernel_.width; }

 private:
  Status plan(size_t parts);  // everything except the source
  bool find_shape();
  void choose_width();
  int repeated_width(int width) const;
  size_t input_index(size_t i);
  int output_index(ValueId id) const;
  bool is_full(ValueId id) const { return graph_.type(id).shape.elements() == elements_; }
  bool reads_one_tensor() const;
  std::string assemble() const;
  std::string single_head() const;
  std::string table_head() const;
  std::string finish_text() const;

  const Graph& graph_;
  std::span<const Node> nodes_;
  std::span<const ValueId> inputs_, outputs_;
  size_t at_ = 0;
  int64_t elements_ = 0;
  bool by_channel_ = false;
  FusedKernel kernel_;
  int names_ = 0;
  std::map<ValueId, std::string> computed_;
  std::map<size_t, std::string> vectors_, scalars_;
  std::vector<bool> loaded_;
  std::string shared_, vectors_text_, row_, body_, finish_;
  std::vector<int> stored_;  // outputs written element by element
  size_t parts_ = 0;
  std::string error_;
};

const char* type_text(DType dtype);  // the element type in a kernel's source

using FusedForm = void (*)(FusedWriter&);
FusedForm fused_form(const std::string& op);  // null if the op has none

// The text at the start of every kernel: element types and the functions that ops use.
const char* fused_prelude();

}  // namespace plimsoll::engine::cuda
