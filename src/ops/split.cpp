#include "ops/split.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "ops/op.h"
#include "ops/recurrent.h"

namespace plimsoll::engine {
namespace {

using Forms = std::vector<SplitForm>;
using Rule = std::function<Forms(const Graph&, const Node&)>;

const Shape& input_shape(const Graph& graph, const Node& node, size_t i = 0) {
  return graph.type(node.inputs[i]).shape;
}
const Shape& output_shape(const Graph& graph, const Node& node) {
  return graph.type(node.outputs[0]).shape;
}

Forms if_possible(bool possible, SplitForm form) {
  Forms forms;
  if (possible) forms.push_back(std::move(form));
  return forms;
}

// The same form for all nodes.
Rule always(SplitForm form) {
  return [form = std::move(form)](const Graph&, const Node&) { return Forms{form}; };
}
// For ops over the last dimension, which must not be the batch.
Rule over_rows(SplitForm form) {
  return [form = std::move(form)](const Graph& graph, const Node& node) {
    const bool has_rows = std::any_of(node.inputs.begin(), node.inputs.end(),
                                      [&](ValueId id) { return graph.type(id).shape.rank() >= 2; });
    return if_possible(has_rows, form);
  };
}
// For ops over the dimension that the attribute `axis` names, which must not be the batch.
Rule over_axis(SplitForm form) {
  return [form = std::move(form)](const Graph&, const Node& node) {
    return if_possible(node.attrs.integer("axis") != 0, form);
  };
}

// The samples of the inputs that have the output's shape.
Forms element_wise(const Graph& graph, const Node& node) {
  SplitForm form{"", "s"};
  for (size_t i = 0; i < node.inputs.size(); ++i)
    form.inputs += input_shape(graph, node, i) == output_shape(graph, node) ? 's' : 'w';
  return if_possible(!node.inputs.empty(), std::move(form));
}

Forms matmul(const Graph&, const Node& node) {
  if (!node.attrs.flag("transpose_a")) return {{"sw", "s"}};
  return if_possible(!node.attrs.flag("transpose_b") && node.inputs.size() == 2, {"s", "+"});
}

// Returns whether the first dimension is neither added nor repeated.
bool keeps_rows(const Graph& graph, const Node& node) {
  const Shape &a = input_shape(graph, node), &b = output_shape(graph, node);
  return a.rank() == b.rank() && a.rank() > 0 && a[0] == b[0];
}
Forms broadcast(const Graph& graph, const Node& node) {
  return {{keeps_rows(graph, node) ? "s" : "w", "s", {"shape"}}};
}
Forms reduce_to(const Graph& graph, const Node& node) {
  if (keeps_rows(graph, node)) return {{"s", "s", {"shape"}}};
  return {{"s", "+"}};
}

Forms reduce(const Graph&, const Node& node) {
  const auto& axes = node.attrs.list("axes");
  return if_possible(axes.empty() || axes[0] != 0, {"s", "s"});
}
Forms transpose(const Graph&, const Node& node) {
  const auto& perm = node.attrs.list("perm");
  return if_possible(!perm.empty() && perm[0] == 0, {"s", "s"});
}
Forms pad(const Graph&, const Node& node) {
  const auto& pads = node.attrs.list("pads");
  return if_possible(pads.size() >= 2 && pads[0] == 0 && pads[1] == 0, {"s", "s"});
}

// strided_slice and its gradient: the batch must be taken whole.
Rule strided(std::vector<std::string> rows) {
  return [rows = std::move(rows)](const Graph& graph, const Node& node) {
    const Attrs& attrs = node.attrs;
    return if_possible(keeps_rows(graph, node) && attrs.list("begin")[0] == 0 && attrs.list("strides")[0] == 1,
                       {"s", "s", rows});
  };
}

Forms gather(const Graph&, const Node& node) {
  if (node.attrs.integer("axis") == 0) return {{"ws", "s"}};
  return {{"sw", "s"}};
}
Forms scatter_add(const Graph&, const Node& node) {
  if (node.attrs.integer("axis") == 0) return {{"s", "+"}};
  return {{"sw", "s"}};
}

// A mask that is the same for all samples stays whole.
Forms attention(const Graph& graph, const Node& node) {
  SplitForm form{"", "s"};
  const int64_t n = output_shape(graph, node)[0];
  for (size_t i = 0; i < node.inputs.size(); ++i) form.inputs += input_shape(graph, node, i)[0] == n ? 's' : 'w';
  return if_possible(n > 1, std::move(form));
}

// The weights are shared; all else consists of samples, and the gradients of the weights are sums.
Forms recurrent(const Graph& graph, const Node& node) {
  const Recurrent r = read_recurrent(node.attrs, input_shape(graph, node), input_shape(graph, node, 2));
  SplitForm form{std::string(node.inputs.size(), 's'), std::string(node.outputs.size(), 's')};
  for (const Slot weight : {Slot(1), Slot(2), r.in_bias})
    if (weight >= 0) form.inputs[static_cast<size_t>(weight)] = 'w';
  if (node.op == "recurrent_grad")
    for (const Slot weight : {r.out_dw, r.out_du, r.out_db})
      if (weight >= 0) form.outputs[static_cast<size_t>(weight)] = '+';
  return {form};
}

// Ops that are not here: element-wise ones read the samples of the inputs of the output's shape, others cannot be cut.
std::unordered_map<std::string, Rule> make_rules() {
  std::unordered_map<std::string, Rule> rules = {
      {"matmul", matmul},
      {"recurrent", recurrent},
      {"recurrent_grad", recurrent},
      {"embedding", always({"ws", "s"})},
      {"embedding_grad", always({"s", "+"})},
      {"batch_norm_stats", always({"s", "mv"})},
      {"batch_norm_grad_stats", always({"ssw", "+"})},
      {"batch_norm_input_grad", always({"ssw", "s", {}, "", kSummedRows})},
      {"layer_norm", over_rows({"sw", "s"})},
      {"layer_norm_input_grad", over_rows({"ssssw", "s"})},
      {"layer_norm_param_grad", over_rows({"s", "+"})},
      {"dropout", always({"sw", "s", {}, kRowsBefore})},
      {"random_uniform", always({"w", "s", {"shape"}, kRowsBefore})},
      {"random_normal", always({"w", "s", {"shape"}, kRowsBefore})},
      {"reshape", always({"s", "s", {"shape"}})},
      {"fill", always({"", "s", {"shape"}})},
      {"iota", over_axis({"", "s", {"shape"}})},
      {"one_hot", always({"s", "s"})},
      {"broadcast", broadcast},
      {"reduce_to", reduce_to},
      {"transpose", transpose},
      {"pad", pad},
      {"pad_grad", pad},
      {"strided_slice", strided({"size"})},
      {"strided_slice_grad", strided({"size", "shape"})},
      {"gather", gather},
      {"scatter_add", scatter_add},
      {"attention", attention},
      {"attention_grad", attention},
      {"weighted_sum", always({"sws", "+"})},
      {"weighted_sum_grad", always({"wws", "s", {"rows"}})},
      {"l1_l2_penalty", always({"s", "+"})},
      {"squared_norm", always({"s", "+"})},
  };
  const auto add = [&](const Rule& rule, std::initializer_list<const char*> ops) {
    for (const char* op : ops) rules.emplace(op, rule);
  };
  add(always({"sw", "s"}), {"conv2d", "conv2d_input_grad", "conv3d", "conv3d_input_grad"});
  add(always({"s", "+"}), {"conv2d_weight_grad", "conv3d_weight_grad"});
  add(always({"s", "s"}), {"batch_matmul", "max_pool2d", "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad",
                           "max_pool3d", "max_pool3d_grad", "avg_pool3d", "avg_pool3d_grad", "global_avg_pool2d",
                           "global_avg_pool2d_grad", "global_max_pool2d", "global_max_pool2d_grad", "upsample2d",
                           "upsample2d_grad", "pad2d", "crop2d", "ctc", "ctc_grad"});
  add(over_rows({"s", "s"}),
      {"softmax", "softmax_grad", "softmax_cross_entropy", "softmax_cross_entropy_grad", "cross_entropy",
       "cross_entropy_grad", "binary_cross_entropy", "binary_cross_entropy_grad", "squared_error", "squared_error_grad",
       "absolute_error", "absolute_error_grad", "match", "sort", "top_k"});
  add(over_axis({"s", "s"}),
      {"concat", "slice", "resample", "resample_grad", "adaptive_max_pool", "adaptive_max_pool_grad", "cumsum",
       "cumprod", "take_along", "take_along_grad", "arg_max", "arg_min"});
  add(reduce, {"reduce_max", "reduce_min", "reduce_prod"});
  return rules;
}

}  // namespace

std::vector<SplitForm> split_forms(const Graph& graph, const Node& node) {
  static const std::unordered_map<std::string, Rule> rules = make_rules();
  if (const auto rule = rules.find(node.op); rule != rules.end()) return rule->second(graph, node);
  if (op_def(node.op).kind == OpKind::kElementwise) return element_wise(graph, node);
  return {};
}

char letter_of(const std::string& letters, size_t i) {
  return letters.empty() ? 'w' : letters[std::min(i, letters.size() - 1)];
}

}  // namespace plimsoll::engine
