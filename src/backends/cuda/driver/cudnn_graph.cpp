#include "backends/cuda/driver/cudnn_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "backends/cuda/driver/engine_choices.h"
#include "backends/cuda/driver/libraries.h"
#include "backends/cuda/driver/stopwatch.h"

namespace plimsoll::engine::cuda {

namespace fe = cudnn_frontend;

namespace {

constexpr int kMostTimed = 8;
constexpr int kMostCompiled = 2;  // engines compiled at run time cost some tenths of a second each to try

Error unsupported(const std::string& problem, const std::string& why) {
  return {
      ErrorCode::kUnsupported, fmt::format("cuDNN has no engine for {}", problem), {why.substr(0, why.find('\n'))}, {}};
}

// Gives access to the list of execution plans, which fe::graph::Graph keeps protected.
class OpenGraph final : public fe::graph::Graph {
 public:
  void drop(int64_t index) { plans.execution_plans[static_cast<size_t>(index)] = nullptr; }
  cudnnBackendDescriptor_t descriptor(int64_t index) const {
    return plans.execution_plans[static_cast<size_t>(index)]->get_raw_desc();
  }
  bool compiles(int64_t index) const {
    const auto& notes = plans.behavior_notes[static_cast<size_t>(index)];
    return std::find(notes.begin(), notes.end(), fe::BehaviorNote_t::RUNTIME_COMPILATION) != notes.end();
  }
};

std::unordered_map<int64_t, void*> address_map(std::span<const DnnTensor> tensors) {
  std::unordered_map<int64_t, void*> map;
  for (const DnnTensor& tensor : tensors) map[tensor.uid] = tensor.address;
  return map;
}

}  // namespace

class DnnPlan {
 public:
  OpenGraph graph;
  int64_t index = -1;
  bool tensors_only = true;
  std::string problem;

