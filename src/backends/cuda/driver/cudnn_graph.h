// A cuDNN problem as a graph of cuDNN operations, and the choice of an engine that fits into the plan's workspace.
//
// Engines are tried in the order of cuDNN's heuristics. The first time a card meets a problem, the first few engines
// are timed on the real addresses, which overwrites the outputs. The fastest is remembered by name (engine_choices.h).
// Equal problems share one execution plan whatever their addresses are.
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
  std::string text;  // everything the graph depends on; no tabs, no newlines
  std::function<void(cudnn_frontend::graph::Graph&)> build;
  bool full_f32 = false;   // forbids tf32 and transforms that lose as much precision
  bool any_order = false;  // allows engines whose sums differ in the last bits from run to run
  // The problem passes no scalars by value and clears no memory beforehand. cuDNN then needs only the tensors, and
  // run() is one call with a variant pack prepared once.
  bool tensors_only = true;
};

class DnnPlan;

struct ChosenPlan {
  std::shared_ptr<const DnnPlan> plan;
  double seconds = 0;  // 0 if it was not measured now
};

// Returns kUnsupported if no engine supports the problem within the workspace.
Result<ChosenPlan> choose_plan(Context& context, const DnnProblem& problem, std::span<const DnnTensor> tensors,
                               const Workspace& workspace);

BoundKernel make_dnn_kernel(Context& context, std::shared_ptr<const DnnPlan> plan, std::span<const DnnTensor> tensors,
                            const Workspace& workspace);

// The key under which the choice for `problem` is remembered.
std::string choice_key(const Context& context, const std::string& problem);

cudnn_frontend::DataType_t dnn_type(DType dtype);

}  // namespace plimsoll::engine::cuda
