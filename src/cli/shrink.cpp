// plimsoll shrink: smaller models. `shrink WAY MODEL` makes a model smaller in one way, `shrink MODEL` searches.
#include "cli/shrink.h"

#include <fmt/format.h>

#include <cstdlib>

#include "cli/signals.h"

namespace plimsoll::engine {
namespace {

using AddWay = void (*)(CLI::App& shrink, std::map<CLI::App*, Action>& actions);
constexpr AddWay kWays[] = {add_shrink_prune, add_shrink_resize, add_shrink_quantize, add_shrink_distill};

// Flags between `shrink` and the way would be lost. Those of the environment are meant for both.
Status check_no_flags_before(const CLI::App& shrink, const std::string& way) {
  for (const CLI::Option* option : shrink.get_options())
    if (option->count() > 0 && (option->get_envname().empty() || std::getenv(option->get_envname().c_str()) == nullptr))
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("{} stands before '{}', and would be ignored", option->get_name(), way),
                        {},
                        {fmt::format("plimsoll shrink {} MODEL, then the flags", way)}});
  return {};
}

}  // namespace

void add_shrink_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<SearchFlags>();
  CLI::App* command =
      app.add_subcommand("shrink", "write a smaller model: one search for a target, or one way at a time");
  add_search_flags(*command, *flags);
  // The ways have flags of their own, so nothing is required here before it is known that no way was chosen.
  for (CLI::Option* option : command->get_options()) option->required(false);
  for (const AddWay add : kWays) add(*command, actions);
  command->footer("Example: plimsoll shrink model.keras --target 1MiB --data x.npy,y.npy --epochs 3 -o small.keras");
  actions[command] = [command, flags, &actions]() -> Result<int> {
    const auto chosen = command->get_subcommands();
    if (chosen.empty()) {
      install_signal_handlers("interrupted: stopping; nothing is written", flags->json);
      return search_smaller(*flags);
    }
    PLIMSOLL_TRY(check_no_flags_before(*command, chosen.front()->get_name()));
    return actions.at(chosen.front())();
  };
}

}  // namespace plimsoll::engine
