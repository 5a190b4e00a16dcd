// How this backend runs a node: the offer, and a function that creates the kernel once addresses are known. One
// function per op returns both, so the offer and the bound kernel cannot drift apart.
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

// A node as a recipe function sees it.
struct Problem : NodeView {
  const Machine& machine;
  // True: the layouts of the node's values are final and must be used. False: the recipe may ask for other layouts.
  bool bound = false;
  std::string kernel = {};  // if bound, the name of the kernel that was offered
};

using RecipeFunction = Result<Recipe> (*)(const Problem&);

// A recipe for one of our own kernels: `start` receives the addresses and returns the function that run() calls.
template <typename F>
Recipe own_recipe(std::string name, Bytes workspace, double seconds, F start) {
  Recipe recipe;
  recipe.offer.kernel = std::move(name);
  recipe.offer.workspace = align_up(workspace);
  recipe.offer.seconds = seconds;
  recipe.bind = [start](const BoundNode& node) -> Result<std::unique_ptr<Kernel>> { return make_kernel(start(node)); };
  return recipe;
}

// Results of this size are no longer in a cache when they are read, so our own kernels write them with non-temporal
// stores, which need an aligned address.
inline constexpr Bytes kStreamBytes = 16 * kMiB;
inline bool goes_past_caches(const void* result, Bytes bytes) {
  return bytes >= kStreamBytes && reinterpret_cast<uintptr_t>(result) % kAlignment == 0;
}

// Everything that the recipe of a node depends on, as text: its op, attributes, and the types and layouts of its
// values.
std::string key_of(const Graph& graph, const Node& node);

// Looks up the recipe function for the node's op.
Result<Recipe> recipe_for(const Problem& problem);

Result<Recipe> convolution_recipe(const Problem& problem);  // conv2d, conv3d, their gradients
// The same ops by im2col + GEMM, where oneDNN has only slow kernels.
Result<Recipe> convolution_fallback_recipe(const Problem& problem);
Result<Recipe> matmul_recipe(const Problem& problem);
Result<Recipe> batch_matmul_recipe(const Problem& problem);
Result<Recipe> reorder_recipe(const Problem& problem);
Result<Recipe> tile_recipe(const Problem& problem);  // element-wise ops and `fused`
Result<Recipe> pooling_recipe(const Problem& problem);
Result<Recipe> row_recipe(const Problem& problem);  // softmax, layer_norm, losses, match
Result<Recipe> reduction_recipe(const Problem& problem);
Result<Recipe> resample_recipe(const Problem& problem);  // resample, adaptive_max_pool, their gradients
Result<Recipe> affine_image_recipe(const Problem& problem);
Result<Recipe> image_recipe(const Problem& problem);  // upsample2d, pad2d, crop2d
// For reshape, concat, slice, broadcast, fill, and cast between any two types.
Result<Recipe> shape_recipe(const Problem& problem);
Result<Recipe> attention_recipe(const Problem& problem);
Result<Recipe> table_recipe(const Problem& problem);       // embedding
Result<Recipe> row_update_recipe(const Problem& problem);  // sgd_rows, adam_rows
Result<Recipe> strided_recipe(const Problem& problem);     // transpose, strided_slice and its gradient
Result<Recipe> pad_recipe(const Problem& problem);         // pad and its gradient
Result<Recipe> index_recipe(const Problem& problem);       // gather, scatter_add, take_along, iota, one_hot
Result<Recipe> axes_recipe(const Problem& problem);  // reductions over any axes, arg_max, arg_min, cumsum, cumprod
Result<Recipe> sort_recipe(const Problem& problem);  // sort and top_k
Result<Recipe> ctc_recipe(const Problem& problem);   // ctc and its gradient

}  // namespace plimsoll::engine::cpu
