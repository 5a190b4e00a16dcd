#include "backends/cpu/cpu.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "backends/common/elementwise.h"
#include "backends/cpu/fused/program.h"
#include "backends/cpu/fused/tile_view.h"
#include "backends/cpu/half/half.h"
#include "backends/cpu/recipe.h"
#include "backends/cpu/recurrent/recurrent.h"
#include "device/host_backend.h"

namespace plimsoll::engine {

namespace cpu {

namespace {

// The recipe function of each op that does not run as a tile program. All other ops run as tile programs if they have a
// tile form (fused/compile.cpp). `cast`, `broadcast` and `reduce_to` have a tile form for fused nodes, but use another
// kernel when they stand alone.
const std::map<std::string, RecipeFunction>& recipes() {
  static const std::map<std::string, RecipeFunction> kRecipes = [] {
    std::map<std::string, RecipeFunction> map;
    const auto add = [&](RecipeFunction recipe, std::initializer_list<const char*> ops) {
      for (const char* op : ops) map[op] = recipe;
    };
    add(convolution_recipe,
        {"conv2d", "conv2d_input_grad", "conv2d_weight_grad", "conv3d", "conv3d_input_grad", "conv3d_weight_grad"});
    add(matmul_recipe, {"matmul"});
    add(reorder_recipe, {"reorder"});
    add(tile_recipe, {"fused"});
    add(pooling_recipe, {"max_pool2d", "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad", "max_pool3d",
                         "max_pool3d_grad", "avg_pool3d", "avg_pool3d_grad", "global_avg_pool2d",
                         "global_avg_pool2d_grad", "global_max_pool2d", "global_max_pool2d_grad"});
    add(row_recipe, {"softmax", "softmax_grad", "layer_norm", "layer_norm_input_grad", "softmax_cross_entropy",
                     "softmax_cross_entropy_grad", "cross_entropy", "cross_entropy_grad", "binary_cross_entropy",
                     "binary_cross_entropy_grad", "squared_error", "squared_error_grad", "absolute_error",
                     "absolute_error_grad", "match"});
    add(reduction_recipe, {"reduce_to", "weighted_sum", "weighted_sum_grad", "l1_l2_penalty", "squared_norm",
                           "clip_factor", "layer_norm_param_grad", "count_not_finite", "loss_scale", "applied_updates",
                           "count_periods", "scheduled_rate"});
    add(image_recipe, {"upsample2d", "upsample2d_grad"});
    add(resample_recipe, {"resample", "resample_grad", "adaptive_max_pool", "adaptive_max_pool_grad"});
    add(affine_image_recipe, {"affine_image", "affine_image_grad"});
    add(shape_recipe, {"reshape", "to_host", "to_host_done", "to_device", "to_device_done", "concat", "slice",
                       "broadcast", "fill", "constant", "cast", "pad2d", "crop2d"});
    add(attention_recipe, {"attention", "attention_grad"});
    add(recurrent_recipe, {"recurrent"});
    add(recurrent_grad_recipe, {"recurrent_grad"});
    add(table_recipe, {"embedding", "embedding_grad"});
    add(row_update_recipe, {"sgd_rows", "adam_rows"});
    add(batch_matmul_recipe, {"batch_matmul"});
    add(strided_recipe, {"transpose", "strided_slice", "strided_slice_grad"});
    add(pad_recipe, {"pad", "pad_grad"});
    add(index_recipe, {"gather", "scatter_add", "take_along", "take_along_grad", "iota", "one_hot"});
    add(axes_recipe, {"reduce_max", "reduce_min", "reduce_prod", "arg_max", "arg_min", "cumsum", "cumprod"});
    add(sort_recipe, {"sort", "top_k"});
    add(ctc_recipe, {"ctc", "ctc_grad"});
    return map;
  }();
  return kRecipes;
}

// Our own kernels read and write row-major values. Convolutions and reorders handle layouts themselves. A fused node
// may begin with a cast.
Status check(const Problem& p) {
  const std::string& op = p.node.op;
  const bool casts = op == "cast" || op == "fused";
  return check_values(p, op == "reorder" || op.starts_with("conv"), [=](DType dtype) -> std::string {
    return dtype == DType::kFloat64 && !casts ? "the CPU backend computes in f32" : "";
  });
}

// Ops whose own kernels take half precision: they convert in their tiles, or move elements as they are.
bool takes_half(const Problem& p) {
  static const std::set<std::string> kOps = {"fused",   "cast",         "fill",      "reshape",
                                             "to_host", "to_host_done", "to_device", "to_device_done",
                                             "concat",  "slice",        "reorder",   "count_not_finite"};
  return kOps.count(p.node.op) != 0 || recipes().count(p.node.op) == 0;
}

std::string attr_text(const Attr& attr) {
  return std::visit(
      [](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, AttrList>) {
          std::string text;
          for (int64_t v : value) text += fmt::format("{},", v);
          return text;
        } else {
          return fmt::format("{}", value);
        }
      },
      attr);
}

bool asks_library(const std::string& op) {
  return op == "reorder" || op.starts_with("conv");
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(Machine machine) : machine_(std::move(machine)), info_(describe(machine_)) {}

  const Machine& machine() const { return machine_; }
  const DeviceInfo& info() const override { return info_; }

  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override {
    if (!asks_library(node.op)) return fresh_offer(graph, node);
    const std::string key = key_of(graph, node);
    const std::lock_guard lock(mutex_);
    if (const auto found = offers_.find(key); found != offers_.end()) return found->second;
    if (offers_.size() >= kMostOffers) offers_.clear();
    auto offer = fresh_offer(graph, node);
    if (offer) offers_[key] = *offer;
    return offer;
  }

  bool fuses(const Graph& graph, const Node& node) const override {
    if (!has_tile_form(node.op)) return false;
    const TensorType& first = graph.type(node.inputs[0]);
    if (node.op == "cast") {
      const DType to = graph.type(node.outputs[0]).dtype;
      return to == DType::kFloat32 || is_half(to);
    }
    if (node.op == "broadcast")
      return wide(first.dtype) == DType::kFloat32 &&
             tile_view(first.shape, graph.type(node.outputs[0]).shape).has_value();
    if (node.op == "reduce_to") return summed_segments(first.shape, graph.type(node.outputs[0]).shape) > 0;
    // batch_norm_stats shifts by a mean sampled from its input, so the input must exist in memory.
    return node.op != "batch_norm_stats";
  }

  bool has_epilogues() const override { return true; }

  Bytes overhead_bound(const BoundCounts& counts) const override;
  Bytes planning_bound(int64_t nodes) const override;

 private:
  static constexpr size_t kMostOffers = 4096;

  Result<KernelOffer> fresh_offer(const Graph& graph, const Node& node) const {
    use_threads(machine_);
    PLIMSOLL_ASSIGN(Recipe recipe, recipe_for({{graph, node}, machine_}));
    return std::move(recipe.offer);
  }

  Machine machine_;
  DeviceInfo info_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, KernelOffer> offers_;
};

// Measured with oneDNN 2.6.3, two threads, AVX-512 and AVX2. The idle program occupies 8 MiB (7.4 MiB for a test that
// links only this backend). The first primitive and the threads add 3 MiB, and each further primitive 30 to 100 KiB
// (brgconv the most). A GPU backend that is linked but not used adds 2 MiB. A whole run of a small CNN, including
// saving, peaks at 17 MiB. A node of a plan, with its kernel and oneDNN's descriptors of its arguments, takes 6 KiB
// (1,000 equal convolutions: 9,000 nodes and 69 MiB in all). Published bound: 31 MiB, plus 128 KiB per distinct
// primitive, plus 8 KiB per node, plus 128 KiB per thread for its stack. The margin dates from when libhdf5 was linked,
// which took some 10 MiB.
Bytes CpuDevice::overhead_bound(const BoundCounts& counts) const {
  constexpr Bytes kProgram = 31 * kMiB, kPrimitive = 128 * kKiB, kNode = 8 * kKiB, kThread = 128 * kKiB;
  return align_up(kProgram + counts.primitives * kPrimitive + counts.nodes * kNode + machine_.threads * kThread, kMiB);
}

// Measured: the program with a model open occupies 15 MiB (17 MiB with a GPU backend linked), plus 7 to 13 KiB per node
// of the plan while candidates are built one after the other (200 transformer blocks, ResNet-50 and 152, DenseNet-121,
// MobileNetV2; 13 for 800 small Dense layers, whose path of recompute is kept while plans are packed).
Bytes CpuDevice::planning_bound(int64_t nodes) const {
  constexpr Bytes kProgram = 20 * kMiB, kNode = 14 * kKiB;
  return align_up(kProgram + nodes * kNode, kMiB);
}

class CpuBackend final : public HostBackend {
 public:
  explicit CpuBackend(Machine machine) : device_(std::move(machine)) {}

