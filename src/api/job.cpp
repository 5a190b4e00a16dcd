#include "api/job.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>

#include "api/builtin.h"
#include "api/saved_config.h"
#include "backends/cuda/cuda.h"
#include "backends/registry.h"
#include "base/suggest.h"
#include "data/prefetcher.h"
#include "device/host_room.h"
#include "formats/json/parse.h"
#include "model/config.h"

namespace plimsoll {
namespace {

constexpr Bytes kSmallestMargin = 64 * kMiB;
constexpr int kNewestKeras = 15;  // 3.15 is the newest version that the tests run
// Far above any machine's cores. OpenMP takes memory for each thread it is told of, before there is a plan.
constexpr int kMostThreads = 65536;

BackendOptions backend_options(const JobOptions& options) {
  BackendOptions backend;
  backend.threads = options.threads > 0 ? options.threads : omp_get_num_procs();
  backend.tf32 = options.tf32;
  backend.memory_growth = options.memory_growth;
  return backend;
}

Result<std::unique_ptr<Backend>> open_gpu(const JobOptions& options) {
  BackendOptions gpu = backend_options(options);
  PLIMSOLL_ASSIGN(gpu.ordinal, gpu_ordinal(options.device));
  auto backend = open_backend("gpu", gpu);
  if (!backend && !backend_named("gpu").built)
    backend.error().what = fmt::format("--device {}: {}", options.device, backend.error().what);
  return backend;
}

std::string note_of_metrics(const std::vector<std::string>& skipped) {
  return fmt::format("warning: Plimsoll does not compute the metric{} {}; the saved file keeps {}",
                     skipped.size() == 1 ? "" : "s", fmt::join(skipped, ", "), skipped.size() == 1 ? "it" : "them");
}

// Of metadata.json; a file is read whatever it says.
std::optional<std::string> note_of_version(const KerasArchive& archive) {
  if (!archive.zip) return std::nullopt;  // a bare .json has none
  const auto metadata = parse_json(archive.metadata_text, archive.path);
  const std::string version = metadata ? text_member(*metadata, "keras_version") : "";
  int major = 0, minor = 0;
  const bool known = std::sscanf(version.c_str(), "%d.%d", &major, &minor) == 2;
  if (known && major == 3 && minor <= kNewestKeras) return std::nullopt;
  return fmt::format("note: {} was saved by {}; Plimsoll is tested with the files of Keras 3.0 to 3.{}", archive.path,
                     known ? fmt::format("Keras {}.{}", major, minor) : "an unknown version of Keras", kNewestKeras);
}

}  // namespace

std::string canonical_device(const std::string& device) {
  std::string name = lower_case(device);
  for (const std::string prefix : {"/device:", "device:", "/"})
    if (name.starts_with(prefix)) {
      name = name.substr(prefix.size());
      break;
    }
  if (name == "cuda" || name.starts_with("cuda:")) name = "gpu" + name.substr(4);
  return name == "cpu:0" ? "cpu" : name;
}

Result<int> gpu_ordinal(const std::string& device) {
  const std::string name = canonical_device(device);
  const size_t colon = name.find(':');
  if (!name.starts_with("gpu") || colon == std::string::npos) return 0;
  const std::string number = name.substr(colon + 1);
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos || number.size() > 4)
    return fail(
        Error{ErrorCode::kUsage, fmt::format("--device {}: gpu:N takes a number", device), {}, {"--device gpu:0"}});
  return std::stoi(number);
}

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
        name.find('/') == std::string::npos) {
      std::vector<std::string> names;
      for (const BuiltinModel& model : builtin_models()) names.push_back(model.name);
      if (const std::string meant = suggestion(name, names); !meant.empty())
        error.remedy(fmt::format("{}   built-in", meant));
      error.remedy("a .keras file, a Keras .json, or a built-in model: plimsoll plan --list");
    }
    return fail(std::move(error));
  }
  Description description{std::move(archive->config), nlohmann::json()};
  if (description.config.is_object() && description.config.contains("compile_config"))
    description.compile_config = description.config.at("compile_config");
  auto model = Model::create(description, overrides);
  if (!model) {
    Error error = model.error();
    if (error.code == ErrorCode::kBadConfig && !any_override(overrides))  // else it may be the flags that are wrong
      error.what = fmt::format("{}: {}", name, error.what);
    if (error.remedies.empty() && error.code == ErrorCode::kBadConfig)
      error.remedy("mend the value that is named, or save the model again from Keras: model.save('model.keras')");
    if (error.remedies.empty() && error.code == ErrorCode::kBadGeometry)
      error.remedy(overrides.input_shape.empty()
                       ? "mend the layer or the input's size in Keras, and save the model again"
                       : "another --input-shape");
    return fail(std::move(error));
  }
  std::string text =
      saved_config(description.config, archive->config_text, overrides, *model, has_loss_scale_state(*archive));
  OpenModel open{name, std::move(*archive), std::move(text), std::move(*model), !overrides.optimizer};
  if (const auto note = note_of_version(*open.archive)) open.notes.push_back(*note);
  return open;
}

Result<OpenModel> open_model(JobOptions& job) {
  PLIMSOLL_ASSIGN(OpenModel open, open_model(job.model, job.overrides));
  const auto& skipped = open.model.skipped_metrics();
  if (!skipped.empty()) open.notes.push_back(note_of_metrics(skipped));
  if (job.precision.empty()) {
    job.precision = to_text(open.model.policy());
    job.policy_of_layers = true;
  }
  return open;
}

