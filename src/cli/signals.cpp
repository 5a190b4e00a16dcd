#include "cli/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/json_text.h"
#include "cli/command.h"
#include "formats/file/file.h"

namespace plimsoll::engine {
namespace {

std::atomic<bool> stop_flag{false}, saved{false};
std::atomic<int64_t> first_at{0};  // milliseconds

// A text that the signal handler prints. A signal may arrive while set() runs. So set() completes the new text before
// it moves the pointer, and the old text stays valid until the next call but one.
struct Text {
  std::string slots[2];
  int next = 0;
  std::atomic<const std::string*> current{nullptr};

  void set(std::string text) {
    slots[next] = std::move(text);
    current = &slots[next];
    next = 1 - next;
  }
};
// Never destroyed, because a signal may arrive while the program ends.
Text &saving_text = *new Text, &lost_text = *new Text;
bool on_terminal = false, as_json = false;

// The code below runs in a signal handler. It calls only functions that POSIX allows there: write, clock_gettime,
// unlink, _exit.
void print(int fd, const Text& text) {
  const std::string* const current = text.current;
  if (current == nullptr) return;
  for (size_t done = 0; done < current->size();) {
    const ssize_t wrote = ::write(fd, current->data() + done, current->size() - done);
    if (wrote <= 0) return;
    done += static_cast<size_t>(wrote);
  }
}

int64_t milliseconds_now() {
  struct timespec now {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void on_signal(int) {
  const int error_number = errno;
  const int64_t now = milliseconds_now();
  int64_t none = 0;
  if (first_at.compare_exchange_strong(none, now)) {
    stop_flag = true;
    if (on_terminal && !saved) print(STDERR_FILENO, saving_text);
  } else if (!saved && now - first_at >= kSameRequestMilliseconds) {
    remove_files_aside();
    print(as_json ? STDOUT_FILENO : STDERR_FILENO, lost_text);
    _exit(exit_code(ErrorCode::kNotSaved));
  }
  errno = error_number;
}

}  // namespace

const std::atomic<bool>& stop_requested() {
  return stop_flag;
}

void say_when_lost(const Error& lost) {
  lost_text.set(as_json ? json_text(error_json(lost)) + "\n" : to_text(lost));
}

void nothing_to_lose() {
  saved = true;
}

void ignore_write_signals() {
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
}

void install_signal_handlers(const std::string& saving, bool json) {
  as_json = json;
  on_terminal = isatty(STDERR_FILENO) == 1;
  saving_text.set("\n" + saving + "\n");
  say_when_lost({ErrorCode::kNotSaved, "interrupted twice: ended at once", {"nothing was written"}, {}});
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

}  // namespace plimsoll::engine
