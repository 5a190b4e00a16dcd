// How this backend would run a node: the offer, and the function that makes the kernel once addresses are known. One
// function per op gives both, so an offer and what is bound later cannot drift apart.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "backends/common/node_view.h"
#include "backends/cpu/machine.h"

namespace plimsoll::engine::cpu {

struct Recipe {
  KernelOffer offer;
  std::function<Result<std::unique_ptr<Kernel>>(const BoundNode&)> bind;
};

// A node as a recipe sees it.
struct Problem : NodeView {
  const Machine& machine;
  // Layouts of the node's values are final: take them. Otherwise the recipe is free to ask for others.
  bool bound = false;
  std::string kernel = {};  // when bound, the one that was offered
};

using RecipeFunction = Result<Recipe> (*)(const Problem&);

// A recipe of an own kernel: `start` gets the addresses and returns what run() calls.
template <typename F>
Recipe own_recipe(std::string name, Bytes workspace, double seconds, F start) {
  Recipe recipe;
  recipe.offer.kernel = std::move(name);
  recipe.offer.workspace = align_up(workspace);
  recipe.offer.seconds = seconds;
  recipe.bind = [start](const BoundNode& node) -> Result<std::unique_ptr<Kernel>> { return make_kernel(start(node)); };
  return recipe;
}

// Results so large are not in a cache any more when they are read; own kernels write them past the caches, for which
// they must be aligned.
inline constexpr Bytes kStreamBytes = 16 * kMiB;
inline bool goes_past_caches(const void* result, Bytes bytes) {
  return bytes >= kStreamBytes && reinterpret_cast<uintptr_t>(result) % kAlignment == 0;
}

// All recipes, by op.
Result<Recipe> recipe_for(const Problem& problem);

Result<Recipe> convolution_recipe(const Problem& problem);  // conv2d, conv2d_input_grad, conv2d_weight_grad
Result<Recipe> convolution_fallback_recipe(
    const Problem& problem);  // the same by im2col, where oneDNN has only slow kernels
Result<Recipe> matmul_recipe(const Problem& problem);
Result<Recipe> reorder_recipe(const Problem& problem);
Result<Recipe> tile_recipe(const Problem& problem);  // element-wise ops and `fused`
Result<Recipe> pooling_recipe(const Problem& problem);
Result<Recipe> row_recipe(const Problem& problem);  // softmax, layer_norm, losses, match
Result<Recipe> reduction_recipe(const Problem& problem);
Result<Recipe> image_recipe(const Problem& problem);  // upsample2d, pad2d, crop2d
Result<Recipe> shape_recipe(const Problem& problem);  // reshape, concat, slice, broadcast, fill, cast between any types
Result<Recipe> attention_recipe(const Problem& problem);
Result<Recipe> table_recipe(const Problem& problem);  // embedding

}  // namespace plimsoll::engine::cpu
