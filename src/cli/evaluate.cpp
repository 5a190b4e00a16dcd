#include <fmt/format.h>
#include <unistd.h>

#include <bit>

#include "base/json.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/signals.h"
#include "cli/within_budget.h"
#include "device/process_memory.h"
#include "execute/fit.h"
#include "formats/npy/npy.h"
#include "search/batch.h"

namespace plimsoll {
namespace {

constexpr const char* kStopping = "interrupted: stopping after this batch; a second Ctrl-C ends at once";

struct InferenceFlags : CommonFlags {
  std::string data, output;
};

// A session for evaluation or prediction, with the weights of the file.
struct Inference {
  OpenModel open;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<ColumnSource> source;
  std::unique_ptr<Session> session;
  Budget budget;
};

Result<std::unique_ptr<Inference>> start(InferenceFlags& flags, bool targets) {
  PLIMSOLL_TRY(flags.resolve(targets, false));
  auto job = std::make_unique<Inference>();
  PLIMSOLL_ASSIGN(job->open, open_model_for(flags, flags.data, Split::kTest));
  if (!job->open.archive || !job->open.archive->weights)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("{} has no weights to {} with", flags.job.model, targets ? "evaluate" : "predict"),
                      {},
                      {"train it first: plimsoll fit ... --save FILE.keras"}});
  PLIMSOLL_ASSIGN(job->backend, open_backend(flags.job));
  PLIMSOLL_ASSIGN(const Precision precision, parse_precision(flags.job.precision));
  DataSpec spec = data_spec(job->open.model, targets);
  spec.split = Split::kTest;
  PLIMSOLL_ASSIGN(DataSet data, open_data(flags.data, spec));
  const DataTypes types = data_types(data, targets && !data.weights.empty());
  PLIMSOLL_ASSIGN(ColumnSource source, ColumnSource::create(std::move(data), {}));
  job->source = std::make_unique<ColumnSource>(std::move(source));
  job->budget = choose_budget(flags.job, job->backend->device().info());
  SearchRequest request =
      base_request(flags.job, job->open.model, job->backend->device(), precision, types, job->budget);
  if (flags.job.automatic_batch)
    request.batch = std::bit_floor(static_cast<uint64_t>(std::min(job->source->samples(), kLargestAutomaticBatch)));
  (targets ? request.evaluate_batch : request.predict_batch) = request.batch;
  (targets ? request.evaluate_samples : request.predict_samples) = job->source->samples();
  request.batch = 0;
  request.micro_batch.reset();
  PLIMSOLL_ASSIGN(
      const SearchResult found,
      within_budget(flags.job, planning_budget(job->budget, job->backend->device()), [&] { return search(request); }));
  if (!found.fits) return fail(does_not_fit(request, found));
  PLIMSOLL_ASSIGN(job->session, Session::create(job->open.model, found.plan, *job->backend, request.graph));
  if (!tools_note().empty()) message(flags, std::string(tools_note()));
  PLIMSOLL_TRY(load_weights(*job->session, *job->open.archive, false));
  return job;
}

// "1280/10000" on a terminal, redrawn.
void show_progress(const CommonFlags& flags, int64_t done, int64_t samples) {
  if (flags.quiet || !can_redraw()) return;
  draw(fmt::format("\r{}/{} samples{}", done, samples, done == samples ? "\n" : ""));  // never shorter than before
}

Result<int> evaluate_command(InferenceFlags& flags) {
  PLIMSOLL_ASSIGN(const auto job, start(flags, true));
  PLIMSOLL_ASSIGN(const auto metrics, evaluate(*job->session, *job->source, &stop_requested(), [&](int64_t done) {
                    show_progress(flags, done, job->source->samples());
                  }));
  nothing_to_lose();
  const Status kept = check_peak(*job->session, job->budget, "");
  if (flags.json) {
    nlohmann::ordered_json named = nlohmann::ordered_json::object();
    for (size_t i = 1; i < metrics.size(); ++i) named[metrics[i].name] = metrics[i].value;
    nlohmann::ordered_json found = ordered_object({{"loss", metrics[0].value}, {"metrics", named}});
    if (const auto& skipped = job->open.model.skipped_metrics(); !skipped.empty()) found["skipped_metrics"] = skipped;
    if (!kept) found.update(error_json(kept.error()));
    answer(json_text(found) + "\n");
    return kept ? 0 : exit_code(kept.error().code);
  }
  for (const Metric& metric : metrics) answer(fmt::format("{}: {:.6g}\n", metric.name, metric.value));
  message(flags, peak_text(*job->session, job->budget));
  PLIMSOLL_TRY(kept);
  return 0;
}

