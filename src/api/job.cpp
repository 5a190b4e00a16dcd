#include "api/job.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

#include "api/builtin.h"
#include "api/saved_config.h"
#include "backends/cuda/cuda.h"
#include "backends/reference/reference.h"
#include "data/prefetcher.h"
#include "device/host_room.h"
#ifdef PLIMSOLL_HAS_CPU
#include "backends/cpu/cpu.h"
#endif

namespace plimsoll {
namespace {

constexpr Bytes kSmallestMargin = 64 * kMiB;
// Far above any machine's cores. OpenMP takes memory for each thread it is told of, before there is a plan.
constexpr int kMostThreads = 65536;

#ifdef PLIMSOLL_HAS_CUDA
// N of gpu:N; 0 of gpu and auto.
Result<int> gpu_ordinal(const std::string& device) {
  const size_t colon = device.find(':');
  if (colon == std::string::npos) return 0;
  const std::string number = device.substr(colon + 1);
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos || number.size() > 4)
    return fail(
        Error{ErrorCode::kUsage, fmt::format("--device {}: gpu:N takes a number", device), {}, {"--device gpu:0"}});
  return std::stoi(number);
}
#endif

Result<std::unique_ptr<Backend>> open_gpu(const JobOptions& options) {
#ifdef PLIMSOLL_HAS_CUDA
  GpuOptions gpu;
  gpu.tf32 = options.tf32;
  gpu.memory_growth = options.memory_growth;
  PLIMSOLL_ASSIGN(gpu.ordinal, gpu_ordinal(options.device));
  return make_cuda_backend(gpu);
#else
  return fail(Error{ErrorCode::kLibraryMissing,
                    fmt::format("--device {}: this build has no GPU backend", options.device),
                    {"it was made where nvcc, cuDNN's headers or cudnn-frontend were missing"},
                    {"scripts/cuda_deps.sh, then make build", "--device cpu",
                     "--device rtx-4090-24g   with plimsoll plan: a card that is not here"}});
#endif
}

}  // namespace

Result<OpenModel> open_description(const Description& description, const std::string& file,
                                   const ModelOptions& overrides) {
  PLIMSOLL_ASSIGN(Model model, Model::create(description, overrides));
  nlohmann::json config = description.config;
  config["build_config"] = nullptr;
  if (description.compile_config.is_object()) config["compile_config"] = description.compile_config;
  std::string text = saved_config(config, config.dump(), overrides, model, false);
  return OpenModel{file, std::nullopt, std::move(text), std::move(model), !overrides.optimizer};
}

Result<OpenModel> open_model(const std::string& name, const ModelOptions& overrides) {
  if (const auto builtin = builtin_model(name)) return open_description(*builtin, name, overrides);
  auto archive = open_keras(name);
  if (!archive) {
    Error error = archive.error();
    if (error.code == ErrorCode::kFileUnreadable && name.find('.') == std::string::npos &&
        name.find('/') == std::string::npos)
      error.remedy("a .keras file, a Keras .json, or a built-in model: plimsoll plan --list");
    return fail(std::move(error));
  }
  Description description{archive->config, nlohmann::json()};
  if (archive->config.is_object() && archive->config.contains("compile_config"))
    description.compile_config = archive->config.at("compile_config");
  auto model = Model::create(description, overrides);
  if (!model) {
    Error error = model.error();
    if (error.code == ErrorCode::kBadConfig && !any_override(overrides))  // else it may be the flags that are wrong
      error.what = fmt::format("{}: {}", name, error.what);
    return fail(std::move(error));
  }
  std::string text =
      saved_config(archive->config, archive->config_text, overrides, *model, has_loss_scale_state(*archive));
  return OpenModel{name, std::move(*archive), std::move(text), std::move(*model), !overrides.optimizer};
}

Result<OpenModel> open_model(JobOptions& job) {
  PLIMSOLL_ASSIGN(OpenModel open, open_model(job.model, job.overrides));
  if (job.precision.empty()) {
    job.precision = to_text(open.model.policy());
    job.policy_of_layers = true;
  }
  return open;
}

