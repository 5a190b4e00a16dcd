#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "api/model_options.h"
#include "base/printable.h"
#include "base/suggest.h"
#include "cli/command.h"
#include "model/config.h"
#include "model/names.h"
#include "search/lever_table.h"

namespace plimsoll::engine {
namespace {

constexpr const char* kWholeAboveZero = "a whole number above 0";

Result<int64_t> positive(const std::string& text, const std::string& flag) {
  if (const auto value = read_number<int64_t>(text); value && *value > 0) return *value;
  const bool shape = flag == "--input-shape";
  return fail(Error{ErrorCode::kUsage,
                    fmt::format("{} takes {}, got '{}'", flag, shape ? "whole numbers above 0" : kWholeAboveZero, text),
                    {},
                    {shape ? "--input-shape 224,224,3" : flag + " 32"}});
}

template <typename Number>
CLI::Validator number_check(const char* name, const char* wanted, bool (*right)(Number)) {
  return CLI::Validator(
      [=](const std::string& text) {
        const auto value = read_number<Number>(text);
        return value && right(*value) ? std::string() : fmt::format("takes {}, got '{}'", wanted, text);
      },
      name);
}

Result<Bytes> bytes_of(const std::string& text, const std::string& flag) {
  auto bytes = parse_bytes(text);
  if (!bytes) bytes.error().what = fmt::format("{}: {}", flag, bytes.error().what);
  return bytes;
}

Error unknown_name(std::string message, const std::string& name, const std::vector<std::string>& known,
                   const char* kind) {
  Error error{ErrorCode::kUsage, std::move(message), {}, {}};
  error.fact(fmt::format("{}: {}", kind, fmt::join(known, ", ")));
  if (const std::string meant = suggestion(name, known); !meant.empty())
    return error.remedy("did you mean " + meant + "?");
  return error.remedy("use one of these");
}

// Catches typing mistakes before the model is opened: fails if Keras has no such name.
Status check_keras_name(const std::string& flag, const std::string& name, const KerasNames& names, const char* what) {
  if (name.empty() || name[0] == '{' || name[0] == '[' || in_keras(names, name) || in_keras(names, lower_case(name)))
    return {};
  const auto is_word = [](const std::string& one) {
    return one.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos;
  };
  std::vector<std::string> shown;
  std::copy_if(names.supported.begin(), names.supported.end(), std::back_inserter(shown), is_word);
  return fail(unknown_name(fmt::format("{} {}: Keras has no such {}", flag, name, what), name, shown, "supported"));
}

Status check_metrics(const std::vector<std::string>& metrics) {
  for (const std::string& name : metrics) {
    if (name != kNoMetrics) {
      PLIMSOLL_TRY(check_keras_name("--metrics", name, metric_names(), "metric"));
    } else if (metrics.size() > 1) {
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("--metrics {}: 'none' cannot be combined with metrics", fmt::join(metrics, ",")),
                        {},
                        {"--metrics none", "remove 'none'"}});
    }
  }
  return {};
}

Result<std::vector<int64_t>> parse_dims(const std::string& text) {
  std::vector<int64_t> dims;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    PLIMSOLL_ASSIGN(const int64_t value, positive(text.substr(at, comma - at), "--input-shape"));
    dims.push_back(value);
    at = comma + 1;
  }
  return dims;
}

}  // namespace

CLI::Validator above_zero() {
  return number_check<double>("POSITIVE", "a number above 0", [](double n) { return n > 0 && std::isfinite(n); });
}

CLI::Validator whole_above_zero() {
  return number_check<int64_t>("POSITIVE", kWholeAboveZero, [](int64_t n) { return n > 0; });
}

CLI::Validator whole_from_zero() {
  return number_check<int64_t>("NONNEGATIVE", "a whole number, 0 or above", [](int64_t n) { return n >= 0; });
}

Status check_ending(const std::string& path, const std::string& ending, const std::string& flag) {
  if (path.empty() || path.ends_with(ending)) return {};
  return fail(Error{ErrorCode::kUsage,
                    fmt::format("{} {}: the file name must end in {}", flag, path, ending),
                    {},
                    {fmt::format("{} {}", flag, std::filesystem::path(path).replace_extension(ending).string())}});
}

