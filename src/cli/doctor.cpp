#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include "cli/command.h"
#include "execute/memory.h"
#ifdef PLIMSOLL_HAS_CPU
#include <dnnl_version.h>
#endif

namespace plimsoll {
namespace {

struct DoctorFlags : CommonFlags {};

std::string first_line_with(const char* path, const std::string& key) {
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return "";
  char line[512];
  std::string found;
  while (found.empty() && std::fgets(line, sizeof line, file) != nullptr)
    if (std::string(line).rfind(key, 0) == 0) found = line;
  std::fclose(file);
  while (!found.empty() && (found.back() == '\n' || found.back() == ' ')) found.pop_back();
  return found;
}

Result<int> doctor(DoctorFlags& flags) {
  PLIMSOLL_ASSIGN(const auto backend, open_backend(flags.job));
  const DeviceInfo& device = backend->device().info();
  utsname system{};
  uname(&system);
  struct statvfs disk {};
  const bool disk_known = statvfs(".", &disk) == 0;
  const Bytes disk_free = disk_known ? static_cast<Bytes>(disk.f_bavail) * static_cast<Bytes>(disk.f_frsize) : 0;
  const bool limited = device.memory_bytes < std::stoll("0" + first_line_with("/proc/meminfo", "MemTotal:").substr(9 + 7)) * kKiB;
#ifdef PLIMSOLL_HAS_CPU
  const std::string onednn = fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
#else
  const std::string onednn = "missing: no CPU backend";
#endif
  const Budget budget = choose_budget(flags.job, device);
  if (flags.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"version", "0.1.0"},
                                              {"system", std::string(system.sysname) + " " + system.release},
                                              {"device", {{"name", device.name}, {"kind", device.kind}, {"threads", device.threads}, {"memory_bytes", device.memory_bytes}, {"free_bytes", device.free_bytes}}},
                                              {"limited_by_cgroup", limited},
                                              {"default_budget_bytes", budget.bytes},
                                              {"libraries", {{"oneDNN", onednn}, {"CUDA", nullptr}}},
                                              {"disk_free_bytes", disk_free}}
                           .dump(2));
    return 0;
  }
  fmt::print("plimsoll 0.1.0 on {} {}\n\n", system.sysname, system.release);
  fmt::print("device    {} ({}), {} threads\n", device.name, device.kind, device.threads);
  fmt::print("memory    {} free of {}{}\n", format_bytes(device.free_bytes), format_bytes(device.memory_bytes), limited ? ", limited by a cgroup" : "");
  fmt::print("budget    {} by default (--budget says otherwise)\n", format_bytes(budget.bytes));
  fmt::print("disk      {} free in this folder\n", format_bytes(disk_free));
  fmt::print("oneDNN    {}\n", onednn);
  fmt::print("CUDA      not in this build\n");
  return 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* command = app.add_subcommand("doctor", "what this machine has, and what is missing");
  command->add_option("--threads", flags->job.threads, "compute threads (default: all cores)");
  command->add_flag("--json", flags->json, "as JSON");
  command->footer("Example: plimsoll doctor");
  actions[command] = [flags] { return doctor(*flags); };
}

}  // namespace plimsoll