  // cudnn-frontend's execute() is const, but takes non-const maps.
  fe::error_t execute(cudnnHandle_t handle, std::unordered_map<int64_t, void*>& tensors, void* workspace,
                      int64_t at) const {
    return graph.execute_plan_at_index(handle, tensors, workspace, at);
  }
};

namespace {

// cudnn-frontend returns most failures and throws some (a missing symbol, an engine that cannot be described).
template <typename F>
fe::error_t guarded(const F& f) {
  try {
    return f();
  } catch (const std::exception& error) {
    return {fe::error_code_t::GRAPH_NOT_SUPPORTED, error.what()};
  }
}

// Excludes engines that accumulate in half precision, and engines that sum in no fixed order unless the problem allows
// it.
std::vector<fe::NumericalNote_t> unwanted_notes(const DnnProblem& problem) {
  using enum fe::NumericalNote_t;
  std::vector<fe::NumericalNote_t> notes = {REDUCED_PRECISION_REDUCTION, WINOGRAD_TILE_4x4, WINOGRAD_TILE_6x6,
                                            WINOGRAD_TILE_13x13, FFT};
  if (!problem.any_order) notes.push_back(NONDETERMINISTIC);
  if (problem.full_f32) notes.insert(notes.end(), {TENSOR_CORE, DOWN_CONVERT_INPUTS, WINOGRAD});
  return notes;
}

// cuDNN's heuristics. The first takes least time to ask and names enough engines for most problems.
const std::vector<fe::HeurMode_t> kFirstHeuristic = {fe::HeurMode_t::A};
const std::vector<fe::HeurMode_t> kAllHeuristics = {fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK};

fe::error_t prepare(Context& context, const DnnProblem& problem, Bytes grant,
                    const std::vector<fe::HeurMode_t>& heuristics, OpenGraph& graph) {
  graph.set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE);  // kernels outlive the phases captured from them
  problem.build(graph);
  if (auto status = graph.validate(); status.is_bad()) return status;
  if (auto status = graph.build_operation_graph(context.dnn); status.is_bad()) return status;
  if (auto status = graph.create_execution_plans(heuristics); status.is_bad()) return status;
  graph.deselect_numeric_notes(unwanted_notes(problem));
  graph.deselect_workspace_greater_than(grant);
  return {fe::error_code_t::OK, ""};
}

std::string name_of_plan(const OpenGraph& graph, int64_t index) {
  std::string name;
  if (guarded([&] { return graph.get_plan_name_at_index(index, name); }).is_bad()) return "";
  return name;
}

bool build_at(OpenGraph& graph, int64_t index, Bytes grant) {
  if (guarded([&] { return graph.build_plan_at_index(index); }).is_bad()) return false;
  // The frontend checks only the engine's own workspace, but the part it adds itself counts too.
  if (graph.get_workspace_size_plan_at_index(index) <= grant) return true;
  graph.drop(index);
  return false;
}

// Builds the engine that was fastest in an earlier run, if cuDNN still offers it.
bool build_remembered(DnnPlan& plan, const std::string& key, Bytes grant) {
  const auto choice = remembered_choice(key);
  if (!choice) return false;
  for (int64_t i = 0; i < plan.graph.get_execution_plan_count(); ++i) {
    if (name_of_plan(plan.graph, i) != *choice || !build_at(plan.graph, i, grant)) continue;
    plan.index = i;
    return true;
  }
  return false;
}

// What timing a problem's engines found.
struct Timing {
  double seconds = std::numeric_limits<double>::infinity();  // of the fastest; infinity if none runs
  int engines = 0;                                           // that could be built
};

// Tries the first few engines that can be built and keeps the fastest.
Timing build_fastest(Context& context, DnnPlan& plan, std::span<const DnnTensor> tensors, const Workspace& workspace) {
  auto addresses = address_map(tensors);
  Stopwatch stopwatch(context.stream);
  Timing found;
  int compiled = 0;
  std::vector<std::string> seen;
  for (int64_t i = 0; i < plan.graph.get_execution_plan_count() && found.engines < kMostTimed; ++i) {
    const std::string name = name_of_plan(plan.graph, i);
    if (name.empty() || std::find(seen.begin(), seen.end(), name) != seen.end())
      continue;  // heuristic modes repeat each other's engines
    seen.push_back(name);
    if (plan.graph.compiles(i) && plan.index >= 0 && compiled >= kMostCompiled) continue;
    if (!build_at(plan.graph, i, workspace.bytes)) continue;
    compiled += plan.graph.compiles(i) ? 1 : 0;
    ++found.engines;
    const double seconds = stopwatch.seconds(
        [&] { return guarded([&] { return plan.execute(context.dnn, addresses, workspace.data, i); }).is_good(); },
        found.seconds);
    if (seconds >= found.seconds) {
      plan.graph.drop(i);
      continue;
    }
    if (plan.index >= 0) plan.graph.drop(plan.index);
    plan.index = i;
    found.seconds = seconds;
  }
  return found;
}

// The plans in use, so that equal problems share one. The kernels own them.
struct Shelf {
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<const DnnPlan>> plans;
};
Shelf& shelf() {
  static Shelf all;
  return all;
}

// Runs with cuDNN's variant pack (its list of addresses), finalized once.
class PreparedKernel final : public Kernel {
 public:
  PreparedKernel(Context& context, std::shared_ptr<const DnnPlan> plan)
      : context_(context), plan_(std::move(plan)), pack_(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {}

  fe::error_t prepare(std::span<const DnnTensor> tensors, void* workspace) {
    std::vector<int64_t> uids;
    std::vector<void*> addresses;
    for (const DnnTensor& tensor : tensors) {
      uids.push_back(tensor.uid);
      addresses.push_back(tensor.address);
    }
    return fe::detail::create_variant_pack(pack_, addresses, uids, workspace);
  }
  void run() override {
    const cudnnStatus_t status =
        fe::detail::execute(context_.dnn, plan_->graph.descriptor(plan_->index), pack_.get_ptr());
    if (status != CUDNN_STATUS_SUCCESS) note_library_failure(context_, cudnn_error(status, plan_->problem));
  }

 private:
  Context& context_;
  std::shared_ptr<const DnnPlan> plan_;
  fe::detail::backend_descriptor pack_;
};

// Runs through cudnn-frontend, which passes scalars and clears memory before it calls cuDNN. Each call builds the list
// of addresses again, but if the phase is captured this happens only once.
class FrontendKernel final : public Kernel {
 public:
  FrontendKernel(Context& context, std::shared_ptr<const DnnPlan> plan, std::span<const DnnTensor> tensors,
                 void* workspace)
      : context_(context), plan_(std::move(plan)), addresses_(address_map(tensors)), workspace_(workspace) {}

