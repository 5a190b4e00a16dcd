// plimsoll reduce: smaller inputs, as a stream inside a budget.
#include <fmt/format.h>

#include <filesystem>
#include <numeric>

#include "base/json_text.h"
#include "cli/data_flags.h"
#include "cli/signals.h"
#include "cli/stream_run.h"
#include "data/reduce.h"
#include "device/process_memory.h"
#include "formats/file/array_source.h"

namespace plimsoll::engine {
namespace {

struct ReduceFlags : StreamFlags {
  std::string data, output, apply;
  int64_t components = 0, correlated = 0, take = 0;
  std::optional<double> variance;
  std::optional<std::array<int64_t, 2>> resolution;
  bool stratified = false;
  uint64_t seed = 0;

  int methods() const {
    return (components > 0) + (correlated > 0) + variance.has_value() + resolution.has_value() + !apply.empty();
  }
};

Status check_flags(const ReduceFlags& flags) {
  const auto refuse = [](const std::string& what, const char* remedy) {
    return fail(Error{ErrorCode::kUsage, what, {}, {remedy}});
  };
  if (flags.methods() > 1)
    return refuse("--pca, --select-variance, --select-correlation, --resolution and --apply exclude each other",
                  "one of them; reduce the result once more for another");
  if (flags.methods() == 0 && flags.take == 0) return refuse("nothing says how to reduce the data", "--pca 64");
  if (flags.stratified && flags.take == 0)
    return refuse("--stratified says how --take chooses samples", "--take 1000 --stratified");
  return check_target(flags.output);
}

// OUT.npz becomes OUT.reduction.npz; of several files, the first one counts.
std::string reduction_path(const std::string& output) {
  const std::string first = output.substr(0, output.find(','));
  return first.substr(0, first.rfind('.')) + ".reduction.npz";
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

Result<Reduction> find(const ReduceFlags& flags, ArrayStream& data, StreamRun& run) {
  const int64_t elements = data.arrays()[0].elements();
  const Bytes passes = data.buffer_bytes(std::array<size_t, 1>{0}) * 2;
  const Passes progress = [&](int64_t done, int64_t of) { return run.progress("reading", done, of); };
  if (flags.resolution) return find_resolution(data, *flags.resolution);
  if (data.arrays()[0].sample.empty())
    return fail(Error{ErrorCode::kUsage, "a sample is one number: no feature can be left out", {}, {}});
  if (flags.components > 0) {
    constexpr int64_t kMostFeatures = 1 << 16;
    if (elements > kMostFeatures)
      return fail(
          Error{ErrorCode::kUsage,
                fmt::format("--pca: a sample has {} features; at most {} are supported", elements, kMostFeatures),
                {},
                {"--resolution or --select-variance first"}});
    PLIMSOLL_TRY(
        run.grant(passes + pca_bytes(elements, flags.components),
                  {"--resolution or --select-variance first: the memory grows with the square of the features"}));
    return find_pca(data, flags.components, progress);
  }
  const int64_t targets = data.arrays().size() > 1 ? data.arrays()[1].elements() : 0;
  PLIMSOLL_TRY(run.grant(passes + statistics_bytes(elements) * (flags.correlated > 0 ? 1 + targets : 1), {}));
  if (flags.correlated > 0) return find_by_correlation(data, flags.correlated, progress);
  return find_by_variance(data, *flags.variance, progress);
}

double explained(const Reduction& reduction) {
  const double sum = std::accumulate(reduction.variances.begin(), reduction.variances.end(), 0.0);
  return reduction.total_variance > 0 ? sum / reduction.total_variance : 1;
}

// "(28, 28) uint8 (784 B) -> (64,) float32 (256 B) per sample"
std::string saving_text(const StreamedArray& before, const StreamedArray& after) {
  return fmt::format("a sample: {} {} ({}) -> {} {} ({})", keras_name(before.dtype), dims_text(before.sample),
                     format_bytes(before.row_bytes()), keras_name(after.dtype), dims_text(after.sample),
                     format_bytes(after.row_bytes()));
}

struct Done {
  std::vector<std::string> files;
  std::string reduction_file;
  std::optional<Reduction> reduction;
  StreamedArray before;
};

Result<int> report(const ReduceFlags& flags, const Done& done, const ArrayStream& data, const StreamRun& run) {
  const StreamedArray& after = data.arrays()[0];
  const bool pca = done.reduction && done.reduction->kind == Reduction::Kind::kPca;
  if (flags.json) {
    nlohmann::ordered_json json = {{"files", done.files}, {"arrays", arrays_json(data)}};
    json["sample_bytes_before"] = done.before.row_bytes();
    json["sample_bytes"] = after.row_bytes();
    if (pca) json["explained_variance_ratio"] = explained(*done.reduction);
    if (!done.reduction_file.empty()) json["reduction"] = done.reduction_file;
    json["planned_bytes"] = run.planned();
    json["peak_bytes"] = peak_resident_bytes();
    answer(json_text(json) + "\n");
    return 0;
  }
  std::string text =
      fmt::format("{}: {}\n{}\n", fmt::join(done.files, ", "), arrays_text(data), saving_text(done.before, after));
  if (pca)
    text += fmt::format("{} components hold {:.1f} % of the variance\n", done.reduction->components_count(),
                        100 * explained(*done.reduction));
  if (done.before.sample != after.sample)
    text += fmt::format("the model's input must be {}\n", dims_text(after.sample));
  if (!done.reduction_file.empty())
    text += fmt::format("for new data: plimsoll reduce NEW --apply {} -o OUT\n", done.reduction_file);
  answer(text);
  return 0;
}

Result<int> reduce(ReduceFlags& flags) {
  PLIMSOLL_TRY(check_flags(flags));
  PLIMSOLL_ASSIGN(auto run, StreamRun::start(flags));
  Done done;
  if (!flags.apply.empty()) {
    PLIMSOLL_ASSIGN(done.reduction, load_reduction(flags.apply));
    if (done.reduction->kind == Reduction::Kind::kResolution) flags.resolution = done.reduction->resolution;
  }
  // Pictures of a folder are decoded to the size that is asked for, so they are resized once only.
  if (flags.resolution && is_folder(flags.data)) flags.read.image_size = flags.resolution;
  PLIMSOLL_ASSIGN(auto data, open_pair(flags.data, flags.read));
  done.before = data->arrays()[0];
  if (flags.take > 0) {
    PLIMSOLL_TRY(run.grant(4 * data->buffer_bytes(std::array<size_t, 1>{0}), {}));
    PLIMSOLL_ASSIGN(data, subset(std::move(data), flags.take, flags.stratified, flags.seed));
  }
  const bool finds = flags.methods() > 0 && !done.reduction;
  if (finds) {
    PLIMSOLL_ASSIGN(done.reduction, find(flags, *data, run));
  }
  if (done.reduction) {
    PLIMSOLL_ASSIGN(data, reduced(std::move(data), *done.reduction));
  }
  std::vector<size_t> all(data->arrays().size());
  std::iota(all.begin(), all.end(), size_t{0});
  PLIMSOLL_TRY(run.grant(4 * data->buffer_bytes(all), {}));
  PLIMSOLL_ASSIGN(done.files, run.write(*data, flags.output));
  if (finds) {
    done.reduction_file = reduction_path(flags.output);
    PLIMSOLL_TRY(save_reduction(done.reduction_file, *done.reduction));
  }
  nothing_to_lose();
  return report(flags, done, *data, run);
}

}  // namespace

void add_reduce_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<ReduceFlags>();
  CLI::App* command = app.add_subcommand("reduce", "write smaller inputs: PCA, fewer features, pixels or samples");
  command->add_option("DATA", flags->data, "data in the form of --data: " + data_help(true))->required();
  command
      ->add_option("-o,--output", flags->output,
                   "OUT.npz, X.npy,Y.npy, OUT.safetensors, OUT.tfrecord (several files with --shards) or OUT.csv")
      ->required();
  command->add_option("--pca", flags->components, "keep this many principal components")->check(whole_above_zero());
  command->add_option("--select-variance", flags->variance, "keep features whose variance is above this")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--select-correlation", flags->correlated,
                   "keep this many features: those with the largest absolute correlation with the targets")
      ->check(whole_above_zero());
  command->add_option_function<std::string>(
      "--resolution", [flags](const std::string& text) { flags->resolution = parse_image_size(text, "--resolution"); },
      "resize pictures to this height and width: 96, or 96,128");
  command->add_option("--apply", flags->apply, "the .reduction.npz of an earlier run: does the same with new data");
  command->add_option("--take", flags->take, "keep this many random samples")->check(whole_above_zero());
  command->add_flag("--stratified", flags->stratified, "--take keeps the share of each class");
  command->add_option("--seed", flags->seed, "seed of --take")->capture_default_str();
  add_stream_flags(*command, *flags);
  command->footer(
      "Example: plimsoll reduce x.npy,y.npy --pca 64 -o small.npz\n"
      "         plimsoll reduce photos --resolution 96 --take 5000 --stratified -o small.npz");
  actions[command] = [flags] {
    install_signal_handlers("interrupted: stopping; nothing is written", flags->json);
    return reduce(*flags);
  };
}

}  // namespace plimsoll::engine
