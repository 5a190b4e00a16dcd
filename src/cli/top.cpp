#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/json.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/command_peak.h"
#include "cli/top_view.h"

namespace plimsoll::engine {
namespace {

struct TopFlags {
  bool once = false, json = false;
  double interval = 1;
  std::string root;
  std::vector<std::string> command;
};

volatile std::sig_atomic_t ended = 0;

void end(int) {
  ended = 1;
}

TopStyle style_of(int descriptor) {
  TopStyle style;
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    style.columns = size.ws_col;
    style.rows = size.ws_row;
  }
  const char* const off = std::getenv("NO_COLOR");
  style.color = ::isatty(descriptor) == 1 && (off == nullptr || *off == '\0');
  return style;
}

// The terminal while the screen is drawn again and again. The destructor restores it.
class Screen {
 public:
  Screen() {
    if (::tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      keys_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    put("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    put("\x1b[?25h\x1b[?1049l");
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void draw(const std::string& text) {
    std::string lines = "\x1b[H";
    for (const char c : text) lines += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
    put(lines + "\x1b[J");
  }
  // Waits, and returns whether the user wants to leave.
  bool wait(double seconds) const {
    pollfd key{STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&key, keys_ ? 1 : 0, static_cast<int>(seconds * 1e3));
    char typed = 0;
    return ended != 0 || (ready == 1 && (::read(STDIN_FILENO, &typed, 1) != 1 || typed == 'q'));
  }

 private:
  static void put(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  termios before_{};
  bool keys_ = false;
};

Result<int> watch(const TopFlags& flags, const Nvml* nvml) {
  struct sigaction action {};
  action.sa_handler = end;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  Screen screen;
  for (bool leaves = false; !leaves;) {
    TopStyle style = style_of(STDOUT_FILENO);
    style.rows -= 1;
    screen.draw(top_text(look_around(nvml, flags.root), style) + "q ends");
    leaves = screen.wait(flags.interval);
  }
  return 0;
}

std::string peak_words(const CommandPeak& peak) {
  std::string text = fmt::format("peak of the host's memory  {} ({} bytes), ", format_bytes(peak.peak()), peak.peak());
  if (peak.processes > 1 && peak.together > peak.largest)
    text += fmt::format("{} processes together, sampled\n", peak.processes);
  else
    text += peak.exact ? "counted by the kernel\n" : "sampled\n";
  if (peak.processes > 1)
    text += fmt::format("  its largest process      {} ({} bytes), {}\n", format_bytes(peak.largest), peak.largest,
                        peak.exact ? "counted by the kernel" : "sampled");
  for (const CommandPeak::Gpu& gpu : peak.gpus)
    text += fmt::format("peak of GPU {}              {} ({} bytes), sampled{}\n", gpu.index, format_bytes(gpu.peak),
                        gpu.peak, gpu.by_process ? "" : " as the rise of what is in use: the driver hides processes");
  if (peak.swapped > 0)
    text += fmt::format("swapped out                {}: it needs more than the machine had free\n",
                        format_bytes(peak.swapped));
  text += fmt::format("time                       {:.2f} s\n", peak.seconds);
  if (peak.signal != 0)
    text += fmt::format("ended by signal {} ({}){}\n", peak.signal, strsignal(peak.signal),
                        peak.signal == SIGKILL ? ": plimsoll explain reads the kernel's log (dmesg)" : "");
  return text;
}

Result<int> measure(const TopFlags& flags, const Nvml* nvml) {
  PLIMSOLL_ASSIGN(const CommandPeak peak, run_command(flags.command, nvml));
  const int code = peak.signal != 0 ? 128 + peak.signal : peak.exit_code;
  if (!flags.json) {
    tell(peak_words(peak));  // the command's own output went to stdout
    return code;
  }
  nlohmann::ordered_json gpus = nlohmann::ordered_json::array();
  for (const CommandPeak::Gpu& gpu : peak.gpus)
    gpus.push_back(ordered_object({{"index", gpu.index}, {"peak_bytes", gpu.peak}, {"by_process", gpu.by_process}}));
  tell(json_text(ordered_object({{"schema", "plimsoll.peak/1"},
                                 {"peak_bytes", peak.peak()},
                                 {"largest_process_bytes", peak.largest},
                                 {"counted_by_kernel", peak.exact},
                                 {"together_bytes", peak.together},
                                 {"processes", peak.processes},
                                 {"swapped_bytes", peak.swapped},
                                 {"gpus", gpus},
                                 {"seconds", peak.seconds},
                                 {"exit_code", peak.exit_code},
                                 {"signal", peak.signal}}),
                 -1) +
       "\n");
  return code;
}

Result<int> top(const TopFlags& flags) {
  const auto nvml = Nvml::open();
  if (!flags.command.empty()) return measure(flags, nvml.get());
  const char* const terminal = std::getenv("TERM");
  const bool redraws = ::isatty(STDOUT_FILENO) == 1 && (terminal == nullptr || std::strcmp(terminal, "dumb") != 0);
  if (!flags.json && !flags.once && redraws) return watch(flags, nvml.get());
  const TopView view = look_around(nvml.get(), flags.root);
  if (flags.json)
    answer(json_text(top_json(view)) + "\n");
  else
    std::fputs(top_text(view, style_of(STDOUT_FILENO)).c_str(), stdout);  // its names are printable
  return 0;
}

}  // namespace

void add_top_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<TopFlags>();
  CLI::App* command =
      app.add_subcommand("top", "show who holds the memory of the host and the GPUs, or the true peak of a command");
  command->add_option("COMMAND", flags->command, "a command with its arguments, behind --: its peak is measured");
  command->add_flag("--once", flags->once, "print once instead of drawing again and again");
  command->add_flag("--json", flags->json, "print once, as JSON");
  command->add_option("--interval", flags->interval, "seconds between two looks")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--root", flags->root, "the folder below which proc and sys lie, to look at another system");
  command->footer("Example: plimsoll top --once\n         plimsoll top -- python train.py");
  actions[command] = [flags] { return top(*flags); };
}

}  // namespace plimsoll::engine
