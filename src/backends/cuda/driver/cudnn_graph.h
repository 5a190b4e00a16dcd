// A problem for cuDNN as a graph of its operations, and the engine chosen for it inside a workspace grant.
//
// Engines are tried in the order of cuDNN's heuristics. The first time a card meets a problem the first few are timed
// on the very addresses they will work on, which overwrites the outputs; the winner is remembered by name
// (engine_choices.h). Equal problems share one plan whatever their addresses are.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backends/cuda/driver/context.h"
#include "backends/cuda/driver/frontend.h"
#include "backends/cuda/workspace.h"

namespace plimsoll::engine::cuda {

struct DnnTensor {
  int64_t uid;
  void* address;
};

struct DnnProblem {
  std::string text;  // everything the graph depends on; no tabs, no line ends
  std::function<void(cudnn_frontend::graph::Graph&)> build;
  bool full_f32 = false;   // neither tf32 nor transforms that lose as much
  bool any_order = false;  // engines whose sums come out differently from run to run in the last bits may serve
  // No scalars passed by value and no memory cleared beforehand: cuDNN then needs nothing but the tensors, and run() is
  // one call with a list of addresses prepared once.
  bool tensors_only = true;
};

class DnnPlan;

struct ChosenPlan {
  std::shared_ptr<const DnnPlan> plan;
  double seconds = 0;  // 0 where it was not measured now
};

// kUnsupported where no engine fits the problem and the grant.
Result<ChosenPlan> choose_plan(Context& context, const DnnProblem& problem, std::span<const DnnTensor> tensors,
                               const Workspace& workspace);

BoundKernel make_dnn_kernel(Context& context, std::shared_ptr<const DnnPlan> plan, std::span<const DnnTensor> tensors,
                            const Workspace& workspace);

// What a choice for `problem` is remembered under.
std::string choice_key(const Context& context, const std::string& problem);

cudnn_frontend::DataType_t dnn_type(DType dtype);

}  // namespace plimsoll::engine::cuda