  const Device& device() const override { return device_; }
  void enter_thread() const override { use_threads(device_.machine()); }
  MachineRates measure_rates() const override { return cpu::measure_rates(device_.machine()); }

  Result<std::unique_ptr<Kernel>> bind(const BoundNode& node) const override {
    use_threads(device_.machine());
    PLIMSOLL_ASSIGN(const Recipe recipe, recipe_for({{node.graph, node.node}, device_.machine(), true, node.kernel}));
    if (recipe.offer.kernel != node.kernel)
      return fail(ErrorCode::kBadPlan, fmt::format("this machine runs {} with kernel {}, but the plan names {}",
                                                   node.node.op, recipe.offer.kernel, node.kernel));
    if (recipe.offer.workspace > node.workspace_bytes) {
      return fail(ErrorCode::kBadPlan, fmt::format("{} needs a workspace of {} bytes but the plan provides {}",
                                                   node.kernel, recipe.offer.workspace, node.workspace_bytes));
    }
    return recipe.bind(node);
  }

 private:
  CpuDevice device_;
};

}  // namespace

std::string key_of(const Graph& graph, const Node& node) {
  std::string key = node.op;
  const auto add = [&](ValueId id) { key += fmt::format("|{}{}", to_text(graph.type(id)), graph.value(id).layout); };
  for (ValueId id : node.inputs) add(id);
  key += ">";
  for (ValueId id : node.outputs) add(id);
  for (const auto& [name, attr] : node.attrs.items()) key += fmt::format("|{}={}", name, attr_text(attr));
  return key;
}

Result<Recipe> recipe_for(const Problem& problem) {
  const std::string& op = problem.node.op;
  const auto found = recipes().find(op);
  if (found == recipes().end() && !has_tile_form(op))
    return fail(ErrorCode::kUnsupported, fmt::format("the CPU backend has no kernel for {}", op));
  PLIMSOLL_TRY(check(problem));
  if (found == recipes().end()) return tile_recipe(problem);
  if (!has_half(problem) || takes_half(problem)) return found->second(problem);
  if (has_tile_form(op))
    if (auto tiled = tile_recipe(problem)) return tiled;
  return half_recipe(problem);
}

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  return std::make_unique<cpu::CpuBackend>(cpu::make_machine(threads));
}

std::unique_ptr<Backend> make_cpu_backend_of_small_pieces(int threads) {
  cpu::Machine machine = cpu::make_machine(threads);
  machine.piece_bytes = 512;
  return std::make_unique<cpu::CpuBackend>(std::move(machine));
}

}  // namespace plimsoll::engine
