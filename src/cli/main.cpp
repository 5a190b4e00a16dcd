#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "base/json_text.h"
#include "cli/command.h"
#include "cli/signals.h"
#include "device/heap_limit.h"
#include "formats/file/file.h"
#include "plimsoll/version.h"

namespace plimsoll::engine {
namespace {

int finish(const Error& error, bool json) {
  const std::string text = json ? json_text(error_json(error)) + "\n" : to_text(error);
  std::fputs(text.c_str(), json ? stdout : stderr);
  if (error.code == ErrorCode::kInternal)
    std::fputs("this is a bug in plimsoll: please report it with the command that you ran\n", stderr);
  return exit_code(error.code);
}

// Returns `code`, or the code of a write error if stdout could not be written (a full disk, for example). A closed pipe
// is no error: its reader has all it wanted.
int after_output(int code) {
  if ((std::fflush(stdout) == 0 && std::ferror(stdout) == 0) || errno == EPIPE) return code;
  const Error error{ErrorCode::kWriteFailed, fmt::format("cannot write the output: {}", std::strerror(errno)), {}, {}};
  std::fputs(to_text(error).c_str(), stderr);
  return exit_code(error.code);
}

bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--json") return true;
  return false;
}

// Limits how long OpenMP threads spin while they wait. By default a thread spins for some milliseconds. On a busy
// machine it then takes the core from the thread it waits for, and steps take several times as long. Spinning for about
// 50 microseconds costs nothing measurable on an idle machine. libgomp reads the variable when it is loaded, so the
// program must start itself again with the variable set.
void wait_politely(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", "2000", 1) == 0) execv("/proc/self/exe", argv);
}

constexpr const char* kNoMemory =
    "error P604: the system is out of memory\n  try: a smaller --budget, or a machine with more free memory\n";

constexpr const char* kOverBudget =
    "error P301: reading and planning this model needs more memory than the budget\n  try: a larger --budget\n";

// Memory can also run out in a noexcept function: nlohmann's destructor of a nested value allocates. The user must see
// the same error then, not a crash.
[[noreturn]] void on_terminate() {
  remove_files_aside();  // no destructor runs from here on
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    // If HeapLimit refused the allocation, the budget was too small for this file.
    std::fputs(HeapLimit::refused() ? kOverBudget : kNoMemory, stderr);
    _exit(exit_code(HeapLimit::refused() ? ErrorCode::kDoesNotFit : ErrorCode::kOutOfMemory));
  } catch (...) {
  }
  std::abort();
}

// "10:20"
bool is_step_range(const std::string& word) {
  const size_t colon = word.find(':');
  return colon != std::string::npos && word.find_first_not_of("0123456789:") == std::string::npos;
}

// Returns the arguments with `help`, `help COMMAND` and `version` replaced by the equivalent flags.
std::vector<std::string> plain_words(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty()) return words;
  if (words[0] == "version") words[0] = "--version";
  if (words[0] == "help") {
    words.erase(words.begin());
    words.resize(std::min<size_t>(words.size(), !words.empty() && words[0] == "shrink" ? 2 : 1));
    words.push_back("--help");
  }
  // `fit --profile` alone is a flag, so the parser takes a value only with '='.
  for (size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == "--profile" && is_step_range(words[i + 1])) {
      words[i] += "=" + words[i + 1];
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  return words;
}

int run(int argc, char** argv) {
  CLI::App app("Trains Keras models inside a memory budget. Plans every byte before the run, and never uses more.",
               "plimsoll");
  app.set_version_flag("-V,--version", "plimsoll " PLIMSOLL_VERSION);
  app.require_subcommand(1);
  app.footer("Example: plimsoll plan fashion-cnn --batch-size 128 --budget 96MiB");
  std::map<CLI::App*, Action> actions;
  add_plan_command(app, actions);
  add_fit_command(app, actions);
  add_evaluate_command(app, actions);
  add_predict_command(app, actions);
  add_reduce_command(app, actions);
  add_convert_command(app, actions);
  add_shrink_command(app, actions);
  add_doctor_command(app, actions);
  add_profile_command(app, actions);
  add_precision_command(app, actions);
  add_top_command(app, actions);
  add_explain_command(app, actions);
  for (auto& [command, action] : actions) {
    name_environment(*command);
    last_one_wins(*command);
    refuse_empty_values(*command);
  }
  std::vector<std::string> arguments = plain_words(argc, argv);
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 expects the last argument first
    app.parse(arguments);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    return finish(usage_error(app, e, argc > 1 ? argv[1] : ""), wants_json(argc, argv));
  }
  ignore_write_signals();
  const Result<int> result = actions.at(app.get_subcommands().front())();
  return result ? *result : finish(result.error(), wants_json(argc, argv));
}

int run_guarded(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs(kNoMemory, stderr);
    return exit_code(ErrorCode::kOutOfMemory);
  } catch (const std::exception& e) {
    return finish(Error{ErrorCode::kInternal, e.what(), {}, {}}, wants_json(argc, argv));
  }
}

}  // namespace

}  // namespace plimsoll::engine

int main(int argc, char** argv) {
  using namespace plimsoll::engine;
  std::set_terminate(on_terminate);
  wait_politely(argv);
  prctl(PR_SET_NAME, "plimsoll");  // a program started through /proc/self/exe would be called "exe"
  return after_output(run_guarded(argc, argv));
}