namespace {

// What is called "bf16" and "fp16" elsewhere, and names that are nearly right.
std::string precision_meant(const std::string& precision) {
  const std::string name = lower_case(precision);
  for (const auto& [other, ours] :
       {std::pair{"bf16", "mixed_bfloat16"}, std::pair{"bfloat16", "mixed_bfloat16"},
        std::pair{"fp16", "mixed_float16"}, std::pair{"f16", "mixed_float16"}, std::pair{"half", "mixed_float16"},
        std::pair{"float16", "mixed_float16"}, std::pair{"fp32", "float32"}, std::pair{"f32", "float32"},
        std::pair{"single", "float32"}, std::pair{"fp64", "float64"}, std::pair{"f64", "float64"},
        std::pair{"double", "float64"}})
    if (name == other) return ours;
  return suggestion(precision, {"float32", "mixed_bfloat16", "mixed_float16", "auto", "float64"});
}

}  // namespace

Result<Precision> parse_precision(const std::string& precision) {
  if (precision.empty()) return Precision();
  if (const auto known = precision_from_text(precision)) return *known;
  Error error{
      ErrorCode::kUsage,
      fmt::format("--precision {}: there is no such precision", precision),
      {},
      {"--precision float32", "--precision mixed_bfloat16 or mixed_float16   on a GPU",
       "--precision auto   whichever of these the device has", "--precision float64   the slow float64 reference"}};
  if (const std::string meant = precision_meant(precision); !meant.empty()) error.remedies = {"--precision " + meant};
  return fail(std::move(error));
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

// A card to plan for that is not here: a profile by its name, or one that the user brings as a file.
Result<cuda::Card> planned_card(const std::string& device) {
  if (cuda::is_profile_file(device)) return cuda::card_from_file(device);
  return cuda::card_from_profile(canonical_device(device));
}

// Whether the card that would compute, or be planned for, has bfloat16; none: the CPU, or a device that is not there.
std::optional<bool> card_has_bfloat16(const std::string& asked) {
  if (const auto card = planned_card(asked)) return card->has_bfloat16();
  const std::string device = canonical_device(asked);
  if (device != "auto" && !device.starts_with("gpu")) return std::nullopt;
  const auto ordinal = gpu_ordinal(device);
  const auto cards = backend_named("gpu").describe().devices;
  if (!ordinal || static_cast<size_t>(*ordinal) >= cards.size()) return std::nullopt;
  return cards[static_cast<size_t>(*ordinal)].has_bfloat16;
}

// "--precision mixed_bfloat16", or whose choice it was else.
std::string precision_text(const JobOptions& options) {
  return (options.policy_of_layers ? "the model's layers are " : "--precision ") + options.precision;
}

Result<std::unique_ptr<Backend>> choose_backend(const JobOptions& options, const Precision& precision) {
  if (options.threads > kMostThreads)
    return fail(ErrorCode::kUsage, fmt::format("--threads {}: at most {} threads, here are {} cores", options.threads,
                                               kMostThreads, omp_get_num_procs()));
  const BackendOptions chosen = backend_options(options);
  omp_set_num_threads(chosen.threads);
  const std::string device = canonical_device(options.device);
  const bool float64 = precision.variables == DType::kFloat64, reference = device == "reference";
  if (float64 && !reference && device != "auto" && device != "cpu")
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--device {}: float64 is the reference's, which runs on the CPU", options.device),
                      {},
                      {"leave --device out", "--precision float32"}});
  if (float64 || reference) return open_backend("reference", chosen);
  const bool from_file = cuda::is_profile_file(options.device);
  if (!from_file && (device == "gpu" || device.starts_with("gpu:"))) return open_gpu(options);
  if (device != "auto" && device != "cpu") {
    PLIMSOLL_ASSIGN(cuda::Card card, planned_card(options.device));
    card.tf32 = options.tf32;
    card.memory_growth = options.memory_growth;
    return make_planned_gpu(std::move(card));
  }
  if (device == "auto" && backend_named("gpu").available()) return open_gpu(options);
  if (precision.is_mixed())
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("{}: the CPU computes in float32", precision_text(options)),
                      {},
                      {"--precision float32", "--device gpu",
                       "--device rtx-4090-24g   with plimsoll plan: a card that is not here"}});
  return open_backend("cpu", chosen);
}

}  // namespace

std::string automatic_precision(const JobOptions& options) {
  const auto has_bfloat16 = card_has_bfloat16(options.device);
  if (!has_bfloat16) return to_text(Precision());
  return to_text(Precision(DType::kFloat32, *has_bfloat16 ? DType::kBFloat16 : DType::kFloat16));
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
  const std::string name = canonical_device(options.device);
  const bool here = name == "auto" || name.starts_with("gpu");
  if (options.host_budget)
    request.host_budget = *options.host_budget;
  else if (here && device.info().own_memory)
    request.host_budget = free_host_bytes() / 4 * 3;
  request.host_budget_asked = options.host_budget.has_value();
  if (options.host_budget == Bytes{0}) request.forbidden.insert("offload");
  return request;
}

}  // namespace plimsoll
