#include "api/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace plimsoll::engine {
namespace {

struct Option {
  std::string_view flag;
  std::string_view bare;        // the name of the option in the interface
  std::string_view with_value;  // the option set to a value that starts with a digit
  bool takes_word = false;      // the value is a word
};

constexpr Option kOptions[] = {
    {"--budget", "options.budget", "options.budget = \"{}\""},
    {"--batch-size", "options.batch_size", "options.batch_size = {}"},
    {"--micro-batch", "options.micro_batch", "options.micro_batch = {}"},
    {"--gradient-accumulation-steps", "options.gradient_accumulation_steps",
     "options.gradient_accumulation_steps = {}"},
    {"--threads", "options.threads", "options.threads = {}"},
    {"--host-budget", "options.host_budget", "options.host_budget = \"{}\""},
    {"--device", "options.device", "options.device = \"{}\"", true},
    {"--precision", "options.precision", "options.precision = \"{}\"", true},
    {"--batchnorm", "options.batchnorm", "options.batchnorm = \"{}\"", true},
    {"--forbid", "options.forbid", "options.forbid = {{\"{}\"}}", true},
    {"--allow", "options.allow", "options.allow = {{\"{}\"}}", true},
    {"--resume", "FitOptions::resume", "FitOptions::resume"},
    {"--checkpoint", "FitOptions::checkpoint", "FitOptions::checkpoint"},
    {"--validation-data", "FitOptions::validation", "FitOptions::validation"},
    {"--learning-rate", "the optimizer's learning_rate", "learning_rate = {}"},
    {"--seed", "options.seed", "options.seed = {}"},
    {"--input-shape", "options.input_shape", "options.input_shape = {{{}}}"},
    {"--optimizer", "the optimizer", "another optimizer: optimizers::Adam()", true},
    {"--loss", "the loss", "another loss: losses::SparseCategoricalCrossentropy()", true},
};

// Flags of other programs that a remedy may name.
constexpr std::string_view kForeign[] = {"--gpus"};

bool starts_name(std::string_view text, size_t at) {
  return text.substr(at, 2) == "--" && at + 2 < text.size() && text[at + 2] >= 'a' && text[at + 2] <= 'z' &&
         (at == 0 || text[at - 1] != '-');
}

std::string_view name_at(std::string_view text, size_t at) {
  const size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-", at);
  return text.substr(at, end == std::string_view::npos ? end : end - at);
}

// Returns the value after a flag that ends at `at`: "48MiB" for " 48MiB, and".
std::string_view value_at(std::string_view text, size_t at, bool word) {
  if (at + 1 >= text.size() || text[at] != ' ') return {};
  const char first = text[at + 1];
  if (word ? first < 'a' || first > 'z' : first < '0' || first > '9') return {};
  const size_t end = text.find(' ', at + 1);
  std::string_view value = text.substr(at + 1, end == std::string_view::npos ? end : end - at - 1);
  while (value.ends_with(',') || value.ends_with(':')) value.remove_suffix(1);
  return value;
}

struct Rewritten {
  std::string text;
  bool knows_all = true;  // every flag in the text has an option in the interface
};

Rewritten rewrite(std::string_view text) {
  Rewritten result;
  for (size_t at = 0; at < text.size();) {
    if (!starts_name(text, at)) {
      result.text += text[at++];
      continue;
    }
    const std::string_view name = name_at(text, at);
    const auto* option =
        std::find_if(std::begin(kOptions), std::end(kOptions), [&](const Option& o) { return o.flag == name; });
    at += name.size();
    if (option != std::end(kOptions)) {
      const std::string_view value = value_at(text, at, option->takes_word);
      result.text += value.empty() ? std::string(option->bare) : fmt::format(fmt::runtime(option->with_value), value);
      if (!value.empty()) at += 1 + value.size();
    } else if (std::find(std::begin(kForeign), std::end(kForeign), name) != std::end(kForeign)) {
      result.text += name;
    } else {
      result.text += name.substr(2);
      result.knows_all = false;
    }
  }
  return result;
}

}  // namespace

Error in_api_words(Error error) {
  error.what = rewrite(error.what).text;
  for (std::string& fact : error.facts) fact = rewrite(fact).text;
  std::vector<std::string> remedies;
  for (const std::string& remedy : error.remedies)
    if (Rewritten rewritten = rewrite(remedy); rewritten.knows_all) remedies.push_back(std::move(rewritten.text));
  error.remedies = std::move(remedies);
  return error;
}

}  // namespace plimsoll::engine
