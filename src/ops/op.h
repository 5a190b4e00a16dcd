// What the engine knows about an op, in one struct that the op's own file fills in.
//
// Layout convention: channels last. Floating tensors of one graph share a dtype T (f32, or f64 in the reference); T is
// never named by an op, it follows from the inputs. docs/internals/ops.md lists every op with its inputs, outputs and
// attributes.
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

// What one call of an op's reference sees. Floating tensors are f64 (of `cast` any dtype); integers keep their dtype.
// An output lies over an input only where `in_place` lists the pair, and then exactly over it: references of such ops
// read an element before they write it. Nothing else overlaps.
struct ReferenceCall {
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  const Attrs& attrs;
  const Graph* body = nullptr;
};

// What a gradient rule sees: the node, the gradients that arrived at its outputs (kNone where none did), and which
// inputs want one. It adds nodes through `b` and returns one gradient an input (kNone where not wanted, or where it is
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
  kReduction,    // full-size inputs to channel vectors or scalars in one pass, element-wise before the sum
  kView,         // the output is the input's bytes under another shape
  kOther,
};

enum class Recompute : uint8_t { kNever, kCheap, kCostly };

// The output may be written over the input, where the node has both and their bytes are equal.
struct InPlace {
  size_t input, output;
};

// A one-line problem, shared by the tests and the benchmarks. Inputs are drawn by name of distribution.
struct OpCase {
  std::string name;
  std::vector<TensorType> inputs;  // floats written as f32: the harness runs them in the backend's dtype
  Attrs attrs;
  // One a input: "normal", "uniform" (0..1), "small" (0..1/8), "positive" (0.1..1.1), "distinct" (a shuffled ramp, no
  // ties), "labels:K" (0..K-1), "integers:M" (-M..M), "onehot", "probabilities", "zero", "value:V" (every element V),
  // "unbounded" (normal, infinities and NaN), "step:S,O" (i64 rng/counter values), "output:NAME,I" (output I of op NAME
  // run on the preceding inputs is too clever: give plain draws instead).
  std::vector<std::string> fill;
  std::vector<size_t> differentiate;  // inputs whose gradient is compared with finite differences; empty: none
};

struct OpDef {
  std::string name;
  OpKind kind = OpKind::kOther;
  Recompute recompute = Recompute::kNever;
  bool couples_samples = false;  // a sample's result depends on other samples of the batch
  std::vector<InPlace> in_place;
  // Types of the outputs, or kBadGeometry with the values that do not go together.
  std::function<Result<std::vector<TensorType>>(std::span<const TensorType>, const Attrs&)> infer;
  std::function<std::vector<ValueId>(const GradientCall&)> gradient;  // empty: not differentiable
  std::function<void(const ReferenceCall&)> reference;
  bool copies = false;  // moves a value between memories: may run on a queue of its own, beside the computation
  // Floating-point operations of one call; empty: one an output element.
  std::function<double(std::span<const TensorType> inputs, std::span<const TensorType> outputs, const Attrs&)> flops;
  // Largest |f32 result - reference| allowed, as a multiple of 2^-24 times the largest |reference| of that output.
  double error_units = 4;
  std::vector<OpCase> cases;
};

const OpDef& op_def(std::string_view name);  // asserts that it exists
const OpDef* find_op(std::string_view name);
const std::vector<OpDef>& all_ops();

// verify_structure, and that every node's op exists and infers the types its outputs have.
Status verify(const Graph& graph);

double flops_of(const Graph& graph, const Node& node);

// Whether a value is a persistent one, or a copy of one in another dtype or layout that a run makes for itself.
bool is_copy_of_persistent(const Graph& graph, ValueId id);

}  // namespace plimsoll::engine
