#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/printable.h"
#include "cli/command.h"
#include "execute/session.h"

namespace plimsoll {
namespace {

// All of a text as a number, if it is one.
template <typename Number>
std::optional<Number> read_number(const std::string& text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

constexpr const char* kWholeAboveZero = "a whole number above 0";

Result<int64_t> positive(const std::string& text, const std::string& flag) {
  if (const auto value = read_number<int64_t>(text); value && *value > 0) return *value;
  return fail(ErrorCode::kUsage, fmt::format("{} takes {}, got '{}'", flag, kWholeAboveZero, text));
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

constexpr const char* kLevers[] = {"micro-batch", "recompute", "offload", "prefetch"};

Status check_levers(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (std::find(std::begin(kLevers), std::end(kLevers), name) == std::end(kLevers))
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("there is no lever '{}'", name),
                        {fmt::format("levers: {}", fmt::join(kLevers, ", "))},
                        {}});
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
  return number_check<int64_t>("NONNEGATIVE", "a whole number from 0 on", [](int64_t n) { return n >= 0; });
}

Status check_ending(const std::string& path, const std::string& ending, const std::string& flag) {
  if (path.empty() || path.ends_with(ending)) return {};
  return fail(Error{ErrorCode::kUsage,
                    fmt::format("{} {}: what is written is a {} file", flag, path, ending),
                    {},
                    {fmt::format("{} {}", flag, std::filesystem::path(path).replace_extension(ending).string())}});
}

void add_model_flags(CLI::App& command, CommonFlags& flags) {
  command.add_option("--budget", flags.budget_text,
                     "bytes the whole process may hold: 512MiB, 2GiB, 1.5GB (default: what is free, less a margin)");
  command.add_option(
      "--host-budget", flags.host_budget_text,
      "with --device gpu: bytes of the host's memory that values may wait in (default: three quarters of "
      "what is free; 0: none)");
  command
      .add_option("--device", flags.job.device,
                  "auto, cpu, gpu, gpu:N, or a card to plan for: rtx-4090-24g (plimsoll doctor lists them)")
      ->capture_default_str();
  command.add_option(
      "--precision", flags.job.precision,
      "float32; mixed_bfloat16 or mixed_float16 on a GPU; auto: whichever of these the device has; float64: "
      "the slow reference (default: as the model's layers have it)");
  command
      .add_option("--float32-layers", flags.job.overrides.float32_layers,
                  "layers that stay in float32 under a mixed precision, by name: predictions, 'block5_*'")
      ->delimiter(',');
  command
      .add_option("--tf32", flags.job.tf32,
                  "on a GPU: round float32 matrix work to tf32, as its libraries do by default")
      ->capture_default_str();
  command.add_flag("--memory-growth", flags.job.memory_growth,
                   "on a GPU: take memory as phases need it and give it back between models; TF_FORCE_GPU_ALLOW_GROWTH "
                   "says the same. On the CPU nothing changes: memory is taken as it is first written anyway");
  command.add_option("--threads", flags.job.threads, "compute threads (default: all cores)")->check(whole_from_zero());
  command.add_option("--input-shape", flags.input_shape, "size of inputs declared with None: 224,224,3");
  command.add_option("--loss", flags.loss, "instead of the file's: sparse_categorical_crossentropy, mse, ...");
  command.add_option("--metrics", flags.metrics, "instead of the file's: accuracy, mae, ...")->delimiter(',');
  command.add_flag("--json", flags.json, "results and errors as JSON");
  command.add_flag("--quiet", flags.quiet, "no messages, no progress");
}

void add_training_flags(CLI::App& command, CommonFlags& flags) {
  flags.batch_option = command
                           .add_option("--batch-size", flags.batch_text,
                                       "the effective batch: what training means; auto: the largest power of two that "
                                       "fits the budget in one piece")
                           ->capture_default_str();
  command
      .add_option("--micro-batch", flags.micro_text,
                  "how the batch is cut: auto or a number; bytes and time, not meaning")
      ->capture_default_str();
  command
      .add_option("--gradient-accumulation-steps", flags.job.accumulation_steps,
                  "so many batches of --batch-size make the effective batch")
      ->check(whole_above_zero())
      ->capture_default_str();
  command.add_option("--forbid", flags.forbid, fmt::format("levers not to use: {}", fmt::join(kLevers, ", ")))
      ->delimiter(',');
  command.add_option("--allow", flags.allow, "only these levers")->delimiter(',');
  command
      .add_option("--batchnorm", flags.batchnorm,
                  "exact, or per-micro-batch: statistics of each micro-batch, which changes training")
      ->check(CLI::IsMember({"exact", "per-micro-batch"}))
      ->capture_default_str();
  command.add_option("--optimizer", flags.optimizer, "instead of the file's: sgd, adam, adamw, or Keras's JSON");
  command.add_option("--learning-rate", flags.learning_rate, "instead of the file's")->check(above_zero());
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

Status CommonFlags::resolve(bool needs_loss, bool needs_training) {
  job.automatic_batch = batch_text == "auto";
  if (!job.automatic_batch) {
    PLIMSOLL_ASSIGN(job.batch_size, positive(batch_text, "--batch-size"));
  } else if (micro_text != "auto") {
    return fail(
        Error{ErrorCode::kUsage,
              "--batch-size auto chooses a batch that runs in one piece: --micro-batch leaves it nothing to choose by",
              {},
              {"leave --micro-batch out", "--batch-size N"}});
  }
  if (micro_text != "auto") {
    PLIMSOLL_ASSIGN(const int64_t micro, positive(micro_text, "--micro-batch"));
    job.micro_batch = micro;
  }
  if (!budget_text.empty()) {
    PLIMSOLL_ASSIGN(const Bytes budget, bytes_of(budget_text, "--budget"));
    if (budget == 0) return fail(ErrorCode::kUsage, "--budget must be above 0");
    job.budget = budget;
  }
  if (!host_budget_text.empty()) {
    PLIMSOLL_ASSIGN(job.host_budget, bytes_of(host_budget_text, "--host-budget"));
  }
  const MemoryGrowth growth = choose_memory_growth(job.memory_growth, std::getenv(kForceGrowth));
  if (!growth.note.empty()) message(*this, growth.note);
  job.memory_growth = growth.on;
  PLIMSOLL_TRY(check_levers(forbid));
  PLIMSOLL_TRY(check_levers(allow));
  job.forbidden = {forbid.begin(), forbid.end()};
  if (!allow.empty())
    for (const char* lever : kLevers)
      if (std::find(allow.begin(), allow.end(), lever) == allow.end()) job.forbidden.insert(lever);
  job.per_micro_batch_norm = batchnorm == "per-micro-batch";
  if (!optimizer.empty()) job.overrides.optimizer = optimizer;
  if (!loss.empty()) job.overrides.loss = loss;
  job.overrides.metrics = metrics;
  if (learning_rate > 0) job.overrides.learning_rate = learning_rate;
  if (!input_shape.empty()) {
    PLIMSOLL_ASSIGN(job.overrides.input_shape, parse_dims(input_shape));
  }
  if (job.precision == "auto") job.precision = automatic_precision(job);
  PLIMSOLL_ASSIGN(const Precision precision, parse_precision(job.precision));
  if (!job.precision.empty()) job.overrides.scale_loss = precision.compute == DType::kFloat16;
  job.overrides.needs_loss = needs_loss;
  job.overrides.needs_training = needs_training;
  return {};
}

Status CommonFlags::check_cut() const {
  int64_t effective = 0;
  if (__builtin_mul_overflow(job.batch_size, job.accumulation_steps, &effective))
    return fail(ErrorCode::kUsage,
                fmt::format("{} batches of {} are too many samples to count", job.accumulation_steps, job.batch_size));
  if (!job.micro_batch) return {};
  if (*job.micro_batch > job.batch_size)
    return fail(ErrorCode::kUsage,
                fmt::format("--micro-batch {} is larger than --batch-size {}", *job.micro_batch, job.batch_size));
  if (*job.micro_batch < job.batch_size && job.forbidden.count("micro-batch") != 0)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--micro-batch {} cuts the batch, which is forbidden", *job.micro_batch),
                      {},
                      {"leave --micro-batch out", "let --forbid and --allow leave it"}});
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

std::string peak_text(const Session& session, const Budget& budget) {
  std::string text =
      fmt::format("process peak: {} of {}", format_bytes(session.peak_held_bytes()), format_bytes(budget.bytes));
  if (session.device().info().kind == "gpu") text += ", counted by " + session.counted_by();
  return text;
}

}  // namespace plimsoll
