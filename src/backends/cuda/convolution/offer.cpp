// Offers for convolutions and their gradients. Few input channels: im2col or space-to-depth, because cuDNN's
// channels-last engines are slow for them. Depthwise: direct convolution, because it is bound by memory. All others:
// cuDNN. cuDNN 9.14 has engines with wrong results for asymmetric padding, so lowering moves such padding out of the
// convolution (Padding::kOutside); what is left uses direct convolution.
#include <algorithm>

#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/convolution/im2col.h"
#include "backends/cuda/convolution/space_to_depth.h"
#include "backends/cuda/workspace.h"
#include "ops/op.h"

namespace plimsoll::engine::cuda {
namespace {

constexpr Bytes kMostScratch = 64 * kMiB, kMostWeightScratch = 128 * kMiB;
constexpr double kLoopEfficiency = 0.05;          // share of the CUDA cores' peak
constexpr double kLoopTraffic = 15;               // passes over memory that a depthwise loop per element takes
constexpr double kSpaceToDepthEfficiency = 0.22;  // share of the tensor cores' peak: engines over 16 channels
constexpr int64_t kSplits = 16;                   // partial weight gradients in float32 that an engine may keep

bool is_weight_grad(const Convolution& c) {
  return c.pass == ConvolutionPass::kWeightGrad;
}

Bytes parts_bytes(int64_t rows, int64_t columns) {
  const int64_t parts = sum_parts(rows, columns);
  return parts > 1 ? parts * columns * 4 : 0;
}

// Engines copy tensors into other layouts or sum weight gradients in parts: at most the size of the tensors, up to a
// cap. They also keep tables of their own, so that small problems need the additional 1 MiB.
Bytes library_scratch(const Convolution& c, const NodeView& node) {
  const Bytes tensors = static_cast<Bytes>(node.traffic()) + kMiB;
  if (!is_weight_grad(c)) return std::min(kMostScratch, tensors);
  return std::min(kMostWeightScratch, std::max(tensors, kSplits * 4 * c.weight_elements()));
}

// Measured shares of the tensor cores' peak with channels-last tensors. Few channels leave most of a tile empty.
double efficiency_of(const Convolution& c) {
  const bool few = c.group_channels() < 8;
  if (c.pass == ConvolutionPass::kForward) return few ? 0.15 : 0.6;
  return few ? 0.1 : is_weight_grad(c) ? 0.5 : 0.55;
}

KernelOffer im2col_offer(const Card& card, const NodeView& node, const Convolution& c) {
  const Im2colPlan plan = plan_im2col(c, is_weight_grad(c));
  const int64_t pieces = (c.n + plan.images - 1) / plan.images;
  const auto rows = static_cast<double>(c.output_pixels() * plan.width * size_of(c.dtype));
  KernelOffer offer;
  offer.kernel = kIm2colKernel;
  offer.workspace = granted(plan.workspace);
  offer.seconds = pass_seconds(card, rows) + pass_seconds(card, rows + node.traffic()) +
                  2 * static_cast<double>(pieces) * kLaunchSeconds;
  offer.primitives = static_cast<int>(pieces);
  if (const SpaceToDepthPlan deep = plan_space_to_depth(c); deep.possible) {
    offer.workspace = granted(std::max(plan.workspace, deep.workspace));
    const auto image = static_cast<double>(deep.weights);
    const double flops = 2.0 * static_cast<double>(c.output_pixels() * c.o * deep.kh * deep.kw * deep.channels);
    const double seconds = pass_seconds(card, static_cast<double>(node.in(0).bytes()) + image) +
                           matrix_seconds(card, c.dtype, flops, image + node.traffic(), kSpaceToDepthEfficiency);
    offer.seconds = std::min(offer.seconds, seconds);
  }
  return offer;
}

KernelOffer library_offer(const Card& card, const NodeView& node, const Convolution& c, Bytes bias_sums) {
  KernelOffer offer;
  offer.kernel = kCudnnKernel;
  offer.workspace = granted(std::max(library_scratch(c, node), bias_sums));
  offer.seconds = matrix_seconds(card, c.dtype, flops_of(node.graph, node.node), node.traffic(), efficiency_of(c));
  offer.primitives = 1;
  return offer;
}

Status check(const Card& card, const NodeView& node, const Convolution& c) {
  const bool known = c.dtype == DType::kFloat32 || c.dtype == DType::kFloat16 || c.dtype == DType::kBFloat16;
  if (!known)
    return fail(ErrorCode::kUnsupported,
                node.node.op + ": the GPU convolves f32, f16 and bf16, not " + std::string(name_of(c.dtype)));
  if (c.dtype == DType::kBFloat16 && !card.has_bfloat16())
    return fail(ErrorCode::kUnsupported, node.node.op + ": " + card.name + " has no bfloat16");
  return {};
}

}  // namespace

int64_t sum_parts(int64_t rows, int64_t columns) {
  // Enough threads to fill a card, but no part so short that adding up the parts costs more than the rows.
  constexpr int64_t kThreads = int64_t{1} << 19, kLeastRows = 64, kMostParts = 1024, kMostFloats = 8 << 20;
  const int64_t most = std::min({kThreads / columns, rows / kLeastRows, kMostParts, kMostFloats / columns});
  return std::max<int64_t>(1, most);
}

int64_t sum_parts_within(int64_t rows, int64_t columns, Bytes bytes) {
  return std::clamp<int64_t>(bytes / (columns * 4), 1, sum_parts(rows, columns));
}

Result<KernelOffer> offer_convolution(const Card& card, const NodeView& node) {
  const Convolution c(node);
  PLIMSOLL_TRY(check(card, node, c));
  const bool by_im2col = is_im2col(c);
  const Bytes bias_sums = is_weight_grad(c) && c.bias ? parts_bytes(c.output_pixels(), c.o) : 0;
  if (c.depthwise() || !(by_im2col || c.padded_evenly())) {
    KernelOffer offer;
    offer.kernel = kDirectKernel;
    const Bytes sums = is_weight_grad(c) ? parts_bytes(c.output_pixels(), c.weight_elements()) : 0;
    offer.workspace = granted(std::max(sums, bias_sums));
    const double arithmetic = c.depthwise() ? 0 : flops_of(node.graph, node.node) / (kLoopEfficiency * card.flops_f32);
    const double passes = c.depthwise() && !has_depthwise_kernel(c) ? kLoopTraffic : 1;
    offer.seconds = std::max(pass_seconds(card, passes * node.traffic()), arithmetic);
    return offer;
  }
  KernelOffer offer = by_im2col ? im2col_offer(card, node, c) : library_offer(card, node, c, bias_sums);
  offer.inputs.resize(node.inputs());
  offer.outputs.resize(node.outputs());
  Layout& weights = is_weight_grad(c) ? offer.outputs[0] : offer.inputs[1];
  weights = {kWeightLayout, c.weight_elements() * size_of(c.dtype)};
  return offer;
}

Padding best_padding(const NodeView& node) {
  const Convolution c(node);
  const bool any = c.depthwise() || is_im2col(c) || c.padded_evenly();
  return any ? Padding::kInside : Padding::kOutside;
}

}  // namespace plimsoll::engine::cuda
