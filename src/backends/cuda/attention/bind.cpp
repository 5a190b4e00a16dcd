// attention and attention_grad: cuDNN's fused attention, and our own kernels where cuDNN has no engine.
#include "backends/cuda/attention/geometry.h"

#include <fmt/format.h>

#include "backends/cuda/attention/launch.h"
#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/driver/cudnn_graph.h"

namespace plimsoll::engine::cuda {

namespace fe = cudnn_frontend;

namespace {

enum : int64_t { kQ = 1, kK, kV, kY, kStats, kDy, kDq, kDk, kDv };

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// A [N,T,H,D] tensor in cuDNN's order: [N,H,T,D] with strides.
fe::graph::Tensor_attributes heads(const char* name, int64_t uid, const AttentionForm& f, bool query, int64_t width,
                                   const HeadStrides& s) {
  return fe::graph::Tensor_attributes()
      .set_name(name)
      .set_uid(uid)
      .set_dim({f.n, query ? f.h : f.g, query ? f.tq : f.tk, width})
      .set_stride({s.sample, s.head, s.position, 1});
}
fe::graph::Tensor_attributes queries(const char* name, int64_t uid, const Attention& a) {
  return heads(name, uid, a.form, true, a.form.d, a.q);
}
fe::graph::Tensor_attributes keys(const char* name, int64_t uid, const Attention& a) {
  return heads(name, uid, a.form, false, a.form.d, a.k);
}
fe::graph::Tensor_attributes values(const char* name, int64_t uid, const Attention& a) {
  return heads(name, uid, a.form, false, a.form.dv, a.v);
}
fe::graph::Tensor_attributes results(const char* name, int64_t uid, const Attention& a) {
  return heads(name, uid, a.form, true, a.form.dv, a.y);
}

fe::graph::Tensor_attributes row_numbers(const Attention& a) {
  return fe::graph::Tensor_attributes()
      .set_name("stats")
      .set_uid(kStats)
      .set_dim({a.form.n, a.form.h, a.form.tq, 1})
      .set_stride({a.form.h * a.form.tq, a.form.tq, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

void make_output(const Tensor& tensor, const fe::graph::Tensor_attributes& like, fe::DataType_t type) {
  tensor->set_output(true)
      .set_uid(like.get_uid())
      .set_dim(like.get_dim())
      .set_stride(like.get_stride())
      .set_data_type(type);
}

void set_types(fe::graph::Graph& graph, const Attention& a) {
  graph.set_io_data_type(dnn_type(a.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
}

void build_forward(fe::graph::Graph& graph, const Attention& a) {
  set_types(graph, a);
  auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true).set_attn_scale(a.scale);
  if (a.form.causal) attributes.set_causal_mask(true);
  auto [y, stats] = graph.sdpa(graph.tensor(queries("q", kQ, a)), graph.tensor(keys("k", kK, a)),
                               graph.tensor(values("v", kV, a)), attributes);
  make_output(y, results("y", kY, a), dnn_type(a.dtype));
  make_output(stats, row_numbers(a), fe::DataType_t::FLOAT);
}

void build_backward(fe::graph::Graph& graph, const Attention& a) {
  set_types(graph, a);
  auto attributes = fe::graph::SDPA_backward_attributes().set_name("attention_grad").set_attn_scale(a.scale);
  if (a.form.causal) attributes.set_causal_mask(true);
  auto [dq, dk, dv] = graph.sdpa_backward(
      graph.tensor(queries("q", kQ, a)), graph.tensor(keys("k", kK, a)), graph.tensor(values("v", kV, a)),
      graph.tensor(results("y", kY, a)), graph.tensor(results("dy", kDy, a)), graph.tensor(row_numbers(a)), attributes);
  make_output(dq, queries("dq", kDq, a), dnn_type(a.dtype));
  make_output(dk, keys("dk", kDk, a), dnn_type(a.dtype));
  make_output(dv, values("dv", kDv, a), dnn_type(a.dtype));
}

std::string text_of(const std::string& op, const Attention& a) {
  const AttentionForm& f = a.form;
  return fmt::format("{} {} {},{},{},{},{},{},{}{}{} scale{}", op, name_of(a.dtype), f.n, f.tq, f.tk, f.h, f.g, f.d,
                     f.dv, a.packed() ? " packed" : "", f.causal ? " causal" : "", a.scale);
}

// The addresses of a node's tensors, packed or separate.
struct Bound {
  void *q, *k, *v, *y, *stats, *dy = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

Bound tensors_of(const BoundNode& node, const Attention& a) {
  const auto &in = node.inputs, &out = node.outputs;
  const size_t masks = a.form.masks.size();
  if (node.node.op == "attention") {
    if (a.packed()) return {in[0], a.part(in[0], 1), a.part(in[0], 2), out[0], out[1]};
    return {in[0], in[1], in[2], out[0], out[1]};
  }
  if (a.packed())
    return {in[1],  a.part(in[1], 1),  a.part(in[1], 2), in[2], in[3], in[0],
            out[0], a.part(out[0], 1), a.part(out[0], 2)};
  return {in[1], in[2], in[3], in[4 + masks], in[5 + masks], in[0], out[0], out[1], out[2]};
}

BoundKernel bind_library(Context& context, const BoundNode& node, const Attention& a) {
  const bool backward = node.node.op == "attention_grad";
  DnnProblem problem;
  problem.text = text_of(node.node.op, a);
  problem.build = [a, backward](fe::graph::Graph& graph) {
    return backward ? build_backward(graph, a) : build_forward(graph, a);
  };
  problem.tensors_only = false;
  problem.any_order = backward;  // partial sums of dq are added in memory in the order in which blocks finish
  const Bound at = tensors_of(node, a);
  std::vector<DnnTensor> tensors = {{kQ, at.q}, {kK, at.k}, {kV, at.v}, {kY, at.y}, {kStats, at.stats}};
  if (backward)
    for (const DnnTensor& more : {DnnTensor{kDy, at.dy}, {kDq, at.dq}, {kDk, at.dk}, {kDv, at.dv}})
      tensors.push_back(more);
  const Workspace workspace = workspace_of(node);
  PLIMSOLL_ASSIGN(const ChosenPlan chosen, choose_plan(context, problem, tensors, workspace));
  return make_dnn_kernel(context, chosen.plan, tensors, workspace);
}

BoundKernel bind_flash(Context& context, const BoundNode& node, const Attention& a) {
  if (a.form.n * a.form.h > 65535 || a.widest() > kWidestHead)
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} is too large: at most 65535 heads over all samples, each at most {} wide",
                            text_of(node.node.op, a), kWidestHead));
  const auto checked = [&context, what = node.node.op] { note_enqueued(context, what); };
  const auto mask = [&](const AttentionMask& m) {
    return m.input < 0 ? nullptr : node.inputs[static_cast<size_t>(m.input)];
  };
  const MaskAddresses masks{mask(a.q_mask), mask(a.k_mask), mask(a.m_mask)};
  const cudaStream_t stream = context.stream;
  const Bound at = tensors_of(node, a);
  if (node.node.op == "attention")
    return make_kernel([=] {
      flash_forward(stream, a, masks, at.q, at.k, at.v, at.y, static_cast<float*>(at.stats));
      checked();
    });
  const Workspace workspace = workspace_of(node);
  if (workspace.bytes < a.own_scratch())
    return fail(ErrorCode::kBadPlan,
                fmt::format("attention_grad needs a workspace of {} bytes but the plan provides {}", a.own_scratch(),
                            workspace.bytes));
  auto* const sums = static_cast<float*>(workspace.data);
  const FlashGradients g{at.dy,
                         at.q,
                         at.k,
                         at.v,
                         at.y,
                         static_cast<const float*>(at.stats),
                         at.dq,
                         at.dk,
                         at.dv,
                         sums,
                         a.may_see_none() ? sums + a.rows() : nullptr};
  return make_kernel([=] {
    flash_backward(stream, a, masks, g);
    checked();
  });
}

}  // namespace

BoundKernel bind_attention(Context& context, const BoundNode& node) {
  const Attention a(context.card, NodeView{node.graph, node.node});
  if (node.kernel == kCudnnKernel) {
    auto bound = bind_library(context, node, a);
    if (bound || bound.error().code != ErrorCode::kUnsupported) return bound;
  } else if (node.kernel != kFlashKernel) {
    return fail(ErrorCode::kBadPlan, fmt::format("{}: there is no kernel '{}' on the GPU", node.node.op, node.kernel));
  }
  return bind_flash(context, node, a);
}

}  // namespace plimsoll::engine::cuda
