// The time that a fused kernel takes beyond its memory traffic.
#include <algorithm>
#include <array>
#include <span>

#include "backends/common/elementwise.h"
#include "backends/cuda/fused/kernel.h"

namespace plimsoll::engine::cuda {
namespace {

// Picoseconds per element on an H200, fitted to kernels of EfficientNetB0, MobileNetV3 and ResNet-50 that were timed
// one by one. Kernels without sums hide their arithmetic behind their loads; kernels with sums have too few threads for
// that.
constexpr double kMeasuredFlops = 67e12;  // float32, of the card that they were measured on
constexpr double kOp = 0.02;
constexpr double kExponential = 0.05, kExponentialBesideSums = 0.45;
constexpr double kSumSeconds = 5e-6, kSumOfSegmentsSeconds = 8.6e-6;  // blocks add up what others have summed
constexpr double kRepeated = 0.7;  // a smaller tensor whose index is computed per row
constexpr double kNormalizedBesideSums = 0.1, kNormalizedBesideSegments = 1.3;

constexpr std::array kExponentials = {"sigmoid",  "silu", "gelu", "tanh", "exp", "elu", "selu",
                                      "softplus", "mish", "log",  "erf",  "sin", "cos", "pow"};

bool is_exponential(std::string_view op) {
  return std::any_of(kExponentials.begin(), kExponentials.end(),
                     [&](std::string_view name) { return op == name || op.starts_with(std::string(name) + "_"); });
}

}  // namespace

double arithmetic_seconds(const Card& card, const Graph& graph, const Node& node, const FusedKernel& kernel) {
  if (!kernel.parts.empty()) return 0;  // updates of weights: bound by memory
  const bool body = node.body != nullptr;
  const Graph& inside = body ? *node.body : graph;
  const std::span<const Node> nodes = body ? std::span<const Node>(node.body->nodes) : std::span<const Node>(&node, 1);
  const bool sums = kernel.sums > 0;
  const auto repeats = [&](const Node& n) {
    return n.op == "broadcast" && inside.type(n.inputs[0]).shape.elements() > 1;
  };
  const bool segments = kernel.segments > 1 || (sums && std::any_of(nodes.begin(), nodes.end(), repeats));
  double picoseconds = 0;
  for (const Node& n : nodes) {
    picoseconds += kOp;
    if (is_exponential(n.op)) picoseconds += sums ? kExponentialBesideSums : kExponential;
    if (repeats(n) && kernel.channels > kernel.width) picoseconds += kRepeated;
    if (sums && n.op == "batch_norm_apply") picoseconds += segments ? kNormalizedBesideSegments : kNormalizedBesideSums;
  }
  const double elements =
      static_cast<double>(kernel.rows) * static_cast<double>(kernel.channels) * static_cast<double>(kernel.segments);
  const double adding = !sums ? 0 : kernel.segments > 1 ? kSumOfSegmentsSeconds : kSumSeconds;
  return adding + elements * picoseconds * 1e-12 * kMeasuredFlops / card.flops_f32;
}

}  // namespace plimsoll::engine::cuda
