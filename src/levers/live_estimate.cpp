#include "levers/live_estimate.h"

#include <algorithm>

#include "ops/predicates.h"

namespace plimsoll::engine {
namespace {

// lower/ fuses these nodes, so their results are stored in-place or not at all.
bool is_fused(const Node& node) {
  return op_def(node.op).kind == OpKind::kElementwise || op_def(node.op).kind == OpKind::kReduction;
}

}  // namespace

LiveEstimate::LiveEstimate(const Graph& graph, const RecomputeChoice& cheap, const Device& device)
    : graph_(graph), cheap_(cheap), readers_(readers_through_views(graph)), saved_of_(graph.values.size(), kNone) {
  find_saved();
  for (SavedActivation& saved : saved_) price(saved, device);
  find_backward_readers();
  fill_base();
}

void LiveEstimate::find_saved() {
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const Value& value = graph_.values[v];
    const bool input = value.producer == kNone;
    if (value.persistent || (!input && (!cheap_.read[v] || cheap_.recomputed[v]))) continue;
    SavedActivation saved;
    saved.value = static_cast<ValueId>(v);
    saved.bytes = value.bytes();
    saved.made = saved.forward_last = input ? 0 : value.producer;
    for (NodeId reader : readers_[v])
      if (!is_backward(graph_.node(reader))) saved.forward_last = std::max(saved.forward_last, reader);
    saved.first = INT32_MAX;
    saved.last = saved.made;
    saved_of_[v] = static_cast<int>(saved_.size());
    saved_.push_back(std::move(saved));
  }
}

void LiveEstimate::add_nodes(NodeId id, Chain& chain, std::vector<bool>& seen) const {
  if (seen[static_cast<size_t>(id)]) return;
  seen[static_cast<size_t>(id)] = true;
  const Node& node = graph_.node(id);
  if (op_def(node.op).recompute == Recompute::kNever || is_backward(node)) chain.possible = false;
  for (ValueId input : node.inputs) {
    const int source = saved_of_[static_cast<size_t>(input)];
    if (source != kNone) {
      if (std::find(chain.sources.begin(), chain.sources.end(), source) == chain.sources.end())
        chain.sources.push_back(source);
    } else if (graph_.value(input).producer != kNone && chain.possible) {
      add_nodes(graph_.value(input).producer, chain, seen);
    }
  }
  chain.nodes.push_back(id);
}

LiveEstimate::Chain LiveEstimate::chain_of(ValueId id) const {
  Chain chain;
  std::vector<bool> seen(graph_.nodes.size(), false);
  add_nodes(graph_.value(id).producer, chain, seen);
  return chain;
}

// Returns false if recomputing `id` would let lowering fold a relu into the convolution or product that produces it.
// The clone would have no relu, so the two could use different kernels and round differently.
bool LiveEstimate::keeps_its_epilogue(ValueId id) const {
  const Node& node = graph_.node(graph_.value(id).producer);
  if (!takes_epilogue(node.op)) return true;
  const auto& readers = readers_[static_cast<size_t>(id)];
  const auto forward = [&](NodeId reader) { return !is_backward(graph_.node(reader)); };
  const auto first = std::find_if(readers.begin(), readers.end(), forward);
  return first == readers.end() || std::count_if(readers.begin(), readers.end(), forward) > 1 ||
         graph_.node(*first).op != "relu";
}

void LiveEstimate::price(SavedActivation& saved, const Device& device) const {
  const NodeId producer = graph_.value(saved.value).producer;
  if (producer == kNone) return;
  Chain chain = chain_of(saved.value);
  saved.can_be_recomputed = chain.possible && keeps_its_epilogue(saved.value);
  if (!saved.can_be_recomputed) return;
  for (NodeId id : chain.nodes) {
    const auto offer = device.offer(graph_, graph_.node(id));
    saved.seconds += offer ? offer->seconds : 0;
    saved.can_be_recomputed = saved.can_be_recomputed && offer.has_value();
  }
  for (ValueId id : graph_.node(producer).inputs)
    if (saved_of_[static_cast<size_t>(id)] == kNone && !graph_.value(id).persistent)
      saved.scratch += graph_.value(id).bytes();
  saved.clones = std::move(chain.nodes);
  saved.sources = std::move(chain.sources);
}

