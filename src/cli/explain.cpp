#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/json.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "explain/match.h"
#include "explain/report.h"
#include "formats/file/file.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

struct ExplainFlags : CommonFlags {
  std::string log = "-";
};

bool is_gzip(std::string_view begin) {
  return begin.size() > 2 && begin[0] == '\x1f' && begin[1] == '\x8b';
}

Result<explain::Facts> read_log(const std::string& path) {
  const bool standard = path == "-";
  if (standard && isatty(STDIN_FILENO) == 1)
    return fail(Error{ErrorCode::kUsage,
                      "explain needs a LOG, or a log on its standard input",
                      {},
                      {"plimsoll explain train.log", "dmesg | plimsoll explain"}});
  const int fd = standard ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const std::string name = standard ? "standard input" : path;
  if (fd < 0) return fail(ErrorCode::kFileUnreadable, fmt::format("{}: {}", name, std::strerror(errno)));
  const Descriptor owned(standard ? -1 : fd);
  explain::LogReader reader;
  std::string block(kBlock, '\0');
  for (bool first = true;; first = false) {
    const ssize_t got = ::read(fd, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(ErrorCode::kFileUnreadable, fmt::format("{}: {}", name, std::strerror(errno)));
    if (got == 0) break;
    const std::string_view bytes(block.data(), static_cast<size_t>(got));
    if (first && is_gzip(bytes))
      return fail(Error{ErrorCode::kFileUnreadable,
                        fmt::format("{} is compressed", name),
                        {},
                        {fmt::format("zcat {} | plimsoll explain", standard ? "LOG.gz" : path)}});
    reader.feed(bytes);
  }
  return reader.finish();
}

// Plans the model for the device of the log: within the limit that the log names, unless --budget names another.
Result<std::unique_ptr<Run>> plan_model(ExplainFlags& flags, const explain::Verdict& verdict) {
  if (flags.budget_text.empty() && verdict.limit) flags.budget_text = fmt::format("{}", *verdict.limit);
  PLIMSOLL_TRY(flags.resolve(Mode::kTrain));
  flags.options.find_least = true;
  PLIMSOLL_ASSIGN(auto run, Run::open(flags.options));
  PLIMSOLL_TRY(run->search());
  return run;
}

std::string plan_section(const Run& run) {
  const SearchResult& found = run.found();
  const std::string heading =
      fmt::format("\nthe same training in Plimsoll, within {}\n\n", format_bytes(run.budget().bytes));
  if (found.fits) return heading + plan_text(run.report());
  return heading + to_text(does_not_fit(run.request(), found));
}

Result<int> explain_log(ExplainFlags& flags) {
  PLIMSOLL_ASSIGN(const explain::Facts facts, read_log(flags.log));
  explain::Explanation explanation = explain::explain(facts);
  std::unique_ptr<Run> run;
  if (!flags.options.model.empty()) {
    PLIMSOLL_ASSIGN(run, plan_model(flags, explanation.verdict));
    explain::name_chunks(explanation.verdict.chunks, run->model(), run->found().plan, run->options().batch_size);
  }
  if (!flags.json) {
    answer(explain::explanation_text(explanation) + (run ? plan_section(*run) : ""));
    return 0;
  }
  nlohmann::ordered_json json = explain::explanation_json(explanation);
  if (run) {
    json["plan"] = plan_json(run->report());
    if (!run->found().fits) json["plan"].update(error_json(does_not_fit(run->request(), run->found())));
  }
  answer(json_text(json) + "\n");
  return 0;
}

}  // namespace

void add_explain_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* command = app.add_subcommand("explain", "say why a log ends in out of memory, and what helps");
  command
      ->add_option("LOG", flags->log,
                   "a log of TensorFlow, PyTorch, JAX, the kernel, a scheduler or a container; -: standard input")
      ->capture_default_str();
  command->add_option("--model", flags->options.model,
                      fmt::format("{}: names the log's memory by layer, and plans this model with --batch-size within "
                                  "the limit that the log names",
                                  kModelHelp));
  add_model_flags(*command, *flags);
  add_training_flags(*command, *flags);
  command->footer(
      "Example: plimsoll explain train.log\n         plimsoll explain train.log --model model.keras --batch-size 128");
  actions[command] = [flags] { return explain_log(*flags); };
}

}  // namespace plimsoll::engine