void add_model_flags(CLI::App& command, CommonFlags& flags) {
  command.add_option(
      "--weights", flags.options.weights,
      "load the weights from this file, like model.load_weights: model.weights.h5, an .h5 of Keras 2, or "
      "any model file. For a .json architecture: plimsoll fit model.json --weights model.weights.h5");
  command.add_option(
      "--budget", flags.budget_text,
      "memory the whole process may use: 512MiB, 2GiB, 4G (GiB), 1.5GB (default: the free memory minus a margin)");
  command.add_option(
      "--host-budget", flags.host_budget_text,
      "with --device gpu: host memory that offloaded tensors may use (default: three quarters of the free memory; "
      "0: none)");
  command
      .add_option("--device", flags.options.device,
                  "auto, cpu, gpu, gpu:N (also GPU:0, /GPU:0, cuda:0), or a card to plan for: rtx-4090-24g (plimsoll "
                  "doctor lists all of them), CARD.json (your own profile, see docs/gpu.md)")
      ->capture_default_str();
  command.add_option(
      "--precision", flags.options.precision,
      "float32; mixed_bfloat16 or mixed_float16: activations in half precision; auto: the mixed precision that the GPU "
      "supports, float32 on the CPU; float64: slow, on the reference backend (default: the precision of the model's "
      "layers)");
  command
      .add_option("--float32-layers", flags.options.overrides.float32_layers,
                  "names of layers that stay in float32 under a mixed precision: predictions, 'block5_*'")
      ->delimiter(',');
  command
      .add_option("--tf32", flags.options.tf32,
                  "on a GPU: round the inputs of float32 matrix products and convolutions to tf32, as TensorFlow does "
                  "by default")
      ->capture_default_str();
  command.add_flag("--memory-growth", flags.options.memory_growth,
                   "on a GPU: allocate memory when a phase first needs it and release it between models; "
                   "TF_FORCE_GPU_ALLOW_GROWTH=true does the same. No effect on the CPU, where memory is taken when it "
                   "is first written anyway");
  command.add_option("--threads", flags.options.threads, "compute threads (default: all cores)")
      ->check(whole_from_zero());
  command
      .add_option("--calibration", flags.options.calibration,
                  "the file with the times of this device's kernels, from which times are predicted; auto: what "
                  "plimsoll doctor --calibrate measured on this machine, if it did; none: estimates only")
      ->default_val(kOwnCalibration);
  command.add_option("--input-shape", flags.input_shape,
                     "shape of one sample, for inputs declared with None: 224,224,3 (default: the shape of the data)");
  command.add_option("--loss", flags.loss,
                     "loss to use instead of the file's: sparse_categorical_crossentropy, mse, ...");
  command
      .add_option("--metrics", flags.metrics,
                  "metrics to compute in this run instead of the file's: accuracy, mae, ...; none: no metrics. The "
                  "saved file keeps its own metrics")
      ->delimiter(',');
  command.add_flag("--json", flags.json, "print results and errors as JSON");
  command.add_flag("--quiet", flags.quiet, "print no messages and no progress");
}

void add_training_flags(CLI::App& command, CommonFlags& flags) {
  flags.batch_option = command
                           .add_option("--batch-size", flags.batch_text,
                                       "samples per batch, as in Keras; auto: the largest power of two that fits the "
                                       "budget without splitting the batch")
                           ->capture_default_str();
  command
      .add_option("--micro-batch", flags.micro_text,
                  "samples processed at once when a batch is split (gradient accumulation): auto or a number; changes "
                  "memory and speed, and the result only by rounding")
      ->capture_default_str();
  command
      .add_option("--gradient-accumulation-steps", flags.options.accumulation_steps,
                  "number of batches whose gradients are accumulated before each update")
      ->check(whole_above_zero())
      ->capture_default_str();
  command
      .add_option("--forbid", flags.forbid,
                  fmt::format("levers (ways to save memory) not to use: {}; recompute is gradient checkpointing",
                              fmt::join(searched_levers(), ", ")))
      ->delimiter(',');
  command.add_option("--allow", flags.allow, "use only these levers")->delimiter(',');
  command
      .add_option("--batchnorm", flags.batchnorm,
                  "BatchNormalization uses statistics of the whole batch (exact) or of each micro-batch "
                  "(per-micro-batch), which changes training")
      ->check([](const std::string& text) {
        return text == "exact" || text == "per-micro-batch"
                   ? std::string()
                   : fmt::format("takes exact or per-micro-batch, got '{}'", text);
      })
      ->capture_default_str();
  command.add_option(
      "--optimizer", flags.optimizer,
      "optimizer to use instead of the file's: sgd, adam or another of Keras's names, or its Keras JSON");
  command.add_option("--learning-rate", flags.learning_rate, "learning rate to use instead of the file's")
      ->check(above_zero());
}