// A cheap value that a backward node reads is recomputed from saved activations right at that node.
void LiveEstimate::find_backward_readers() {
  const auto reads = [&](int source, int node) {
    SavedActivation& a = saved_[static_cast<size_t>(source)];
    a.first = std::min(a.first, node);
    a.last = std::max(a.last, node);
  };
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    if (saved_of_[v] == kNone && !cheap_.recomputed[v]) continue;
    const std::vector<int> sources =
        cheap_.recomputed[v] ? chain_of(static_cast<ValueId>(v)).sources : std::vector<int>{saved_of_[v]};
    for (NodeId reader : readers_[v])
      if (is_backward(graph_.node(reader)))
        for (int source : sources) reads(source, reader);
  }
}

void LiveEstimate::fill_base() {
  base_.assign(graph_.nodes.size() + 1, 0);
  std::vector<bool> in_place(graph_.values.size(), false), to_the_end(in_place);
  for (const Update& update : graph_.updates) in_place[static_cast<size_t>(update.value)] = true;
  for (ValueId id : graph_.outputs) to_the_end[static_cast<size_t>(id)] = true;
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const Value& value = graph_.values[v];
    if (value.producer == kNone || in_place[v] || saved_of_[v] != kNone || is_view(graph_.node(value.producer)))
      continue;
    const bool backward = is_backward(graph_.node(value.producer));
    int last = to_the_end[v] ? static_cast<int>(graph_.nodes.size()) - 1 : value.producer;
    for (NodeId reader : readers_[v]) {
      const Node& node = graph_.node(reader);
      if (backward || !is_backward(node)) last = std::max(last, reader);
      // A clone that is not fused into its reader must be stored.
      if (cheap_.recomputed[v] && is_backward(node) && !is_fused(node)) {
        base_[static_cast<size_t>(reader)] += value.bytes();
        base_[static_cast<size_t>(reader) + 1] -= value.bytes();
      }
    }
    const int first = value.producer + (is_fused(graph_.node(value.producer)) ? 1 : 0);
    if (first > last) continue;
    base_[static_cast<size_t>(first)] += value.bytes();
    base_[static_cast<size_t>(last) + 1] -= value.bytes();
  }
}

std::vector<Bytes> LiveEstimate::live(const std::vector<bool>& recomputed) const {
  std::vector<Bytes> change = base_;
  std::vector<int> first_needed, last_needed;
  for (const SavedActivation& saved : saved_) {
    first_needed.push_back(saved.first);
    last_needed.push_back(saved.last);
  }
  const auto alive = [&](int first, int last, Bytes bytes) {
    if (first > last) return;
    change[static_cast<size_t>(first)] += bytes;
    change[static_cast<size_t>(last) + 1] -= bytes;
  };
  // Visit readers before their sources: a saved activation is needed from the first clone that reads it.
  for (size_t a = saved_.size(); a-- > 0;) {
    const SavedActivation& saved = saved_[a];
    if (!recomputed[a]) {
      alive(saved.made, std::max(saved.forward_last, last_needed[a]), saved.bytes);
      continue;
    }
    for (int source : saved.sources) {
      auto& first = first_needed[static_cast<size_t>(source)];
      auto& last = last_needed[static_cast<size_t>(source)];
      first = std::min(first, first_needed[a]);
      last = std::max(last, first_needed[a]);
    }
    alive(saved.made, saved.forward_last, saved.bytes);
    alive(first_needed[a], last_needed[a], saved.bytes);
    alive(first_needed[a], first_needed[a], saved.scratch);
  }
  change.pop_back();  // behind the last node
  Bytes live = 0;
  for (Bytes& node : change) node = live += node;
  return change;
}

Bytes LiveEstimate::peak(const std::vector<bool>& recomputed) const {
  const std::vector<Bytes> bytes = live(recomputed);
  return bytes.empty() ? 0 : std::max<Bytes>(0, *std::max_element(bytes.begin(), bytes.end()));
}

}  // namespace plimsoll::engine
