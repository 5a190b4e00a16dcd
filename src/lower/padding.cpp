// Zero padding is a pad2d node (two for images with depth) or the convolution's own pads, whichever the device prefers
// (Device::padding). The results are identical bit for bit if the kernels add in the same order.
#include <algorithm>
#include <array>

#include "graph/queries.h"
#include "graph/rewrite.h"
#include "lower/lower.h"

namespace plimsoll::engine {
namespace {

using Pads = std::vector<int64_t>;  // pixels before and after the image, for each spatial dimension

// conv2d, conv3d and their gradients; not the conv2d_pooled variants, which exist only later.
bool is_convolution(const Node& node) {
  return node.op.starts_with("conv2d") || node.op.starts_with("conv3d");
}
bool is_input_grad(const Node& node) {
  return node.op == "conv2d_input_grad" || node.op == "conv3d_input_grad";
}

bool is_zero(const Pads& pads) {
  return std::all_of(pads.begin(), pads.end(), [](int64_t side) { return side == 0; });
}

// Returns how many rows, columns, ... the pads add in each spatial dimension.
Pads growth(const Pads& pads) {
  Pads sizes;
  for (size_t side = 0; side < pads.size(); side += 2) sizes.push_back(pads[side] + pads[side + 1]);
  return sizes;
}

// Returns the same convolution for an image with `outer` more pixels around it (fewer if negative).
Node with_outer(Node node, const Pads& outer) {
  Pads pads = node.attrs.list("pads");
  for (size_t side = 0; side < pads.size(); ++side) pads[side] -= outer[side];
  node.attrs.set("pads", pads);
  if (is_input_grad(node)) {
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

// Returns the pads that must move out of the convolution to make opposite sides equal.
Pads surplus(const Node& node) {
  Pads pads = node.attrs.list("pads");
  for (size_t side = 0; side < pads.size(); side += 2) {
    const int64_t both = std::min(pads[side], pads[side + 1]);
    pads[side] -= both;
    pads[side + 1] -= both;
  }
  return pads;
}

// Adds pad2d or crop2d nodes that turn `from` into `to`, both values of the new graph. pad2d pads two dimensions, so
// with depth it first pads the images [N*D,H,W,C], then the planes [N,D,H*W,C].
class Margins {
 public:
  Margins(Rewrite& rewrite, const Node& like, bool pads) : rewrite_(rewrite), like_(like), pads_(pads) {}

  void add(ValueId from, ValueId to, const Pads& margins) {
    if (margins.size() == 4) return change(from, to, margins);
    const Shape start = shape(from), end = shape(to);
    ValueId image = from;
    int64_t h = start[2], w = start[3];
    const Pads plane(margins.begin() + 2, margins.end()), depth = {margins[0], margins[1], 0, 0};
    if (!is_zero(plane)) {
      h = end[2], w = end[3];
      const ValueId small = view(image, {start[0] * start[1], start[2], start[3], start[4]});
      const ValueId large = made(image, {start[0] * start[1], h, w, start[4]});
      change(small, large, plane);
      image = large;
    }
    if (!is_zero(depth)) {
      const ValueId small = view(image, {start[0], start[1], h * w, start[4]});
      const ValueId large = made(image, {start[0], end[1], h * w, start[4]});
      change(small, large, depth);
      image = large;
    }
    rewrite_.add_node({"reshape", {image}, {to}, {{"shape", end.dims}}, like_.layer, like_.stage, nullptr});
  }

 private:
  // By value: adding values to the graph moves the others.
  Shape shape(ValueId id) const { return rewrite_.graph().type(id).shape; }

  ValueId made(ValueId like, std::vector<int64_t> dims) {
    Value value = rewrite_.graph().value(like);
    value.name += "/margins";
    value.persistent = false;
    if (value.category != Category::kGradients) value.category = Category::kTemporaries;
    value.type.shape = Shape(std::move(dims));
    return rewrite_.add_value(std::move(value));
  }
  ValueId view(ValueId image, std::vector<int64_t> dims) {
    const ValueId result = made(image, dims);
    rewrite_.add_node({"reshape", {image}, {result}, {{"shape", dims}}, like_.layer, like_.stage, nullptr});
    return result;
  }
  void change(ValueId from, ValueId to, const Pads& margins) {
    const char* op = pads_ ? "pad2d" : "crop2d";
    rewrite_.add_node({op, {from}, {to}, {{"pads", margins}}, like_.layer, like_.stage, nullptr});
  }

  Rewrite& rewrite_;
  const Node& like_;
  bool pads_;
};

void emit_padded_outside(Rewrite& rewrite, NodeId id, const Pads& outer) {
  const Graph& graph = rewrite.from();
  const Node& old = graph.node(id);
  Node node = with_outer(old, outer);
  for (ValueId& in : node.inputs) in = rewrite.to(in);
  const bool makes_image = is_input_grad(old);
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
    Margins(rewrite, old, false).add(padded, result(image), outer);
    return;
  }
  Margins(rewrite, old, true).add(node.inputs[0], padded, outer);
  node.inputs[0] = padded;
  for (ValueId& out : node.outputs) out = result(out);
  rewrite.add_node(std::move(node));
}

// Returns whether every window of this size contains a pixel of the image.
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

  // Folds only if every reader can take the padding. Otherwise the padded image stays live and the original one is live
  // longer.
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

  // Zeros around a relu's result never exceed the values inside, so they may become the pooling's own padding, which is
  // never the maximum. If a whole window is zero, the gradient may go to another pixel, but relu's gradient is zero
  // there.
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
    // Each gradient must have the crop as its only reader.
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
