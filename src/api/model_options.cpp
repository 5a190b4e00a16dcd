#include "api/model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "api/open_backend.h"
#include "base/checked.h"
#include "base/suggest.h"
#include "search/lever_table.h"

namespace plimsoll::engine {
namespace {

Status at_least(int64_t value, int64_t least, const char* option) {
  if (value >= least) return {};
  return fail(ErrorCode::kUsage, fmt::format("Options::{} must be at least {}, got {}", option, least, value));
}

Status check(const plimsoll::Options& options) {
  PLIMSOLL_TRY(at_least(options.batch_size, 1, "batch_size"));
  PLIMSOLL_TRY(at_least(options.gradient_accumulation_steps, 1, "gradient_accumulation_steps"));
  PLIMSOLL_TRY(at_least(options.micro_batch, 0, "micro_batch"));
  PLIMSOLL_TRY(at_least(options.inference_batch_size, 0, "inference_batch_size"));
  PLIMSOLL_TRY(at_least(options.samples, 0, "samples"));
  PLIMSOLL_TRY(at_least(options.validation_samples, 0, "validation_samples"));
  PLIMSOLL_TRY(at_least(options.reserved_bytes, 0, "reserved_bytes"));
  PLIMSOLL_TRY(at_least(options.threads, 0, "threads"));
  if (options.micro_batch > options.batch_size)
    return fail(ErrorCode::kUsage, fmt::format("Options::micro_batch {} is larger than batch_size {}",
                                               options.micro_batch, options.batch_size));
  if (!checked_multiply(options.batch_size, options.gradient_accumulation_steps))
    return fail(ErrorCode::kUsage,
                fmt::format("Options::gradient_accumulation_steps {} of batch_size {} are too many samples to count",
                            options.gradient_accumulation_steps, options.batch_size));
  if (options.batchnorm != "exact" && options.batchnorm != "per-micro-batch")
    return fail(ErrorCode::kUsage,
                fmt::format("Options::batchnorm is \"exact\" or \"per-micro-batch\", got \"{}\"", options.batchnorm));
  for (const int64_t d : options.input_shape)
    if (d < 1) return fail(ErrorCode::kUsage, fmt::format("Options::input_shape: {} is not a length above 0", d));
  return {};
}

Result<std::optional<Bytes>> bytes_of(const std::string& text, const char* option, bool zero) {
  if (text.empty()) return std::nullopt;
  auto bytes = parse_bytes(text);
  if (!bytes) bytes.error().what = fmt::format("Options::{}: {}", option, bytes.error().what);
  PLIMSOLL_TRY(bytes);
  if (*bytes == 0 && !zero) return fail(ErrorCode::kUsage, fmt::format("Options::{} must be above 0", option));
  return *bytes;
}

Status check_levers(const std::vector<std::string>& names) {
  const auto known = searched_levers();
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    Error error{ErrorCode::kUsage, fmt::format("unknown lever '{}'", name), {}, {}};
    error.fact(fmt::format("levers: {}", fmt::join(known, ", ")));
    const std::string meant = suggestion(name, known);
    return fail(error.remedy(meant.empty() ? "use one of these" : "did you mean " + meant + "?"));
  }
  return {};
}

}  // namespace

Result<std::set<std::string>> forbidden_levers(const std::vector<std::string>& forbid,
                                               const std::vector<std::string>& allow) {
  PLIMSOLL_TRY(check_levers(forbid));
  PLIMSOLL_TRY(check_levers(allow));
  const auto is_in = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const std::string& name : allow)
    if (is_in(forbid, name))
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("--allow {0} --forbid {0}: a lever cannot be both allowed and forbidden", name),
                        {"--allow LIST already forbids every other lever"},
                        {fmt::format("remove {} from one of the two lists", name)}});
  std::set<std::string> forbidden(forbid.begin(), forbid.end());
  if (!allow.empty())
    for (const std::string& lever : searched_levers())
      if (!is_in(allow, lever)) forbidden.insert(lever);
  return forbidden;
}

Result<RunOptions> run_options(const plimsoll::Options& options) {
  PLIMSOLL_TRY(check(options));
  RunOptions run;
  run.mode = options.trains ? Mode::kTrain : Mode::kEvaluate;
  run.batch_size = options.batch_size;
  run.batch_given = true;
  run.accumulation_steps = options.gradient_accumulation_steps;
  if (options.micro_batch > 0) run.micro_batch = options.micro_batch;
  PLIMSOLL_ASSIGN(run.budget, bytes_of(options.budget, "budget", false));
  PLIMSOLL_ASSIGN(run.host_budget, bytes_of(options.host_budget, "host_budget", true));
  run.device = options.device;
  run.precision = options.precision;
  run.tf32 = options.tf32;
  run.memory_growth = choose_memory_growth(options.memory_growth, std::getenv(kForceGrowth)).on;
  run.per_micro_batch_norm = options.batchnorm == "per-micro-batch";
  PLIMSOLL_ASSIGN(run.forbidden, forbidden_levers(options.forbid, options.allow));
  run.calibration = options.calibration == "none" ? "" : options.calibration;
  run.threads = options.threads;
  run.seed = options.seed;
  run.find_least = true;
  run.enforce_overhead = false;
  run.refuse_divergence = options.refuse_divergence;
  run.note = options.on_note;
  run.data.reads_ahead = false;  // the caller already holds the batch in memory
  run.data.sample_weights = options.sample_weights;
  run.data.samples = options.trains ? options.samples : options.validation_samples;
  run.data.validates = options.trains;
  run.data.validation_samples = options.validation_samples;
  run.data.predicts = true;
  run.data.validation_batch = options.inference_batch_size;
  run.data.keeps_windows = options.trains && options.gradient_accumulation_steps > 1;
  if (!options.trains && options.inference_batch_size > 0) run.batch_size = options.inference_batch_size;
  ModelOptions& overrides = run.overrides;
  overrides.input_shape = options.input_shape;
  overrides.float32_layers = options.float32_layers;
  overrides.needs_training = options.trains;
  overrides.needs_loss = options.trains;
  if (run.precision == "auto") run.precision = automatic_precision(run);
  PLIMSOLL_ASSIGN(const Precision precision, parse_precision(run.precision));
  if (!run.precision.empty()) overrides.scale_loss = precision.compute == DType::kFloat16;
  return run;
}

}  // namespace plimsoll::engine
