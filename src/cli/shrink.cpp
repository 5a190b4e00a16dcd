// plimsoll shrink: smaller models. `shrink WAY MODEL` makes a model smaller in one way.
#include "cli/shrink.h"

#include <fmt/format.h>

#include <array>

namespace plimsoll::engine {
namespace {

using AddWay = void (*)(CLI::App& shrink, std::map<CLI::App*, Action>& actions);
constexpr std::array kWays = {
    AddWay{add_shrink_quantize},
    AddWay{add_shrink_distill},
};

// Flags between `shrink` and the way would be lost.
Status check_no_flags_before(const CLI::App& shrink, const std::string& way) {
  for (const CLI::Option* option : shrink.get_options())
    if (option->count() > 0)
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("{} stands before '{}', and would be ignored", option->get_name(), way),
                        {},
                        {fmt::format("plimsoll shrink {} MODEL, then the flags", way)}});
  return {};
}

}  // namespace

void add_shrink_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  CLI::App* command = app.add_subcommand("shrink", "write smaller models");
  for (const AddWay add : kWays) add(*command, actions);
  actions[command] = [command, &actions]() -> Result<int> {
    const auto chosen = command->get_subcommands();
    if (chosen.empty()) return fail(Error{ErrorCode::kUsage, "shrink needs a way", {}, {"plimsoll shrink --help"}});
    PLIMSOLL_TRY(check_no_flags_before(*command, chosen.front()->get_name()));
    return actions.at(chosen.front())();
  };
}

}  // namespace plimsoll::engine