Result<Precision> parse_precision(const std::string& precision) {
  if (precision.empty()) return Precision();
  if (const auto known = precision_from_text(precision)) return *known;
  return fail(Error{
      ErrorCode::kUsage,
      fmt::format("--precision {} is not known", precision),
      {},
      {"--precision float32", "--precision mixed_bfloat16 or mixed_float16   on a GPU",
       "--precision auto   whichever of these the device has", "--precision float64   the slow float64 reference"}});
}

MemoryGrowth choose_memory_growth(bool asked, const char* forced) {
  if (forced == nullptr) return {asked, ""};
  const std::string value = forced;
  if (value != "true" && value != "false")
    return {asked, fmt::format("{}={} is neither true nor false: it changes nothing", kForceGrowth, value)};
  const bool on = value == "true";
  return {on, asked && !on ? fmt::format("{}=false turns --memory-growth off", kForceGrowth) : ""};
}

namespace {

// The card that would compute, or be planned for; none: the CPU, or a device that is not there.
std::optional<cuda::Card> chosen_card(const std::string& device) {
  if (const auto profile = cuda::card_from_profile(device)) return *profile;
#ifdef PLIMSOLL_HAS_CUDA
  if (device != "auto" && !device.starts_with("gpu")) return std::nullopt;
  const auto ordinal = gpu_ordinal(device);
  const auto cards = visible_cards();
  if (ordinal && cards && static_cast<size_t>(*ordinal) < cards->size()) return (*cards)[static_cast<size_t>(*ordinal)];
#endif
  return std::nullopt;
}

// "--precision mixed_bfloat16", or whose choice it was else.
std::string precision_text(const JobOptions& options) {
  return (options.policy_of_layers ? "the model's layers are " : "--precision ") + options.precision;
}

Result<std::unique_ptr<Backend>> choose_backend(const JobOptions& options, const Precision& precision) {
  if (options.threads > kMostThreads)
    return fail(ErrorCode::kUsage, fmt::format("--threads {}: at most {} threads, here are {} cores", options.threads,
                                               kMostThreads, omp_get_num_procs()));
  const int threads = options.threads > 0 ? options.threads : omp_get_num_procs();
  omp_set_num_threads(threads);
  const bool float64 = precision.variables == DType::kFloat64, reference = options.device == "reference";
  if (float64 && !reference && options.device != "auto" && options.device != "cpu")
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--device {}: float64 is the reference's, which runs on the CPU", options.device),
                      {},
                      {"leave --device out", "--precision float32"}});
  if (float64 || reference) return make_reference_backend();
  if (options.device == "gpu" || options.device.starts_with("gpu:")) return open_gpu(options);
  if (options.device != "auto" && options.device != "cpu") {
    PLIMSOLL_ASSIGN(cuda::Card card, cuda::card_from_profile(options.device));
    card.tf32 = options.tf32;
    card.memory_growth = options.memory_growth;
    return make_planned_gpu(std::move(card));
  }
#ifdef PLIMSOLL_HAS_CUDA
  if (options.device == "auto" && visible_cards()) return open_gpu(options);
#endif
  if (precision.is_mixed())
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("{}: the CPU computes in float32", precision_text(options)),
                      {},
                      {"--precision float32", "--device gpu",
                       "--device rtx-4090-24g   with plimsoll plan: a card that is not here"}});
#ifdef PLIMSOLL_HAS_CPU
  return make_cpu_backend(threads);
#else
  return fail(Error{ErrorCode::kLibraryMissing,
                    "this build has no CPU backend: it was made without oneDNN",
                    {},
                    {"install libdnnl-dev and build again", "--precision float64   the slow float64 reference"}});
#endif
}

}  // namespace

std::string automatic_precision(const JobOptions& options) {
  const auto card = chosen_card(options.device);
  if (!card) return to_text(Precision());
  return to_text(Precision(DType::kFloat32, card->has_bfloat16() ? DType::kBFloat16 : DType::kFloat16));
}

