// The definition of an op, in one struct that the op's own file fills in.
//
// Layout convention: channels last. All floating-point tensors of a graph have one dtype T (f32, or f64 in the
// reference). Ops never name T; it follows from the inputs. docs/internals/ops.md lists every op with its inputs,
// outputs and attributes.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/graph.h"

namespace plimsoll::engine {

// The arguments of an op's reference. Floating-point tensors are f64 (for `cast`, any dtype); integers keep their
// dtype. An output shares memory with an input only if `in_place` lists the pair, and then both have the same address,
// so references of such ops must read an element before writing it. Nothing else overlaps.
struct ReferenceCall {
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  const Attrs& attrs;
  const Graph* body = nullptr;
};

// The arguments of a gradient rule: the node, the gradients of its outputs (kNone if there is none), and which inputs
// need a gradient. The rule adds nodes through `b` and returns one gradient per input (kNone if it is not needed or is
// zero).
struct GradientCall {
  GraphBuilder& b;
  const Node& node;
  std::span<const ValueId> output_grads;
  const std::vector<bool>& wanted;

  ValueId in(size_t i) const { return node.inputs[i]; }
  ValueId out(size_t i) const { return node.outputs[i]; }
  ValueId grad(size_t i = 0) const { return output_grads[i]; }
  bool wants(size_t i) const { return wanted[i]; }
  const TensorType& type(ValueId id) const { return b.graph().type(id); }
};

enum class OpKind : uint8_t {
  kElementwise,  // each output element depends on one element of each full-size input (and on channel vectors and
                 // scalars)
  kReduction,    // reduces full-size inputs to channel vectors or scalars in one pass; element-wise before the sum
  kView,         // the output has the input's bytes and another shape
  kOther,
};

enum class Recompute : uint8_t { kNever, kCheap, kCostly };

// The output may overwrite the input if the node has both and their sizes in bytes are equal.
struct InPlace {
  size_t input, output;
};

// A problem on one line, shared by the tests and the benchmarks. Each input is drawn from a named distribution.
struct OpCase {
  std::string name;
  std::vector<TensorType> inputs;  // floats are written as f32; the harness runs them in the backend's dtype
  Attrs attrs;
  // One per input: "normal", "uniform" (0..1), "small" (0..1/8), "positive" (0.1..1.1), "distinct" (a shuffled ramp
  // without ties), "labels:K" (0..K-1), "integers:M" (-M..M), "onehot", "probabilities", "zero", "value:V" (every
  // element V), "unbounded" (normal, infinities and NaN), "step:S,O" (i64 rng/counter values).
  std::vector<std::string> fill;
  std::vector<size_t> differentiate;  // inputs whose gradient is compared with finite differences; empty: none
};

struct OpDef {
  std::string name;
  OpKind kind = OpKind::kOther;
  Recompute recompute = Recompute::kNever;
  bool couples_samples = false;  // a sample's result depends on other samples of the batch
  std::vector<InPlace> in_place;
  // Returns the types of the outputs. Fails with kBadGeometry, which names the values that do not match.
  std::function<Result<std::vector<TensorType>>(std::span<const TensorType>, const Attrs&)> infer;
  std::function<std::vector<ValueId>(const GradientCall&)> gradient;  // empty: not differentiable
  std::function<void(const ReferenceCall&)> reference;
  bool copies = false;  // copies a value between memories; may run on its own queue, concurrently with the computation
  // Floating-point operations of one call; empty: one per output element.
  std::function<double(std::span<const TensorType> inputs, std::span<const TensorType> outputs, const Attrs&)> flops;
  // The largest allowed |f32 result - reference|, as a multiple of 2^-24 times the largest |reference| of that output.
  double error_units = 4;
  std::vector<OpCase> cases;
};

const OpDef& op_def(std::string_view name);  // asserts that the op exists
const OpDef* find_op(std::string_view name);
const std::vector<OpDef>& all_ops();

// Checks verify_structure, that every node's op exists, and that it infers the types of the node's outputs.
Status verify(const Graph& graph);

double flops_of(const Graph& graph, const Node& node);

// Returns whether a value is persistent, or a copy of a persistent value in another dtype or layout made during the
// run.
bool is_copy_of_persistent(const Graph& graph, ValueId id);

}  // namespace plimsoll::engine