  void run() override {
    auto status = guarded([&] { return plan_->execute(context_.dnn, addresses_, workspace_, plan_->index); });
    if (status.is_bad())
      note_library_failure(
          context_, {ErrorCode::kInternal, fmt::format("cuDNN: {}: {}", plan_->problem, status.get_message()), {}, {}});
  }

 private:
  Context& context_;
  std::shared_ptr<const DnnPlan> plan_;
  std::unordered_map<int64_t, void*> addresses_;
  void* workspace_;
};

}  // namespace

std::string choice_key(const Context& context, const std::string& problem) {
  const auto table = load_cudnn();
  return fmt::format("cudnn {}|{}|{}", table ? (*table)->get_version() : 0, context.card.name, problem);
}

fe::DataType_t dnn_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return fe::DataType_t::HALF;
    case DType::kBFloat16:
      return fe::DataType_t::BFLOAT16;
    default:
      assert(dtype == DType::kFloat32);
      return fe::DataType_t::FLOAT;
  }
}

Result<ChosenPlan> choose_plan(Context& context, const DnnProblem& problem, std::span<const DnnTensor> tensors,
                               const Workspace& workspace) {
  PLIMSOLL_TRY(load_cudnn());
  const std::string text = fmt::format("{}{}{} ws{}", problem.text, problem.full_f32 ? " full" : "",
                                       problem.any_order ? " any" : "", workspace.bytes);
  const std::string key = choice_key(context, text), place = fmt::format("{}|{}", context.ordinal, key);
  const std::lock_guard lock(shelf().mutex);
  if (auto found = shelf().plans[place].lock()) return ChosenPlan{std::move(found), 0};
  ChosenPlan chosen;
  std::string why = "none of its engines runs within the workspace of the plan";
  for (const auto* heuristics : {&kFirstHeuristic, &kAllHeuristics}) {
    const auto plan = std::make_shared<DnnPlan>();
    plan->problem = problem.text;
    plan->tensors_only = problem.tensors_only;
    auto status = guarded([&] { return prepare(context, problem, workspace.bytes, *heuristics, plan->graph); });
    if (status.is_bad()) {
      why = status.get_message();
      continue;
    }
    Timing found;
    const bool remembered = build_remembered(*plan, key, workspace.bytes);
    const bool last = heuristics == &kAllHeuristics;
    if (!remembered && (last || !remembered_choice(key))) found = build_fastest(context, *plan, tensors, workspace);
    if (!remembered && !last && found.engines < kMostTimed) continue;  // the other heuristics may name a faster one
    if (plan->index < 0) continue;
    if (!remembered) remember_choice(key, name_of_plan(plan->graph, plan->index));
    chosen = {plan, remembered ? 0 : found.seconds};
    break;
  }
  if (chosen.plan == nullptr) return fail(unsupported(text, why));
  shelf().plans[place] = chosen.plan;
  return chosen;
}

BoundKernel make_dnn_kernel(Context& context, std::shared_ptr<const DnnPlan> plan, std::span<const DnnTensor> tensors,
                            const Workspace& workspace) {
  if (!plan->tensors_only) return std::make_unique<FrontendKernel>(context, std::move(plan), tensors, workspace.data);
  const std::string problem = plan->problem;
  auto kernel = std::make_unique<PreparedKernel>(context, std::move(plan));
  auto status = guarded([&] { return kernel->prepare(tensors, workspace.data); });
  if (status.is_bad()) return fail(unsupported(problem, status.get_message()));
  return kernel;
}

}  // namespace plimsoll::engine::cuda
