// The contents of a shaped model: the calls of its layers in program order, and the shape of every tensor.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "model/layer.h"
#include "model/objective.h"

namespace plimsoll::engine {

struct LayerTree;

struct ShapedLayer {
  bool called = false;
  std::vector<WeightSpec> weights;  // known after the first call
  size_t first_weight = 0;          // index in the model's list of weights
};

struct LayerCall {
  size_t layer = 0;
  size_t node = 0;                      // number of the layer's call in the file
  std::vector<size_t> inputs, outputs;  // indices of tensors
  LayerShape shape;                     // computed for these inputs
  // Per input: the tensor whose call made its mask, or the tensor that the call was given as its mask; kNoMask.
  std::vector<size_t> masks, given_masks;
  std::vector<size_t> rank;  // position in Keras's order: that of each model around the call, then its own
};

inline constexpr size_t kNoMask = std::numeric_limits<size_t>::max();

struct LayerProgram {
  std::vector<ShapedLayer> layers;  // one per layer of the architecture, in its order
  std::vector<LayerCall> calls;
  std::vector<Shape> tensors;  // shapes of one sample
  std::vector<TensorKind> kinds;
  std::vector<bool> shared;   // per tensor: TensorSpec::shared
  std::vector<size_t> masks;  // per tensor, at the end: the tensor whose call made its mask, or kNoMask
  std::vector<size_t> inputs, outputs;
  Objective objective;  // with metrics resolved for these shapes
  // The losses have different masks, or some have one and some have none: each has a denominator of its own.
  bool several_masks = false;
};

// Runs the calls of the outermost model on the shapes of the program's inputs, and fills in the rest of the program.
// Calls that are not supported are listed; shapes after them have no meaning.
Status expand_calls(const LayerTree& tree, LayerProgram& program, Issues& issues);
// Finds the mask of every tensor and call (masks.cpp). Layers that cannot be computed with their masks are listed.
void resolve_masks(const LayerTree& tree, LayerProgram& program, Issues& issues);
// Lists losses that cannot be computed with their masks, and sets several_masks. `names`: of the outputs.
void check_loss_masks(const LayerTree& tree, LayerProgram& program, const std::vector<std::string>& names,
                      Issues& issues);
// Returns whether the rows of the loss are weighted by more than sample weights, so that they must be counted.
bool counts_rows(const Loss& loss);

}  // namespace plimsoll::engine
