// Host memory. The kernel names the limit that struck: of the machine, or of a cgroup, which is a container or a job.
#include <fmt/format.h>

#include <algorithm>

#include "explain/cursor.h"
#include "explain/decide.h"

namespace plimsoll::engine::explain {
namespace {

void set(Verdict& verdict, Cause cause, Certainty certainty, std::string summary) {
  verdict.where = "host";
  verdict.cause = cause;
  verdict.certainty = certainty;
  verdict.summary = std::move(summary);
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

void add_tasks(Verdict& verdict, const Facts& facts) {
  std::vector<Process> tasks = facts.tasks;
  std::stable_sort(tasks.begin(), tasks.end(), [](const Process& a, const Process& b) { return a.bytes > b.bytes; });
  for (size_t i = 0; i < tasks.size() && i < 5; ++i)
    if (tasks[i].bytes > 64 * kMiB) verdict.figures.push_back({"resident: " + tasks[i].name, tasks[i].bytes});
}

void add_swap(Verdict& verdict, const Facts& facts) {
  if (facts.swap_total && facts.swap_free && facts.swap_total->bytes > 0 &&
      facts.swap_free->bytes < facts.swap_total->bytes / 20)
    verdict.why.push_back(fmt::format("swap was full as well ({}): the training was slow before it was killed",
                                      format_bytes(facts.swap_total->bytes)));
  if (facts.swap_total && facts.swap_total->bytes == 0) verdict.why.push_back("the machine has no swap");
}

const KernelKill& best_kill(const Facts& facts) {
  for (const KernelKill& kill : facts.kills)
    if (kill.anon) return kill;
  return facts.kills.front();
}

bool of_slurm(const Facts& facts) {
  return !facts.jobs.empty();
}

std::vector<std::string> host_remedies() {
  return {"read the data from files instead of holding them: plimsoll fit --data x.npy,y.npy reads batch by batch",
          "fewer worker processes: each holds a copy of what it touches"};
}

}  // namespace

std::optional<Verdict> decide_kernel(const Facts& facts) {
  if (facts.kills.empty()) return std::nullopt;
  const KernelKill& kill = best_kill(facts);
  Verdict verdict;
  verdict.evidence.push_back(kill.seen);
  if (kill.killed && kill.killed->line != kill.seen.line) verdict.evidence.push_back(*kill.killed);
  const auto figure = [&](const char* name, const Size& bytes) {
    if (bytes) verdict.figures.push_back({name, *bytes});
  };
  figure("anonymous memory of the killed process", kill.anon);
  figure("its file pages", kill.file);
  figure("its shared memory", kill.shmem);
  figure("its address space", kill.total_vm);
  const std::string who = kill.task.empty() ? "a process" : kill.task;
  const bool cgroup = kill.cgroup || facts.cgroup_limit.has_value();
  if (cgroup) {
    if (facts.cgroup_limit) {
      verdict.evidence.push_back(facts.cgroup_limit->seen);
      verdict.figures.push_back({"limit of the cgroup", facts.cgroup_limit->bytes});
      verdict.figures.push_back({"used in the cgroup", facts.cgroup_usage->bytes});
      verdict.limit = facts.cgroup_limit->bytes;
    }
    set(verdict, of_slurm(facts) ? Cause::kJobLimit : Cause::kContainerLimit, Certainty::kSure,
        facts.cgroup_limit ? fmt::format("{} was killed at the limit of its cgroup, {}; the machine may have more", who,
                                         format_bytes(facts.cgroup_limit->bytes))
                           : fmt::format("{} was killed at the limit of its cgroup; the machine may have more", who));
    verdict.remedies = {of_slurm(facts) ? "ask for more with --mem"
                                        : "raise the container's limit: docker run --memory, "
                                          "resources.limits.memory"};
  } else {
    set(verdict, Cause::kHostMemory, kill.killed ? Certainty::kSure : Certainty::kLikely,
        kill.anon ? fmt::format("the kernel killed {}, which held {} of its own (arrays, not files)", who,
                                format_bytes(*kill.anon))
                  : fmt::format("the kernel killed {} because the machine's memory ran out", who));
  }
  for (std::string& remedy : host_remedies()) verdict.remedies.push_back(std::move(remedy));
  add_tasks(verdict, facts);
  add_swap(verdict, facts);
  const auto larger = std::max_element(facts.tasks.begin(), facts.tasks.end(),
                                       [](const Process& a, const Process& b) { return a.bytes < b.bytes; });
  if (!cgroup && larger != facts.tasks.end() && kill.anon && larger->bytes > *kill.anon / 2 * 3)
    verdict.why.push_back(
        fmt::format("{} held more ({}) than the process that was killed", larger->name, format_bytes(larger->bytes)));
  return verdict;
}

std::optional<Verdict> decide_limits(const Facts& facts) {
  Verdict verdict;
  const auto rests_on = [&](const std::vector<NamedFact>& list) {
    for (const NamedFact& fact : list)
      if (verdict.evidence.size() < 3) verdict.evidence.push_back(fact.seen);
  };
  if (!facts.jobs.empty()) {
    rests_on(facts.jobs);
    set(verdict, Cause::kJobLimit, Certainty::kSure, "the scheduler ended the job at its memory limit");
    verdict.why.push_back("the log has no figures of memory");
    verdict.remedies = {"sacct -j JOB -o MaxRSS,ReqMem shows what it used and what it asked for",
                        "ask for more: --mem=", host_remedies()[0]};
  } else if (!facts.containers.empty()) {
    rests_on(facts.containers);
    const bool machine = contains(facts.containers.front().name, "ode running low") ||
                         contains(facts.containers.front().name, "available RAM");
    set(verdict, machine ? Cause::kHostMemory : Cause::kContainerLimit, Certainty::kSure,
        machine ? "the memory of the machine ran out" : "the container was killed at its memory limit");
    verdict.remedies = {machine ? "fewer processes per machine"
                                : "raise the container's limit: docker run --memory, "
                                  "resources.limits.memory",
                        host_remedies()[0]};
    if (!machine && facts.container_limit) {
      verdict.evidence.push_back(facts.container_limit->seen);
      verdict.figures.push_back({"limit of the container", facts.container_limit->bytes});
      verdict.limit = facts.container_limit->bytes;
      verdict.remedies.insert(verdict.remedies.begin(),
                              fmt::format("plimsoll plan MODEL --batch-size N --budget {}   what fits there, and at "
                                          "what price",
                                          facts.container_limit->bytes));
    }
  } else if (!facts.shared_memory.empty()) {
    rests_on(facts.shared_memory);
    const bool bare = std::all_of(facts.shared_memory.begin(), facts.shared_memory.end(),
                                  [](const NamedFact& fact) { return fact.name == "bus error"; });
    set(verdict, bare ? Cause::kNotEnough : Cause::kSharedMemory, bare ? Certainty::kPossible : Certainty::kSure,
        bare ? "a bus error: often a full /dev/shm, sometimes a file that was cut while it was read"
             : "workers hand batches over in /dev/shm, and it is full; a container has 64 MiB unless told otherwise");
    verdict.disguised = true;
    verdict.remedies = {"docker run --shm-size=8g, or --ipc=host", "fewer workers, or num_workers=0"};
    if (bare) verdict.remedies.insert(verdict.remedies.begin(), "df /dev/shm beside the run");
  } else if (!facts.killed.empty()) {
    rests_on(facts.killed);
    set(verdict, Cause::kNotEnough, Certainty::kPossible,
        "the process was killed by SIGKILL, which is most often the kernel's out-of-memory killer; the log does not "
        "say so");
    verdict.remedies = {"dmesg -T | grep -i oom   or: journalctl -k",
                        "memory.events of the cgroup counts oom_kill; docker inspect says OOMKilled",
                        "plimsoll top -- COMMAND reports the true peak of the command"};
  } else {
    return std::nullopt;
  }
  return verdict;
}

std::optional<Verdict> decide_array(const Facts& facts) {
  Verdict verdict;
  if (!facts.arrays.empty()) {
    const ArrayFailure& array = facts.arrays.front();
    verdict.evidence.push_back(array.seen);
    const Bytes bytes = array.bytes.value_or(0);
    if (array.bytes) verdict.figures.push_back({"asked for", bytes});
    set(verdict, Cause::kHostMemory, Certainty::kSure,
        fmt::format("numpy could not allocate {} for one array: {} of {}", format_bytes(bytes),
                    array.dtype.empty() ? "elements" : array.dtype, shape_words(array.dims)));
    if (bytes > 16 * 1024 * kGiB) {
      verdict.cause = Cause::kImpossibleTensor;
      verdict.why.push_back("no machine has that much: look for a wrong shape");
      return verdict;
    }
    const bool images = array.dims.size() == 4 && (array.dims[3] == 3 || array.dims[3] == 1);
    const int64_t elements = elements_of(array.dims);
    if (array.dtype == "float64" && elements <= INT64_MAX / 4)
      verdict.figures.push_back({"the same as float32", elements * 4});
    if ((array.dtype == "float32" || array.dtype == "float64") && (images || array.dims.size() >= 3))
      verdict.figures.push_back({"the same as uint8", elements});
    verdict.why.push_back("read from a file batch by batch it needs none of it");
    verdict.remedies = {host_remedies()[0], "np.load(FILE, mmap_mode='r'), or a dtype of fewer bytes"};
    return verdict;
  }
  if (!facts.torch_host.empty()) {
    verdict.evidence.push_back(facts.torch_host.front().seen);
    verdict.figures.push_back({"asked for", facts.torch_host.front().bytes});
    set(verdict, Cause::kHostMemory, Certainty::kSure,
        fmt::format("PyTorch could not allocate {} of host memory", format_bytes(facts.torch_host.front().bytes)));
    verdict.remedies = {"a smaller batch or smaller inputs", "fewer worker processes"};
    return verdict;
  }
  if (facts.host_errors.empty()) return std::nullopt;
  for (const NamedFact& fact : facts.host_errors)
    if (verdict.evidence.size() < 3) verdict.evidence.push_back(fact.seen);
  set(verdict, Cause::kNotEnough, Certainty::kPossible,
      "an allocation of host memory failed; the log does not say how large it was or which limit struck");
  verdict.remedies = {"ulimit -a and the cgroup's memory.max show the limits",
                      "plimsoll top -- COMMAND reports the true peak of the command"};
  return verdict;
}

}  // namespace plimsoll::engine::explain
