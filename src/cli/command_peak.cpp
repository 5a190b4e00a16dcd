#include "cli/command_peak.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "device/machine.h"
#include "device/process_memory.h"

extern char** environ;

namespace plimsoll::engine {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPause = std::chrono::milliseconds(10), kFirstPause = std::chrono::milliseconds(1);
constexpr int kShortPauses = 50;  // a short command is looked at more often

// The processes that descend from `root`, which is among them.
std::vector<ProcessState> family(int root) {
  const std::vector<ProcessState> all = read_processes();
  std::set<int> members = {root};
  for (size_t before = 0; before != members.size();) {
    before = members.size();
    for (const ProcessState& process : all)
      if (members.count(process.parent) != 0) members.insert(process.pid);
  }
  std::vector<ProcessState> found;
  for (const ProcessState& process : all)
    if (members.count(process.pid) != 0) found.push_back(process);
  return found;
}

class Watch {
 public:
  Watch(int pid, const Nvml* nvml) : pid_(pid), nvml_(nvml) {
    if (nvml_ != nullptr)
      for (const GpuState& gpu : nvml_->read()) {
        peak_.gpus.push_back({gpu.index, 0, false});
        before_[gpu.index] = gpu.used;
      }
  }

  void look() {
    const std::vector<ProcessState> members = family(pid_);
    Bytes own = 0, shared = 0, swapped = 0;
    for (const ProcessState& process : members) {
      seen_.insert(process.pid);
      peak_.largest = std::max(peak_.largest, process.peak_resident);
      own += process.resident - std::min(process.resident, process.shared);
      shared = std::max(shared, process.shared);
      swapped += process.swapped;
    }
    peak_.together = std::max(peak_.together, own + shared);
    peak_.swapped = std::max(peak_.swapped, swapped);
    if (nvml_ != nullptr) look_at_gpus(members);
  }

  CommandPeak done(const rusage& usage) {
    peak_.processes = static_cast<int64_t>(seen_.size());
    // The kernel counts the peak of the largest process exactly, but from before exec: it is never below our own size.
    const Bytes counted = usage.ru_maxrss > INT64_MAX / kKiB ? 0 : usage.ru_maxrss * kKiB;
    if (counted > peak_resident_bytes()) {
      peak_.largest = std::max(peak_.largest, counted);
      peak_.exact = true;
    }
    return peak_;
  }

 private:
  void look_at_gpus(const std::vector<ProcessState>& members) {
    const std::vector<GpuState> gpus = nvml_->read();
    for (const GpuState& gpu : gpus)
      for (CommandPeak::Gpu& peak : peak_.gpus) {
        if (peak.index != gpu.index) continue;
        Bytes held = 0;
        for (const GpuProcess& process : gpu.processes)
          for (const ProcessState& member : members)
            if (member.pid == process.pid && process.held) {
              held += *process.held;
              peak.by_process = true;
            }
        if (!peak.by_process) held = std::max<Bytes>(0, gpu.used - before_[gpu.index]);
        peak.peak = std::max(peak.peak, held);
      }
  }

  int pid_;
  const Nvml* nvml_;
  CommandPeak peak_;
  std::set<int> seen_;
  std::map<int, Bytes> before_;
};

}  // namespace

Result<CommandPeak> run_command(const std::vector<std::string>& command, const Nvml* nvml) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  // The command gets the signals of the terminal; this process waits for it.
  struct sigaction ignore {
  }, interrupt{}, quit{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGINT, &ignore, &interrupt);
  ::sigaction(SIGQUIT, &ignore, &quit);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGQUIT, SIGPIPE, SIGXFSZ}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const auto start = Clock::now();
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, words[0], nullptr, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  Result<CommandPeak> result = fail(ErrorCode::kUsage, fmt::format("{}: {}", command[0], std::strerror(failed)));
  if (failed == 0) {
    Watch watch(pid, nvml);
    int status = 0;
    rusage usage{};
    for (int looks = 0;; ++looks) {
      watch.look();
      const pid_t ended = ::wait4(pid, &status, WNOHANG, &usage);
      if (ended == pid || (ended < 0 && errno != EINTR)) break;
      std::this_thread::sleep_for(looks < kShortPauses ? kFirstPause : kPause);
    }
    result = watch.done(usage);
    result->seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (WIFEXITED(status)) result->exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result->signal = WTERMSIG(status);
  }
  ::sigaction(SIGINT, &interrupt, nullptr);
  ::sigaction(SIGQUIT, &quit, nullptr);
  return result;
}

}  // namespace plimsoll::engine
