#include <fmt/format.h>

#include "api/advice.h"
#include "api/builtin.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/data_flags.h"
#include "cli/plan_flags.h"
#include "formats/file/file.h"
#include "report/memory_viz.h"
#include "report/plan_picture.h"

namespace plimsoll::engine {
namespace {

Status write_text(const std::string& path, const std::string& text) {
  PLIMSOLL_ASSIGN(AtomicFile file, AtomicFile::create(path));
  PLIMSOLL_TRY(file.write(bytes_of_text(text)));
  return file.commit();
}

Status save_memory_viz(const Plan& plan, const std::string& path) {
  const std::string pickle = memory_viz(plan);
  PLIMSOLL_ASSIGN(AtomicFile file, AtomicFile::create(path));
  PLIMSOLL_TRY(file.write(bytes_of_text(pickle)));
  return file.commit();
}

void print_list(bool json) {
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const BuiltinModel& model : builtin_models())
      list.push_back(ordered_object({{"name", model.name}, {"summary", model.summary}}));
    answer(json_text(list) + "\n");
    return;
  }
  for (const BuiltinModel& model : builtin_models()) answer(fmt::format("{:<12}  {}\n", model.name, model.summary));
}

AdviceRequest advice_request(const PlanFlags& flags) {
  AdviceRequest request;
  request.model = flags.options.model;
  request.flags = typed_flags(*flags.command);
  request.batches = flags.batches;
  request.max_batch = flags.max_batch;
  request.frontier = flags.json || !flags.html.empty();
  return request;
}

Result<int> print_cards(const PlanFlags& flags, Run& run) {
  PLIMSOLL_ASSIGN(const std::vector<CardPrice> cards, run.within_planning_limit([&] { return price_cards(run); }));
  answer(flags.json ? json_text(cards_json(cards)) + "\n" : cards_text(cards));
  const bool any = std::any_of(cards.begin(), cards.end(), [](const CardPrice& card) { return card.fits; });
  return any ? 0 : exit_code(ErrorCode::kDoesNotFit);
}

Status write_pictures(const PlanFlags& flags, const PlanReport& report, const nlohmann::ordered_json& json) {
  if (!flags.html.empty()) PLIMSOLL_TRY(write_text(flags.html, plan_html(report, json)));
  if (!flags.svg.empty()) PLIMSOLL_TRY(write_text(flags.svg, plan_svg(report)));
  for (const std::string& path : {flags.html, flags.svg})
    if (!path.empty()) message(flags, fmt::format("picture written to {}", path));
  return {};
}

// Opens the run and searches. Of several batches, the largest that fits is planned.
Result<std::unique_ptr<Run>> open_planned(PlanFlags& flags) {
  size_t next = 1;
  for (;;) {
    PLIMSOLL_ASSIGN(auto run, Run::open(flags.options));
    if (flags.all_devices) return run;
    PLIMSOLL_TRY(run->search());
    if (run->found().fits || next >= flags.batches.size()) return run;
    flags.options.batch_size = flags.batches[next++];
  }
}

Result<int> plan(PlanFlags& flags) {
  if (flags.list) {
    print_list(flags.json);
    return 0;
  }
  if (flags.options.model.empty())
    return fail(
        Error{ErrorCode::kUsage, "plan needs a MODEL", {}, {"plimsoll plan --list   lists the built-in models"}});
  PLIMSOLL_TRY(flags.resolve_plan());
  PLIMSOLL_ASSIGN(const auto run, open_planned(flags));
  if (flags.all_devices) return print_cards(flags, *run);
  const SearchResult& found = run->found();
  PLIMSOLL_ASSIGN(const Advice advice, run->within_planning_limit([&]() -> Result<Advice> {
    return flags.brief ? Advice() : advise(*run, advice_request(flags));
  }));
  PlanReport report = run->report();
  if (!flags.brief) report.advice = &advice;
  nlohmann::ordered_json json;
  if (flags.json || !flags.html.empty()) json = plan_json(report);
  PLIMSOLL_TRY(write_pictures(flags, report, json));
  if (found.fits && !flags.save.empty()) PLIMSOLL_TRY(write_text(flags.save, json_text(to_json(found.plan), 1) + "\n"));
  if (found.fits && !flags.memory_viz.empty()) PLIMSOLL_TRY(save_memory_viz(found.plan, flags.memory_viz));
  if (!flags.json) answer(plan_text(report) + (flags.details ? plan_details(report) : ""));
  if (found.fits) {
    if (flags.json) answer(json_text(json) + "\n");
    if (!flags.save.empty()) message(flags, fmt::format("plan saved to {}", flags.save));
    return 0;
  }
  Error error = shortage(run->request(), found);
  if (!flags.brief) error.remedies = remedy_lines(advice);
  if (flags.json) {
    json.update(error_json(error));  // one JSON document: the plan and the error
    answer(json_text(json) + "\n");
    return exit_code(error.code);
  }
  if (!flags.brief) {  // the report above has all of it
    const std::string card = run->device().name + " has ";
    std::erase_if(error.facts, [&, first = error.facts[0]](const std::string& fact) {
      return fact != first && !fact.starts_with(card);
    });
    error.remedies.clear();
    if (!advice.command.empty()) error.remedy(advice.command);
  }
  return fail(error);
}

}  // namespace

void add_plan_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = app.add_subcommand(
      "plan", "show whether a model fits, where every byte goes, and what would make it smaller or faster");
  flags->add(*command);
  actions[command] = [flags] { return plan(*flags); };
}

}  // namespace plimsoll::engine