void name_environment(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const auto& names = option->get_lnames();
    if (names.empty() || names[0] == "help") continue;
    std::string variable = "PLIMSOLL_" + names[0];
    for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    option->envname(variable);
  }
}

Status CommonFlags::resolve_batch() {
  options.automatic_batch = batch_text == "auto";
  options.batch_given = !options.automatic_batch && batch_option != nullptr && batch_option->count() > 0;
  if (!options.automatic_batch) {
    PLIMSOLL_ASSIGN(options.batch_size, positive(batch_text, "--batch-size"));
  } else if (micro_text != "auto") {
    return fail(
        Error{ErrorCode::kUsage,
              "--batch-size auto cannot be combined with --micro-batch: it chooses a batch that need not be split",
              {},
              {"remove --micro-batch", "--batch-size N"}});
  }
  if (micro_text != "auto") {
    PLIMSOLL_ASSIGN(options.micro_batch, positive(micro_text, "--micro-batch"));
  }
  return {};
}

Status CommonFlags::resolve_memory() {
  if (!budget_text.empty()) {
    PLIMSOLL_ASSIGN(options.budget, bytes_of(budget_text, "--budget"));
    if (options.budget == Bytes{0})
      return fail(Error{ErrorCode::kUsage, "--budget must be above 0", {}, {"--budget 2GiB"}});
  }
  if (!host_budget_text.empty()) {
    PLIMSOLL_ASSIGN(options.host_budget, bytes_of(host_budget_text, "--host-budget"));
  }
  const MemoryGrowth growth = choose_memory_growth(options.memory_growth, std::getenv(kForceGrowth));
  if (!growth.note.empty()) message(*this, growth.note);
  options.memory_growth = growth.on;
  return {};
}

Status CommonFlags::resolve_levers() {
  PLIMSOLL_ASSIGN(options.forbidden, forbidden_levers(forbid, allow));
  options.per_micro_batch_norm = batchnorm == "per-micro-batch";
  return {};
}

Status CommonFlags::resolve_overrides() {
  PLIMSOLL_TRY(check_keras_name("--optimizer", optimizer, optimizer_names(), "optimizer"));
  PLIMSOLL_TRY(check_keras_name("--loss", loss, loss_names(), "loss"));
  PLIMSOLL_TRY(check_metrics(metrics));
  ModelOptions& overrides = options.overrides;
  if (!optimizer.empty()) overrides.optimizer = optimizer;
  if (!loss.empty()) overrides.loss = loss;
  overrides.metrics = metrics;
  if (learning_rate > 0) overrides.learning_rate = learning_rate;
  if (!input_shape.empty()) {
    PLIMSOLL_ASSIGN(overrides.input_shape, parse_dims(input_shape));
  }
  overrides.needs_loss = options.mode != Mode::kPredict;
  overrides.needs_training = options.mode == Mode::kTrain;
  return {};
}

Status CommonFlags::resolve(Mode mode) {
  options.mode = mode;
  options.limit_process = true;
  options.note = [this](const std::string& text) { message(*this, text); };
  PLIMSOLL_TRY(resolve_batch());
  PLIMSOLL_TRY(resolve_memory());
  PLIMSOLL_TRY(resolve_levers());
  PLIMSOLL_TRY(resolve_overrides());
  if (options.calibration == "none") options.calibration.clear();
  if (options.precision == "auto") options.precision = automatic_precision(options);
  PLIMSOLL_ASSIGN(const Precision precision, parse_precision(options.precision));
  if (!options.precision.empty()) options.overrides.scale_loss = precision.compute == DType::kFloat16;
  return {};
}

void answer(const std::string& text) {
  std::fputs(printable_lines(text).c_str(), stdout);
}

void tell(const std::string& text) {
  std::fputs(printable_lines(text).c_str(), stderr);
}

void draw(const std::string& text) {
  std::fputs(text.c_str(), stderr);
}

bool can_redraw() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && (terminal == nullptr || std::string_view(terminal) != "dumb");
}

void message(const CommonFlags& flags, const std::string& text) {
  if (!flags.quiet) tell(text + "\n");
}

std::string skipped_text(const Model& model, const std::string& metric) {
  const std::string name = metric.starts_with("val_") ? metric.substr(4) : metric;
  const auto& skipped = model.skipped_metrics();
  if (std::find(skipped.begin(), skipped.end(), name) == skipped.end()) return "";
  return fmt::format("the metric '{}' is requested, but Plimsoll does not compute it", name);
}

}  // namespace plimsoll::engine
