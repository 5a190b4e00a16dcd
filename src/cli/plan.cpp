#include <fmt/format.h>

#include "api/builtin.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/data_flags.h"
#include "formats/file/file.h"

namespace plimsoll::engine {
namespace {

struct PlanFlags : CommonFlags {
  std::string save;
  bool list = false;
};

Status save_plan(const Plan& plan, const std::string& path) {
  const std::string text = json_text(to_json(plan), 1) + "\n";
  PLIMSOLL_ASSIGN(AtomicFile file, AtomicFile::create(path));
  PLIMSOLL_TRY(file.write(bytes_of_text(text)));
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

Result<int> plan(PlanFlags& flags) {
  if (flags.list) {
    print_list(flags.json);
    return 0;
  }
  if (flags.options.model.empty())
    return fail(
        Error{ErrorCode::kUsage, "plan needs a MODEL", {}, {"plimsoll plan --list   lists the built-in models"}});
  PLIMSOLL_TRY(flags.resolve(Mode::kTrain));
  PLIMSOLL_TRY(check_data_flags(flags.options.data));
  flags.options.find_least = true;
  PLIMSOLL_ASSIGN(const auto run, Run::open(flags.options));
  PLIMSOLL_TRY(run->search());
  const SearchResult& found = run->found();
  if (!found.fits) {
    const Error error = does_not_fit(run->request(), found);
    if (!flags.json) return fail(error);
    nlohmann::ordered_json both = plan_json(run->report());  // one JSON document: the plan and the error
    both.update(error_json(error));
    answer(json_text(both) + "\n");
    return exit_code(error.code);
  }
  if (!flags.save.empty()) PLIMSOLL_TRY(save_plan(found.plan, flags.save));
  answer(flags.json ? json_text(plan_json(run->report())) + "\n" : plan_text(run->report()));
  if (!flags.save.empty()) message(flags, fmt::format("plan saved to {}", flags.save));
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = app.add_subcommand("plan", "show where every byte goes in the fastest plan that fits the budget");
  command->add_option("MODEL", flags->options.model, kModelHelp);
  add_model_flags(*command, *flags);
  add_training_flags(*command, *flags);
  add_data_flags(*command, flags->options.data, "plan for these data: their dtypes and their last, smaller batch");
  command->add_option("--save", flags->save, "write the plan to this file, for fit --plan");
  command->add_flag("--list", flags->list, "list the built-in models");
  command->footer("Example: plimsoll plan model.keras --batch-size 128 --budget 256MiB");
  actions[command] = [flags] { return plan(*flags); };
}

}  // namespace plimsoll::engine
