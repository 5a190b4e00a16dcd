#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include "backends/cuda/card.h"
#include "backends/registry.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/calibrate.h"
#include "cli/command.h"
#include "device/host_room.h"
#include "formats/file/cache.h"
#include "plimsoll/version.h"

namespace plimsoll::engine {
namespace {

struct DoctorFlags : CommonFlags {
  bool calibrate = false;
};

// Prints what is missing, the facts, and the remedies that apply to the machine. Remedies that are flags are left out.
void print_missing(const std::string& heading, const Error& error) {
  answer(fmt::format("{}{}\n", heading, error.what));
  for (const std::string& fact : error.facts) answer(fmt::format("            {}\n", fact));
  for (const std::string& remedy : error.remedies)
    if (!remedy.starts_with("--")) answer(fmt::format("            try: {}\n", remedy));
}

void print_gpus() {
  const BackendEntry& entry = backend_named("gpu");
  const BackendDescription gpus = entry.describe();
  if (!entry.built) answer("GPU       not in this build\n");
  for (const DeviceDescription& gpu : gpus.devices) {
    answer(fmt::format("GPU       {} ({}, compute capability {}), {} free of {}, link to the host {:.0f} GB/s\n",
                       gpu.name, gpu.device, gpu.compute_capability, format_bytes(gpu.free_bytes),
                       format_bytes(gpu.memory_bytes), gpu.host_bytes_per_second * 1e-9));
    for (const std::string& holder : gpu.holders) answer(fmt::format("          held by {}\n", holder));
  }
  for (size_t i = 0; i < gpus.missing.size(); ++i)
    print_missing(i == 0 && gpus.devices.empty() ? "GPU       none: " : "          missing: ", gpus.missing[i]);
  std::string profiles;
  for (const cuda::Card& card : cuda::card_profiles()) profiles += (profiles.empty() ? "" : ", ") + card.profile;
  answer(fmt::format("profiles  cards to plan for: {}, or a file: --device CARD.json\n", profiles));
}

// Adds the contents of print_gpus() as JSON: {"gpus": [...], "missing": [...], "profiles": [...]}.
void add_gpus(nlohmann::ordered_json& json) {
  for (const char* key : {"gpus", "missing", "profiles"}) json[key] = nlohmann::ordered_json::array();
  for (const cuda::Card& card : cuda::card_profiles()) json["profiles"].push_back(card.profile);
  const BackendDescription gpus = backend_named("gpu").describe();
  for (const DeviceDescription& gpu : gpus.devices)
    json["gpus"].push_back(ordered_object({{"name", gpu.name},
                                           {"device", gpu.device},
                                           {"compute_capability", gpu.compute_capability},
                                           {"memory_bytes", gpu.memory_bytes},
                                           {"free_bytes", gpu.free_bytes},
                                           {"host_bytes_per_second", gpu.host_bytes_per_second},
                                           {"held_by", gpu.holders}}));
  for (const Error& missing : gpus.missing) json["missing"].push_back(error_json(missing)["error"]);
}

Result<int> doctor(DoctorFlags& flags) {
  if (flags.calibrate) {
    PLIMSOLL_TRY(flags.resolve(Mode::kTrain));
    return calibrate(flags);
  }
  if (!flags.options.model.empty())
    return fail(Error{ErrorCode::kUsage,
                      "doctor takes a MODEL only with --calibrate",
                      {},
                      {fmt::format("plimsoll doctor --calibrate {}   times its kernels", flags.options.model),
                       fmt::format("plimsoll plan {}", flags.options.model)}});
  flags.options.device = "cpu";
  auto host = open_backend(flags.options);
  if (!host) {  // a build without a CPU backend still has the reference
    flags.options.device = "reference";
    host = open_backend(flags.options);
  }
  PLIMSOLL_ASSIGN(const auto backend, std::move(host));
  const DeviceInfo& device = backend->device().info();
  utsname system{};
  uname(&system);
  struct statvfs disk {};
  const bool disk_known = statvfs(".", &disk) == 0;
  const Bytes disk_free = disk_known ? static_cast<Bytes>(disk.f_bavail) * static_cast<Bytes>(disk.f_frsize) : 0;
  // If the device has less free memory than the machine has available, a cgroup of this process limits it.
  const bool limited = device.free_bytes < available_host_bytes() / 10 * 9;
  const Budget budget = choose_budget(flags.options, device);
  if (flags.json) {
    nlohmann::ordered_json json = ordered_object({{"version", PLIMSOLL_VERSION},
                                                  {"system", std::string(system.sysname) + " " + system.release},
                                                  {"device", ordered_object({{"name", device.name},
                                                                             {"kind", device.kind},
                                                                             {"threads", device.threads},
                                                                             {"memory_bytes", device.memory_bytes},
                                                                             {"free_bytes", device.free_bytes}})},
                                                  {"limited_by_cgroup", limited},
                                                  {"default_budget_bytes", budget.bytes},
                                                  {"libraries", {device.library}},
                                                  {"disk_free_bytes", disk_free}});
    const auto cache = cache_folder();
    json["cache"] = cache ? nlohmann::ordered_json(*cache) : nlohmann::ordered_json();  // null: not used
    add_gpus(json);
    if (!cache) json["missing"].push_back(error_json(cache.error())["error"]);
    answer(json_text(json) + "\n");
    return 0;
  }
  answer(fmt::format("plimsoll {} on {} {}\n\n", PLIMSOLL_VERSION, system.sysname, system.release));
  answer(fmt::format("device    {} ({})\n", device.name, device.kind));
  answer(fmt::format("memory    {} free of {}{}\n", format_bytes(device.free_bytes), format_bytes(device.memory_bytes),
                     limited ? ", limited by a cgroup" : ""));
  answer(fmt::format("budget    {} by default (--budget changes it)\n", format_bytes(budget.bytes)));
  answer(fmt::format("disk      {} free in this folder\n", format_bytes(disk_free)));
  answer(fmt::format("kernels   {}\n", device.library));
  const auto cache = cache_folder();
  answer(fmt::format("cache     {}\n", cache ? *cache : fmt::format("none: {}", cache.error().what)));
  print_gpus();
  return 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, std::map<CLI::App*, Action>& actions) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* command = app.add_subcommand("doctor", "show what this machine has, and what is missing");
  command->add_flag("--calibrate", flags->calibrate,
                    "time the kernels of MODEL's plan (without MODEL: those of the built-in models) for the other "
                    "flags, and write them to the file of --calibration; plan and fit then predict times from it");
  command->add_option("MODEL", flags->options.model, std::string("with --calibrate: ") + kModelHelp);
  add_model_flags(*command, *flags);
  add_training_flags(*command, *flags);
  command->footer("Example: plimsoll doctor\n         plimsoll doctor --calibrate model.keras --batch-size 128");
  actions[command] = [flags] { return doctor(*flags); };
}

}  // namespace plimsoll::engine
