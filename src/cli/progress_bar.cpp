#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/printable.h"
#include "cli/command.h"

namespace plimsoll::engine {
namespace {

constexpr int kBarWidth = 20, kShortBar = 8;

std::string metrics_text(const std::vector<Metric>& metrics) {
  std::string text;
  for (const Metric& metric : metrics) text += fmt::format(" - {}: {:.4f}", printable(metric.name), metric.value);
  return text;
}

// Steps on a GPU may be shorter than a millisecond.
std::string pace_text(double seconds) {
  return seconds < 0.01 ? fmt::format("{:.1f}ms/step", seconds * 1e3) : fmt::format("{:.0f}ms/step", seconds * 1e3);
}

std::string rate_text(int64_t samples, double seconds) {
  return fmt::format("{:.0f} samples/s", seconds > 0 ? static_cast<double>(samples) / seconds : 0);
}

std::string bar(double part, int width, bool color) {
  const int full = static_cast<int>(std::lround(part * width));
  std::string text = color ? "\x1b[32m" : "";
  for (int i = 0; i < full; ++i) text += "━";
  if (color) text += "\x1b[37m";
  for (int i = full; i < width; ++i) text += color ? "━" : "╌";
  return text + (color ? "\x1b[0m" : "");
}

size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

ProgressBar::ProgressBar(bool quiet, Bytes budget, std::function<Bytes()> held)
    : quiet_(quiet),
      terminal_(can_redraw()),
      color_(terminal_ && std::getenv("NO_COLOR") == nullptr),
      budget_(budget),
      held_(std::move(held)) {}

std::string ProgressBar::memory_text() const {
  return fmt::format("{} of {}", format_bytes(held_()), format_bytes(budget_));
}

// Says who waited for whom in this epoch, if the device waited long enough to be worth a word.
std::string ProgressBar::idle_text() const {
  constexpr double kLeast = 0.1;
  const double share = epoch_seconds_ > 0 ? std::min((waited_ - waited_before_) / epoch_seconds_, 1.0) : 0;
  return share < kLeast ? "" : fmt::format(" - idle {:.0f}%: {}", 100 * share, reading_);
}

void ProgressBar::on_epoch_begin(int64_t epoch, int64_t epochs, int64_t windows) {
  waited_before_ = waited_;
  epoch_seconds_ = 0;
  drawn_at_ = -1;
  epoch_samples_ = epoch_steps_ = 0;
  windows_ = windows;
  if (!quiet_ && terminal_) tell(fmt::format("Epoch {}/{}\n", epoch + 1, epochs));
}

void ProgressBar::on_step(const StepEvent& event) {
  epoch_seconds_ += event.seconds;
  epoch_samples_ += event.samples;
  ++epoch_steps_;
  waited_ = event.waited;
  if (quiet_ || !terminal_) return;
  if (event.window != event.windows && epoch_seconds_ - drawn_at_ < 0.1) return;
  drawn_at_ = epoch_seconds_;
  const double per_step = epoch_seconds_ / static_cast<double>(epoch_steps_);
  const std::string counter = fmt::format("{}/{} ", event.window, event.windows),
                    left = fmt::format(" {:.0f}s", per_step * static_cast<double>(event.windows - event.window)),
                    pace = " " + pace_text(per_step), metrics = metrics_text(*event.running),
                    rate = " - " + rate_text(epoch_samples_, epoch_seconds_), memory = " - " + memory_text(),
                    idle = idle_text();
  // A line that is redrawn must fit one row of the terminal: leave out the least important parts first.
  const size_t row = terminal_columns() - 1;
  int width = kBarWidth;
  std::string text = left + pace + metrics + rate + memory + idle;
  const auto fits = [&] { return counter.size() + static_cast<size_t>(width) + text.size() <= row; };
  if (!fits()) width = kShortBar;
  if (!fits()) text = left + metrics + rate + memory + idle;
  if (!fits()) text = left + metrics + rate + memory;
  if (!fits()) text = left + metrics + memory;
  if (!fits()) text.resize(row - std::min(row, counter.size() + static_cast<size_t>(width)));
  draw(fmt::format("\r{}{}{}{}", counter,
                   bar(static_cast<double>(event.window) / static_cast<double>(event.windows), width, color_), text,
                   clear_rest(counter.size() + static_cast<size_t>(width) + text.size())));
  drawing_ = true;
}

// Returns the text that clears the row after a line of `columns`: an escape code, or spaces if colours are off.
std::string ProgressBar::clear_rest(size_t columns) {
  const size_t before = std::exchange(drawn_columns_, columns);
  if (color_) return "\x1b[K";
  return std::string(before > columns ? before - columns : 0, ' ');
}

void ProgressBar::end_line() {
  if (drawing_) tell("\n");
  drawing_ = false;
}

void ProgressBar::on_epoch_end(const EpochEvent& event) {
  if (quiet_) return;
  drawing_ = false;
  const double per_step = epoch_steps_ > 0 ? epoch_seconds_ / static_cast<double>(epoch_steps_) : 0;
  const std::string told = fmt::format("{}{} - {} - {}{}", pace_text(per_step), metrics_text(event.metrics),
                                       rate_text(epoch_samples_, epoch_seconds_), memory_text(), idle_text());
  if (terminal_) {
    const std::string counter = fmt::format("{}/{} ", windows_, windows_),
                      text = fmt::format(" {:.0f}s {}", event.seconds, told);
    draw(fmt::format("\r{}{}{}{}\n", counter, bar(1, kBarWidth, color_), text,
                     clear_rest(counter.size() + kBarWidth + text.size())));
  } else
    tell(fmt::format("Epoch {}/{} - {:.1f}s - {}\n", event.epoch + 1, event.epochs, event.seconds, told));
}

void ProgressBar::on_note(const std::string& text) {
  if (!quiet_) tell(text + "\n");
}

}  // namespace plimsoll::engine
