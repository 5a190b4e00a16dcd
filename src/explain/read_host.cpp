// Host memory: the kernel's out-of-memory killer, cgroups, job schedulers, containers, shells, and Python's own errors.
#include <algorithm>
#include <array>
#include <cctype>

#include "explain/cursor.h"
#include "explain/facts.h"

namespace plimsoll::engine::explain {
namespace {

constexpr size_t kMostTasks = 512;

bool is_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

KernelKill* last_kill(Facts& facts) {
  return facts.kills.empty() ? nullptr : &facts.kills.back();
}

// "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),...,task=python3,pid=25315,uid=0"
void read_constraint(Facts& facts, const Window& window) {
  KernelKill kill{};
  kill.seen = window.seen;
  Cursor cursor(window.after);
  cursor.find("constraint=", 30);
  kill.constraint = cursor.word(",");
  kill.cgroup = kill.constraint.find("MEMCG") != std::string::npos;
  if (cursor.find("task=", 400)) kill.task = cursor.word(",");
  add_fact(facts.kills, std::move(kill));
}

// "Killed process 25315 (python3) total-vm:53312244kB, anon-rss:31451456kB, file-rss:0kB, shmem-rss:0kB"
void read_killed(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  cursor.eat("killed process");
  if (!cursor.whole()) return;
  KernelKill* kill = last_kill(facts);
  if (kill == nullptr || kill->killed || window.seen.line - kill->seen.line > 20) {
    KernelKill made{};
    made.seen = window.seen;
    kill = add_fact(facts.kills, std::move(made));
  }
  if (kill == nullptr) return;
  kill->killed = window.seen;
  if (Cursor before(window.before.substr(window.before.size() - std::min<size_t>(window.before.size(), 60)));
      before.find("memory cgroup out of memory"))
    kill->cgroup = true;
  if (cursor.find("(", 80)) kill->task = cursor.word(")");
  const auto part = [&](std::string_view name, Size& to) {
    if (Cursor figures = cursor; figures.find(name, 200)) to = figures.size();
  };
  part("total-vm:", kill->total_vm);
  part("anon-rss:", kill->anon);
  part("file-rss:", kill->file);
  part("shmem-rss:", kill->shmem);
}

// "memory: usage 1048576kB, limit 1048576kB, failcnt 189"
void read_cgroup(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  cursor.eat("memory: usage");
  const auto usage = cursor.size();
  if (!usage || !cursor.eat(", limit")) return;
  const auto limit = cursor.size();
  if (!limit || facts.cgroup_limit) return;
  facts.cgroup_usage = {window.seen, *usage};
  facts.cgroup_limit = {window.seen, *limit};
}

void read_swap(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  const bool total = cursor.eat("total swap =");
  if (!total && !cursor.eat("free swap =")) return;
  if (const auto bytes = cursor.size()) (total ? facts.swap_total : facts.swap_free) = SizedFact{window.seen, *bytes};
}

// "Limits:" of a pod's description, with a line "memory: 8Gi" below it, in any order with "cpu: 4".
void read_limits(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  cursor.eat("limits:");
  if (facts.container_limit || !cursor.find("memory:", 80)) return;
  const auto bytes = cursor.size();
  if (bytes && *bytes > 0) facts.container_limit = SizedFact{window.seen, *bytes};
}

// The rows below this head are of one task each: "[ 1234]  1000  1234  2345678  1234567 ... 0 python3". Newer kernels
// write "[   1234]". The numbers of memory are pages of 4 KiB.
void read_tasks(Facts& facts, const Window& window) {
  if (facts.tasks.size() >= kMostTasks) return;
  // tgid total_vm rss: the names before rss say at which number it stands.
  Cursor head(window.after);
  if (!head.find("rss", 60)) return;
  std::string_view rows = window.after;
  for (size_t end = rows.find('\n'); end != std::string_view::npos && facts.tasks.size() < kMostTasks;
       end = rows.find('\n')) {
    rows.remove_prefix(end + 1);
    std::string_view row = rows.substr(0, rows.find('\n'));
    const size_t bracket = row.rfind('[');  // the last one: a time stamp in brackets may stand before the id
    if (bracket == std::string_view::npos) break;
    Cursor numbers(row.substr(bracket + 1));
    const auto id = numbers.whole();
    if (!id || !numbers.eat("]")) break;
    numbers.whole();  // uid
    numbers.whole();  // tgid
    numbers.whole();  // total_vm
    const auto pages = numbers.whole();
    const size_t name = row.find_last_of(' ');
    if (!pages || *pages > INT64_MAX / 4096 || name == std::string_view::npos) break;
    facts.tasks.push_back({std::string(row.substr(name + 1)).substr(0, 40), *pages * 4096, 0});
  }
}

template <std::vector<NamedFact> Facts::*list>
void read_named(Facts& facts, const Window& window) {
  const size_t end = std::min(window.after.find('\n'), window.after.size());
  add_fact(facts.*list, {window.seen, std::string(window.after.substr(0, std::min<size_t>(end, 200)))});
}

// "Killed" as a shell prints it: alone, or at the end of a line behind a process id.
void read_shell(Facts& facts, const Window& window) {
  const std::string& text = window.seen.text;
  const size_t at = text.find("Killed");
  if (at == std::string::npos) return;
  std::string_view before = std::string_view(text).substr(0, at), after = std::string_view(text).substr(at + 6);
  before = before.substr(0, before.find_last_not_of(' ') + 1);
  const bool alone = before.empty() && after.find_first_not_of(" .") == std::string_view::npos;
  const bool of_shell = !before.empty() && std::isdigit(static_cast<unsigned char>(before.back())) != 0 &&
                        before.find(": ") != std::string_view::npos &&
                        before.find("process") == std::string_view::npos;  // "job.sh: line 5: 12345 Killed   python"
  const bool zsh = before.empty() == false && before.starts_with("zsh:") && after.starts_with(" ");
  if (alone || of_shell || zsh) add_fact(facts.killed, {window.seen, "the shell's word Killed"});
}

// The same word from shells in other languages, which are told apart by the line having little else.
void read_translated(Facts& facts, const Window& window) {
  if (window.seen.text.size() <= 120) add_fact(facts.killed, {window.seen, "the shell's word for Killed"});
}

// "exitcode  : -9 (pid: 123)", "exit code: -9", "killed by signal 9"
void read_signal_nine(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  cursor.eat("exit code") || cursor.eat("killed by signal");
  cursor.eat(":") || cursor.eat("=");
  const bool exit = !Cursor(window.after).eat("killed");
  if (exit && !cursor.eat("-")) return;
  if (cursor.whole() == 9) add_fact(facts.killed, {window.seen, "signal 9"});
}

// Not the end of PyTorch's OutOfMemoryError.
void read_memory_error(Facts& facts, const Window& window) {
  if (!window.before.ends_with("OutOf")) add_fact(facts.host_errors, {window.seen, "MemoryError"});
}

// "Exit Code: 137" and its relatives.
void read_exit_code(Facts& facts, const Window& window) {
  read_signal_nine(facts, window);
  Cursor cursor(window.after);
  if (!cursor.find("137", 40)) return;
  const std::string_view rest = cursor.rest();
  if (!rest.empty() && (is_letter(rest[0]) || rest[0] == '.')) return;
  const char before = window.after[window.after.size() - rest.size() - 4];
  if (is_letter(before) || before == '.') return;
  add_fact(facts.killed, {window.seen, "exit code 137"});
}

Bytes numpy_width(const std::string& dtype) {
  constexpr std::array<std::pair<std::string_view, Bytes>, 8> kWidths = {{{"float64", 8},
                                                                          {"int64", 8},
                                                                          {"float32", 4},
                                                                          {"int32", 4},
                                                                          {"float16", 2},
                                                                          {"uint8", 1},
                                                                          {"int8", 1},
                                                                          {"bool", 1}}};
  for (const auto& [name, width] : kWidths)
    if (dtype == name) return width;
  return 0;
}

// "Unable to allocate 4.69 GiB for an array with shape (102400, 64, 64, 3) and data type float32"
void read_array(Facts& facts, const Window& window) {
  Cursor cursor(window.after);
  cursor.eat("unable to allocate");
  ArrayFailure failure;
  failure.seen = window.seen;
  failure.bytes = cursor.size();
  if (!cursor.find("array with shape", 32)) return;
  const auto dims = cursor.dims();
  if (!dims) return;
  failure.dims = *dims;
  if (cursor.eat("and data type")) failure.dtype = cursor.word("',\")");
  const Bytes width = numpy_width(failure.dtype);
  if (width > 0 && elements_of(failure.dims) <= INT64_MAX / width) failure.bytes = elements_of(failure.dims) * width;
  add_fact(facts.arrays, std::move(failure));
}

}  // namespace

void add_host_phrases(std::vector<Phrase>& phrases) {
  constexpr auto job = read_named<&Facts::jobs>;
  constexpr auto container = read_named<&Facts::containers>;
  constexpr auto host = read_named<&Facts::host_errors>;
  const Phrase ours[] = {
      {"oom-kill:constraint=", 500, read_constraint},
      {"killed process", 300, read_killed},
      {"memory: usage", 120, read_cgroup},
      {"limits:", 120, read_limits},
      {"total swap =", 60, read_swap},
      {"free swap =", 60, read_swap},
      {"uid tgid total_vm", 7000, read_tasks},
      {"oom-kill event", 160, job},
      {"oom_kill event", 160, job},
      {"exceeded job memory limit", 160, job},
      {"exceeded memory limit", 160, job},
      {"exceeded step memory limit", 160, job},
      {"out_of_memory+", 80, job},
      {"state: out_of_memory", 80, job},
      {"term_memlimit", 160, job},
      {"for exceeding memory limits", 200, job},
      {"running beyond physical memory limits", 200, job},
      {"oomkilled", 120, container},
      {"failed with result 'oom-kill'", 80, container},
      {"killed by the oom killer", 80, container},
      {"node running low on memory", 400, container},
      {"crashed after using all available ram", 80, container},
      {"exit code", 48, read_exit_code},
      {"exit status", 48, read_exit_code},
      {"exited with code", 48, read_exit_code},
      {"returncode", 48, read_exit_code},
      {"killed by signal", 48, read_signal_nine},
      {"sigkill", 40, read_translated},
      {"killed", 120, read_shell},
      {"已杀死", 40, read_translated},
      {"已終止", 40, read_translated},
      {"強制終了", 40, read_translated},
      {"getötet", 40, read_translated},
      {"убито", 40, read_translated},
      {"processus arrêté", 40, read_translated},
      {"terminado (killed)", 40, read_translated},
      {"unable to allocate", 320, read_array},
      {"std::bad_alloc", 60, host},
      {"memoryerror", 60, read_memory_error},
      {"cannot allocate memory", 60, host},
  };
  phrases.insert(phrases.end(), std::begin(ours), std::end(ours));
}

}  // namespace plimsoll::engine::explain
