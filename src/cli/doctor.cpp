#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <fstream>

#include "backends/cuda/cuda.h"
#include "base/json.h"
#include "cli/command.h"

namespace plimsoll {
namespace {

struct DoctorFlags : CommonFlags {};

Bytes meminfo_bytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  Bytes kibibytes = 0;
  while (file >> word)
    if (word == key && file >> kibibytes) return kibibytes * kKiB;
  return 0;
}

void print_gpus() {
#ifdef PLIMSOLL_HAS_CUDA
  if (const auto gpus = gpu_reports()) {
    for (const GpuReport& gpu : *gpus) {
      fmt::print("GPU       {} (gpu:{}, compute capability {}.{}), {} free of {}\n", gpu.card.name, gpu.ordinal,
                 gpu.card.capability / 10, gpu.card.capability % 10, format_bytes(gpu.card.free_bytes),
                 format_bytes(gpu.card.memory_bytes));
      for (const std::string& holder : gpu.holders) fmt::print("          held by {}\n", holder);
    }
    for (const std::string& missing : missing_gpu_libraries()) fmt::print("          missing: {}\n", missing);
  } else {
    fmt::print("GPU       none: {}\n", gpus.error().facts.empty() ? gpus.error().what : gpus.error().facts[0]);
  }
#else
  fmt::print("GPU       not in this build\n");
#endif
  std::string profiles;
  for (const cuda::Card& card : cuda::card_profiles()) profiles += (profiles.empty() ? "" : ", ") + card.profile;
  fmt::print("profiles  cards to plan for: {}\n", profiles);
}

Result<int> doctor(DoctorFlags& flags) {
  flags.job.device = "cpu";
  auto host = open_backend(flags.job);
  if (!host) {  // a build without a CPU backend still has the reference
    flags.job.device = "reference";
    host = open_backend(flags.job);
  }
  PLIMSOLL_ASSIGN(const auto backend, std::move(host));
  const DeviceInfo& device = backend->device().info();
  utsname system{};
  uname(&system);
  struct statvfs disk {};
  const bool disk_known = statvfs(".", &disk) == 0;
  const Bytes disk_free = disk_known ? static_cast<Bytes>(disk.f_bavail) * static_cast<Bytes>(disk.f_frsize) : 0;
  // Less than the machine has to give: the rest is behind a limit of this process's cgroups.
  const bool limited = device.free_bytes < meminfo_bytes("MemAvailable:") / 10 * 9;
  const Budget budget = choose_budget(flags.job, device);
  if (flags.json) {
    fmt::print("{}\n", ordered_object({{"version", "0.1.0"},
                                       {"system", std::string(system.sysname) + " " + system.release},
                                       {"device", ordered_object({{"name", device.name},
                                                                  {"kind", device.kind},
                                                                  {"threads", device.threads},
                                                                  {"memory_bytes", device.memory_bytes},
                                                                  {"free_bytes", device.free_bytes}})},
                                       {"limited_by_cgroup", limited},
                                       {"default_budget_bytes", budget.bytes},
                                       {"libraries", {device.library}},
                                       {"disk_free_bytes", disk_free}})
                           .dump(2));
    return 0;
  }
  fmt::print("plimsoll 0.1.0 on {} {}\n\n", system.sysname, system.release);
  fmt::print("device    {} ({})\n", device.name, device.kind);
  fmt::print("memory    {} free of {}{}\n", format_bytes(device.free_bytes), format_bytes(device.memory_bytes),
             limited ? ", limited by a cgroup" : "");
  fmt::print("budget    {} by default (--budget says otherwise)\n", format_bytes(budget.bytes));
  fmt::print("disk      {} free in this folder\n", format_bytes(disk_free));
  fmt::print("kernels   {}\n", device.library);
  print_gpus();
  return 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* command = app.add_subcommand("doctor", "what this machine has, and what is missing");
  command->add_option("--threads", flags->job.threads, "compute threads (default: all cores)")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", flags->json, "as JSON");
  command->footer("Example: plimsoll doctor");
  actions[command] = [flags] { return doctor(*flags); };
}

}  // namespace plimsoll
