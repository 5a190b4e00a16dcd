// Zeros around an image are a pad2d node or the convolution's own pads, whichever the device prefers
// (Device::padding). The numbers are the same, bit for bit, where sums pass over zeros in the same order.
#include <algorithm>
#include <array>

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "lower/lower.h"

namespace plimsoll::engine {
namespace {

using Pads = std::vector<int64_t>;  // before and after the image, dimension by dimension

bool is_convolution(const Node& node) {
  return node.op == "conv2d" || node.op == "conv2d_input_grad" || node.op == "conv2d_weight_grad";
}

bool is_zero(const Pads& pads) {
  return std::all_of(pads.begin(), pads.end(), [](int64_t side) { return side == 0; });
}

// The rows, columns, ... that the pads add along each spatial dimension.
Pads growth(const Pads& pads) {
  Pads sizes;
  for (size_t side = 0; side < pads.size(); side += 2) sizes.push_back(pads[side] + pads[side + 1]);
  return sizes;
}

// The same convolution over an image with `outer` more pixels around it; fewer where they are negative.
Node with_outer(Node node, const Pads& outer) {
  Pads pads = node.attrs.list("pads");
  for (size_t side = 0; side < pads.size(); ++side) pads[side] -= outer[side];
  node.attrs.set("pads", pads);
  if (node.op == "conv2d_input_grad") {
    Pads size = node.attrs.list("input_size");
    for (size_t d = 0; d < size.size(); ++d) size[d] += growth(outer)[d];
    node.attrs.set("input_size", size);
  }
  return node;
}

Value padded_like(const Graph& graph, ValueId image, const Pads& outer) {
  Value value = graph.value(image);
  value.name += "/padded";
  value.persistent = false;
  if (value.category != Category::kGradients) value.category = Category::kTemporaries;
  const Pads more = growth(outer);
  for (size_t d = 0; d < more.size(); ++d) value.type.shape.dims[d + 1] += more[d];
  return value;
}

// The pads that must lie outside the convolution for opposite sides to be equal.
Pads surplus(const Node& node) {
  Pads pads = node.attrs.list("pads");
  for (size_t side = 0; side < pads.size(); side += 2) {
    const int64_t both = std::min(pads[side], pads[side + 1]);
    pads[side] -= both;
    pads[side + 1] -= both;
  }
  return pads;
}

void emit_padded_outside(Rewrite& rewrite, NodeId id, const Pads& outer) {
  const Graph& graph = rewrite.from();
  const Node& old = graph.node(id);
  Node node = with_outer(old, outer);
  for (ValueId& in : node.inputs) in = rewrite.to(in);
  const bool makes_image = old.op == "conv2d_input_grad";
  const ValueId image = makes_image ? old.outputs[0] : old.inputs[0];
  const ValueId padded = rewrite.add_value(padded_like(graph, image, outer));
  const auto result = [&](ValueId value) {
    const ValueId made = rewrite.add_value(graph.value(value));
    rewrite.bind(value, made);
    return made;
  };
  if (makes_image) {
    node.outputs = {padded};
    rewrite.add_node(std::move(node));
    rewrite.add_node({"crop2d", {padded}, {result(image)}, {{"pads", outer}}, old.layer, old.stage, nullptr});
    return;
  }
  rewrite.add_node({"pad2d", {node.inputs[0]}, {padded}, {{"pads", outer}}, old.layer, old.stage, nullptr});
  node.inputs[0] = padded;
  for (ValueId& out : node.outputs) out = result(out);
  rewrite.add_node(std::move(node));
}

// Whether every window of this size holds a pixel of the image.
bool smaller_than(const Pads& pads, const Pads& window) {
  for (size_t side = 0; side < pads.size(); ++side)
    if (pads[side] >= window[side / 2]) return false;
  return true;
}

class PaddingFolder {
 public:
  PaddingFolder(const Graph& graph, const Device& device)
      : graph_(graph), device_(device), readers_(readers_of(graph)), handed_out_(handed_out_values(graph)) {}

  Graph run() {
    std::vector<bool> gone(graph_.nodes.size(), false);
    std::vector<Node> nodes = graph_.nodes;
    for (size_t n = 0; n < nodes.size(); ++n)
      gone[n] = gone[n] ||
                (nodes[n].op == "pad2d" && (fold_pad(nodes[n], nodes) || fold_into_pool(nodes[n], nodes, gone))) ||
                (nodes[n].op == "crop2d" && fold_crop(nodes[n], nodes));
    Rewrite rewrite(graph_);
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (gone[n]) continue;
      Node node = nodes[n];
      for (ValueId& in : node.inputs) in = rewrite.to(in);
      for (ValueId& out : node.outputs) {
        const ValueId made = rewrite.add_value(graph_.value(out));
        rewrite.bind(out, made);
        out = made;
      }
      rewrite.add_node(std::move(node));
    }
    return rewrite.finish();
  }

 private:
  bool wants(const Node& node) const { return device_.padding(graph_, node) == Padding::kInside; }

