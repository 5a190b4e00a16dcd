#include "levers/split_analysis.h"

#include <algorithm>

#include "ops/op.h"

namespace plimsoll::engine {
namespace {

class Analyser {
 public:
  explicit Analyser(const Graph& graph) : graph_(graph), known_from_(graph.values.size(), 0) {
    found_.forms.resize(graph.nodes.size());
    found_.segment.assign(graph.nodes.size(), 0);
    found_.sliced.assign(graph.values.size(), false);
  }

  std::optional<SplitAnalysis> run() {
    if (!find_samples()) return {};
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!place(n)) return {};
    delay_what_reads_only_the_batch();
    return std::move(found_);
  }

 private:
  bool sliced(ValueId id) const { return found_.sliced[static_cast<size_t>(id)]; }
  int& known_from(ValueId id) { return known_from_[static_cast<size_t>(id)]; }

  // Every input of the phase that is not persistent holds the batch.
  bool find_samples() {
    for (ValueId id : graph_.inputs) {
      const Value& value = graph_.value(id);
      if (value.persistent) continue;
      if (value.type.shape.rank() == 0) return false;
      if (found_.samples == 0) found_.samples = value.type.shape[0];
      if (value.type.shape[0] != found_.samples) return false;
      found_.sliced[static_cast<size_t>(id)] = true;
    }
    return found_.samples > 0;
  }

  bool consists_of_samples(ValueId id) const {
    const Shape& shape = graph_.type(id).shape;
    return shape.rank() > 0 && shape[0] % found_.samples == 0;
  }

  bool fits(const Node& node, const SplitForm& form) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool by_sample = letter_of(form.inputs, i) == 's';
      if (by_sample ? !consists_of_samples(node.inputs[i]) : sliced(node.inputs[i])) return false;
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (letter_of(form.outputs, i) == 's' ? !consists_of_samples(node.outputs[i])
                                            : !is_floating(graph_.type(node.outputs[i]).dtype))
        return false;
    }
    return true;
  }

  bool place(size_t n) {
    const Node& node = graph_.nodes[n];
    int segment = 0;
    bool any_sliced = false;
    for (ValueId id : node.inputs) {
      segment = std::max(segment, known_from(id));
      any_sliced = any_sliced || sliced(id);
    }
    found_.segment[n] = segment;
    if (!any_sliced) {
      for (ValueId id : node.outputs) known_from(id) = segment;
      return true;
    }
    for (SplitForm& form : split_forms(graph_, node))
      if (fits(node, form)) {
        found_.forms[n] = std::move(form);
        break;
      }
    if (!found_.forms[n]) return false;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const bool by_sample = letter_of(found_.forms[n]->outputs, i) == 's';
      found_.sliced[static_cast<size_t>(node.outputs[i])] = by_sample;
      known_from(node.outputs[i]) = by_sample ? segment : segment + 1;
    }
    found_.segments = std::max(found_.segments, segment + 1);
    return true;
  }

  // A value that is made of nothing but the batch, such as a target in another form, is made in the segment that reads
  // it first, not in segment 0.
  void delay_what_reads_only_the_batch() {
    const std::vector<bool> only_batch = nodes_that_read_only_the_batch();
    std::vector<int> first_reader(graph_.values.size(), found_.segments);
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      if (!found_.forms[n]) continue;
      int& segment = found_.segment[n];
      if (only_batch[n]) {
        int first = found_.segments;
        for (ValueId id : node.outputs) first = std::min(first, first_reader[static_cast<size_t>(id)]);
        if (first < found_.segments) segment = std::max(segment, first);
      }
      for (ValueId id : node.inputs)
        first_reader[static_cast<size_t>(id)] = std::min(first_reader[static_cast<size_t>(id)], segment);
    }
  }

  std::vector<bool> nodes_that_read_only_the_batch() const {
    std::vector<bool> marked(graph_.nodes.size(), false);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      marked[n] = found_.forms[n] && op_def(node.op).recompute == Recompute::kCheap &&
                  std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return sliced(id); });
      for (ValueId id : node.inputs) {
        const NodeId producer = graph_.value(id).producer;
        if (sliced(id) && producer != kNone) marked[n] = marked[n] && marked[static_cast<size_t>(producer)];
      }
    }
    return marked;
  }

  const Graph& graph_;
  std::vector<int> known_from_;  // per value: the first segment that can read it
  SplitAnalysis found_;
};

}  // namespace

std::optional<SplitAnalysis> analyse_split(const Graph& graph) {
  return Analyser(graph).run();
}

}  // namespace plimsoll::engine