Result<int> predict_command(InferenceFlags& flags) {
  PLIMSOLL_TRY(check_ending(flags.output, ".npy", "--output"));
  PLIMSOLL_ASSIGN(const auto job, start(flags, false));
  const Model& model = job->open.model;
  const int64_t samples = job->source->samples();
  std::vector<NpyWriter> writers;
  std::vector<std::string> paths;
  for (size_t i = 0; i < model.outputs().size(); ++i) {
    std::vector<int64_t> dims = {samples};
    const Port& port = model.outputs()[i];
    dims.insert(dims.end(), port.sample.dims.begin(), port.sample.dims.end());
    // Several outputs: OUT.npy becomes OUT.NAME.npy.
    std::string path = flags.output;
    if (model.outputs().size() > 1) path.insert(path.rfind(".npy"), "." + port.name);
    PLIMSOLL_ASSIGN(NpyWriter writer, NpyWriter::create(path, job->session->options().precision.variables, dims));
    writers.push_back(std::move(writer));
    paths.push_back(std::move(path));
  }
  const int64_t batch = job->session->plan().phase(PhaseKind::kPredict)->samples;
  for (int64_t first = 0; first < samples;) {
    if (stop_requested().load())
      return fail(ErrorCode::kInterrupted, fmt::format("interrupted after {} of {} samples; {} was not written", first,
                                                       samples, fmt::join(paths, ", ")));
    const int64_t count = std::min(batch, samples - first);
    PLIMSOLL_TRY(job->session->predict(
        count, [&](const BatchBuffers& into) { return job->source->read(0, first, count, into); }));
    for (size_t i = 0; i < writers.size(); ++i) {
      PLIMSOLL_ASSIGN(const TensorView view, job->session->prediction(count, i));
      PLIMSOLL_TRY(
          writers[i].write({static_cast<const std::byte*>(view.data), static_cast<size_t>(view.type.bytes())}));
    }
    first += count;
    show_progress(flags, first, samples);
  }
  for (NpyWriter& writer : writers) PLIMSOLL_TRY(writer.commit());
  nothing_to_lose();
  message(flags, fmt::format("{} predictions in {}; {}", samples, fmt::join(paths, ", "),
                             peak_text(*job->session, job->budget)));
  PLIMSOLL_TRY(check_peak(*job->session, job->budget, fmt::format("{} was written", fmt::join(paths, ", "))));
  return 0;
}

CLI::App* add_command(CLI::App& app, const char* name, const char* what, const std::shared_ptr<InferenceFlags>& flags) {
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("MODEL", flags->job.model, "a .keras file")->required();
  add_model_flags(*command, *flags);
  command
      ->add_option("--batch-size", flags->batch_text, "samples at a time, or auto; fewer where the budget asks for it")
      ->capture_default_str();
  return command;
}

}  // namespace

void add_evaluate_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<InferenceFlags>();
  CLI::App* command = add_command(app, "evaluate", "loss and metrics over data, inside the budget", flags);
  command->add_option("--data", flags->data, "x.npy,y.npy[,weights.npy], an .npz, or an IDX pair")->required();
  command->footer("Example: plimsoll evaluate out.keras --data x_test.npy,y_test.npy --json");
  actions[command] = [flags] {
    install_signal_handlers(kStopping, flags->json);
    return evaluate_command(*flags);
  };
}

void add_predict_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<InferenceFlags>();
  CLI::App* command = add_command(app, "predict", "predictions in the order of the data, inside the budget", flags);
  command->add_option("--data", flags->data, "x.npy, an .npz, or an IDX file")->required();
  command->add_option("--output", flags->output, "write predictions here, as .npy")->required();
  command->footer("Example: plimsoll predict out.keras --data x_test.npy --output predictions.npy");
  actions[command] = [flags] {
    install_signal_handlers(kStopping, flags->json);
    return predict_command(*flags);
  };
}

}  // namespace plimsoll