  // Only where every reader takes the padding: else the padded image stays alive and the plain one lives longer.
  bool fold_pad(const Node& pad, std::vector<Node>& nodes) const {
    const ValueId padded = pad.outputs[0];
    const auto& readers = readers_[static_cast<size_t>(padded)];
    if (handed_out_[static_cast<size_t>(padded)] || readers.empty()) return false;
    std::vector<Node> folded;
    for (NodeId id : readers) {
      const Node& reader = nodes[static_cast<size_t>(id)];
      const bool over_image = (reader.op == "conv2d" || reader.op == "conv2d_weight_grad") &&
                              reader.inputs[0] == padded && reader.inputs[1] != padded;
      if (!over_image) return false;
      Pads inner = pad.attrs.list("pads");
      for (int64_t& side : inner) side = -side;
      folded.push_back(with_outer(reader, inner));
      folded.back().inputs[0] = pad.inputs[0];
      if (!wants(folded.back())) return false;
    }
    for (size_t i = 0; i < readers.size(); ++i) nodes[static_cast<size_t>(readers[i])] = std::move(folded[i]);
    return true;
  }

  // Zeros around what a relu left never exceed what is inside, so they may be the pooling's own padding, which never
  // wins. Where everything in a window is zero the gradient may go to another place, but relu's gradient is zero there.
  bool fold_into_pool(const Node& pad, std::vector<Node>& nodes, std::vector<bool>& gone) const {
    const ValueId padded = pad.outputs[0];
    const NodeId before = graph_.value(pad.inputs[0]).producer;
    const auto& readers = readers_[static_cast<size_t>(padded)];
    if (handed_out_[static_cast<size_t>(padded)] || readers.size() != 1 || before == kNone) return false;
    const Attrs& relu = nodes[static_cast<size_t>(before)].attrs;
    Node& pool = nodes[static_cast<size_t>(readers[0])];
    const Pads& pads = pad.attrs.list("pads");
    if (!device_.recomputes_freely() || nodes[static_cast<size_t>(before)].op != "relu" || pool.op != "max_pool2d" ||
        relu.real_or("negative_slope", 0) != 0 || relu.real_or("threshold", 0) != 0 ||
        !is_zero(pool.attrs.list("pads")) || !smaller_than(pads, pool.attrs.list("pool")))
      return false;
    // Each gradient must be cropped, and read by nothing but that crop.
    std::vector<std::pair<NodeId, NodeId>> gradients;
    for (NodeId reader : readers_[static_cast<size_t>(pool.outputs[1])]) {
      const auto& crops = readers_[static_cast<size_t>(graph_.node(reader).outputs[0])];
      if (graph_.node(reader).op != "max_pool2d_grad" || crops.size() != 1 || graph_.node(crops[0]).op != "crop2d" ||
          graph_.node(crops[0]).attrs.list("pads") != pads)
        return false;
      gradients.emplace_back(reader, crops[0]);
    }
    pool.inputs[0] = pad.inputs[0];
    pool.attrs.set("pads", pads);
    const Shape& plain = graph_.type(pad.inputs[0]).shape;
    const Pads image(plain.dims.begin() + 1, plain.dims.end() - 1);
    for (const auto& [gradient, crop] : gradients) {
      Node& node = nodes[static_cast<size_t>(gradient)];
      node.attrs.set("pads", pads);
      node.attrs.set("input_size", image);
      node.outputs = graph_.node(crop).outputs;
      gone[static_cast<size_t>(crop)] = true;
    }
    return true;
  }

  bool fold_crop(const Node& crop, std::vector<Node>& nodes) const {
    const ValueId image = crop.inputs[0];
    const NodeId producer = graph_.value(image).producer;
    if (producer == kNone || handed_out_[static_cast<size_t>(image)] ||
        readers_[static_cast<size_t>(image)].size() != 1)
      return false;
    Node& gradient = nodes[static_cast<size_t>(producer)];
    if (gradient.op != "conv2d_input_grad") return false;
    Pads inner = crop.attrs.list("pads");
    for (int64_t& side : inner) side = -side;
    Node folded = with_outer(gradient, inner);
    folded.outputs = crop.outputs;
    if (!wants(folded)) return false;
    gradient = std::move(folded);
    return true;
  }

  const Graph& graph_;
  const Device& device_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<bool> handed_out_;
};

}  // namespace

Graph fold_padding(const Graph& graph, const Device& device) {
  return PaddingFolder(graph, device).run();
}

Graph pad_evenly(const Graph& graph, const Device& device) {
  Rewrite rewrite(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const bool outside = is_convolution(node) && device.padding(graph, node) == Padding::kOutside;
    const Pads outer = outside ? surplus(node) : Pads();
    if (is_zero(outer))
      rewrite.copy_node(static_cast<NodeId>(n));
    else
      emit_padded_outside(rewrite, static_cast<NodeId>(n), outer);
  }
  return rewrite.finish();
}

}  // namespace plimsoll::engine
