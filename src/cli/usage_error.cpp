#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cli/command.h"

namespace plimsoll {
namespace {

// Letters to insert, delete or replace (Levenshtein); '_' is '-' here.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] || (a[i] == '_' && b[j] == '-') ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The name that was probably meant, or "".
std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  std::string best;
  size_t least = std::max<size_t>(1, name.size() / 4) + 1;
  for (const std::string& candidate : known)
    if (const size_t d = distance(name, candidate); d < least) {
      least = d;
      best = candidate;
    }
  return best;
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

}  // namespace

void refuse_empty_values(CLI::App& command) {
  for (CLI::Option* option : command.get_options())
    if (option->get_type_size() > 0)
      option->check(
          [](const std::string& value) { return value.empty() ? std::string("needs a value") : std::string(); });
}

Error usage_error(const CLI::App& app, const CLI::ParseError& refused, const std::string& command) {
  Error error{ErrorCode::kUsage, refused.what(), {}, {}};
  const auto chosen = app.get_subcommands([&](const CLI::App* one) { return one->get_name() == command; });
  if (chosen.empty()) {
    std::vector<std::string> commands;
    for (const CLI::App* one : app.get_subcommands(nullptr)) commands.push_back(one->get_name());
    if (!command.empty() && command[0] != '-') {
      error.what = fmt::format("there is no command '{}'", command);
      if (const auto meant = nearest(command, commands); !meant.empty()) error.remedy("plimsoll " + meant);
    }
    return error.fact(fmt::format("commands: {}", fmt::join(commands, ", "))).remedy("plimsoll --help");
  }
  const std::string help = fmt::format("plimsoll {} --help", command);
  const std::vector<std::string> left = app.remaining(true);
  if (left.empty()) return error.remedy(help);
  const auto flag =
      std::find_if(left.begin(), left.end(), [](const std::string& word) { return word.starts_with("-"); });
  if (flag == left.end()) {
    error.what = fmt::format("plimsoll {} does not take '{}'", command, fmt::join(left, " "));
    return error.remedy(help);
  }
  const std::string name = flag->substr(0, flag->find('='));
  error.what = fmt::format("plimsoll {} has no flag {}", command, name);
  if (const auto meant = nearest(name, flags_of(*chosen[0])); !meant.empty()) error.remedy(meant);
  return error.remedy(help);
}

}  // namespace plimsoll