Result<std::unique_ptr<Backend>> open_backend(const JobOptions& options) {
  PLIMSOLL_ASSIGN(const Precision precision, parse_precision(options.precision));
  PLIMSOLL_ASSIGN(auto backend, choose_backend(options, precision));
  const DeviceInfo& device = backend->device().info();
  if (precision.compute == DType::kBFloat16 && !device.has_bfloat16)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("{}: {} has no bfloat16", precision_text(options), device.name),
                      {"cards have it from compute capability 8.0 on"},
                      {"--precision mixed_float16   half precision with a loss scale", "--precision float32"}});
  return backend;
}

DataSpec data_spec(const Model& model, bool needs_targets) {
  DataSpec spec;
  for (const Port& port : model.inputs()) spec.inputs.push_back({port.name, port.sample, false, 0, {}});
  for (const Port& port : model.outputs())
    if (port.has_loss) spec.outputs.push_back({port.name, port.sample, port.sparse_labels, port.classes, port.target});
  spec.needs_targets = needs_targets;
  return spec;
}

DataTypes data_types(const DataSet& data, bool sample_weights) {
  DataTypes types;
  for (const Column& column : data.inputs) types.inputs.push_back(column.type.dtype);
  for (const Column& column : data.targets) types.targets.push_back(column.type.dtype);
  types.sample_weights = sample_weights;
  return types;
}

DataTypes assumed_data_types(const Model& model, bool sample_weights) {
  DataTypes types;
  for (const Port& port : model.inputs()) types.inputs.push_back(port.dtype);
  for (const Port& port : model.outputs())
    if (port.has_loss) types.targets.push_back(port.sparse_labels ? DType::kInt32 : DType::kFloat32);
  types.sample_weights = sample_weights;
  return types;
}

DataDemand data_demand(const Model& model, const DataTypes& types, bool reads_ahead) {
  DataDemand demand;
  const auto add = [&](Bytes sample) {
    demand.per_sample += sample;
    demand.padding += kAlignment;  // at most: below one cache line per array
  };
  for (size_t i = 0; i < types.inputs.size(); ++i) add(TensorType{types.inputs[i], model.inputs()[i].sample}.bytes());
  size_t target = 0;
  for (const Port& port : model.outputs()) {
    if (!port.has_loss || target >= types.targets.size()) continue;
    add(TensorType{types.targets[target++], port.target}.bytes());
    if (types.sample_weights) add(static_cast<Bytes>(sizeof(float)));
  }
  demand.reads_ahead = reads_ahead;
  if (reads_ahead) demand.fixed = Prefetcher::kThreadStack + demand.padding;
  return demand;
}

Budget choose_budget(const JobOptions& options, const DeviceInfo& device) {
  // No budget is larger than a card.
  if (options.budget) return {device.own_memory ? std::min(*options.budget, device.memory_bytes) : *options.budget, 0};
  // Where little is free, a quarter of it: the usual margin may be more than there is.
  const Bytes margin = std::min(std::max(kSmallestMargin, device.free_bytes / 20), device.free_bytes / 4);
  return {std::max<Bytes>(device.free_bytes - margin, kMiB), margin};
}

SearchRequest base_request(const JobOptions& options, const Model& model, const Device& device,
                           const Precision& precision, const DataTypes& data, const Budget& budget) {
  SearchRequest request;
  request.model = &model;
  request.device = &device;
  request.graph = {precision, data};
  request.data = data_demand(model, data);
  request.batch = options.batch_size * options.accumulation_steps;
  request.accumulation_steps = options.accumulation_steps;
  request.micro_batch = options.micro_batch;
  request.per_micro_batch_norm = options.per_micro_batch_norm;
  request.forbidden = options.forbidden;
  request.budget = budget.bytes;
  // Of a card that is planned for elsewhere nobody knows the host.
  const bool here = options.device == "auto" || options.device.starts_with("gpu");
  if (options.host_budget)
    request.host_budget = *options.host_budget;
  else if (here && device.info().own_memory)
    request.host_budget = free_host_bytes() / 4 * 3;
  request.host_budget_asked = options.host_budget.has_value();
  if (options.host_budget == Bytes{0}) request.forbidden.insert("offload");
  return request;
}

}  // namespace plimsoll
