#include "backends/cpu/machine.h"

#include <dnnl.h>
#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "backends/cpu/simd/simd.h"

namespace plimsoll::cpu {

namespace {

constexpr double kCyclesPerSecond = 4.2e9;    // convolutions reach 0.97 of the peak this gives on the cores measured
constexpr double kThreadBandwidth = 16.0e9;   // measured: one core streams 18 to 21 GB/s, two 33
constexpr double kSocketBandwidth = 120.0e9;  // where more threads stop helping
constexpr double kLaunchSeconds = 4.0e-6;     // an OpenMP region, or one oneDNN call

std::optional<Bytes> read_bytes(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word) || word == "max") return std::nullopt;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(word.c_str(), &end, 10);
  // cgroup v1 writes "no limit" as the largest multiple of a page.
  if (end == word.c_str() || value >= (1ULL << 60)) return std::nullopt;
  return static_cast<Bytes>(value);
}

// Where one version of the memory controller keeps its numbers.
struct MemoryController {
  std::string root;
  std::vector<std::string> limits;  // the least of them counts
  std::string usage;
  std::string active_cache, inactive_cache;  // keys of memory.stat
};

const MemoryController& version_1() {
  static const MemoryController controller{"/sys/fs/cgroup/memory",
                                           {"memory.limit_in_bytes"},
                                           "memory.usage_in_bytes",
                                           "total_active_file",
                                           "total_inactive_file"};
  return controller;
}

// Above memory.high nothing is killed, but the kernel slows a process down until it gives memory back, and ours never
// does.
const MemoryController& version_2() {
  static const MemoryController controller{
      "/sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", "active_file", "inactive_file"};
  return controller;
}

// Page cache counts as usage but is given back under pressure, that of files read twice (active) too; MemAvailable
// counts both as free.
Bytes page_cache(const std::string& folder, const MemoryController& controller) {
  std::ifstream stat(folder + "memory.stat");
  std::string key;
  Bytes value = 0, cache = 0;
  while (stat >> key >> value) {
    if (key == controller.active_cache || key == controller.inactive_cache) cache += value;
  }
  return cache;
}

// What a control group still allows: the least of limit - usage over the group and its ancestors.
Bytes room_in(const MemoryController& controller, std::string group) {
  Bytes room = std::numeric_limits<Bytes>::max();
  for (;;) {
    const std::string folder = controller.root + (group == "/" ? "" : group) + "/";
    for (const std::string& limit : controller.limits) {
      const auto most = read_bytes(folder + limit);
      if (!most) continue;
      const Bytes used = read_bytes(folder + controller.usage).value_or(0);
      const Bytes held = used - std::min(used, page_cache(folder, controller));
      room = std::min(room, std::max<Bytes>(0, *most - held));
    }
    const size_t slash = group.rfind('/');
    if (group.empty() || group == "/" || slash == std::string::npos) return room;
    group.erase(std::max<size_t>(slash, 1));
  }
}

Bytes cgroup_room() {
  Bytes room = std::numeric_limits<Bytes>::max();
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    const MemoryController& controller = unified ? version_2() : version_1();
    // In a container the group's path may be the host's; its own limits then lie at the root.
    room = std::min({room, room_in(controller, group), room_in(controller, "/")});
  }
  return room;
}

Bytes meminfo(const char* key) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    Bytes kib = 0;
    if (word == key && file >> kib) return kib * kKiB;
  }
  return 0;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) == 0) {
      const size_t colon = line.find(':');
      return colon == std::string::npos ? line : line.substr(std::min(line.size(), colon + 2));
    }
  }
  return "CPU";
}

}  // namespace

double Machine::seconds(double flops, double efficiency, double bytes) const {
  return kLaunchSeconds + std::max(flops / (peak_flops * efficiency), bytes / bytes_per_second);
}

Machine make_machine(int threads) {
  Machine machine;
  machine.threads = std::max(1, threads);
  // Dead primitives would keep 38 to 58 KiB each.
  dnnl::set_primitive_cache_capacity(0);
  machine.engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
  machine.stream = dnnl::stream(machine.engine);
  // AVX2 cores have two 8-wide units, the AVX-512 ones met so far one 16-wide unit or its equal.
  const double flops_per_cycle = std::string(simd().name) == "baseline" ? 8 : 32;
  machine.peak_flops = kCyclesPerSecond * flops_per_cycle * machine.threads;
  machine.bytes_per_second = std::min(kSocketBandwidth, kThreadBandwidth * machine.threads);
  return machine;
}

DeviceInfo describe(const Machine& machine) {
  DeviceInfo info;
  info.name = fmt::format("{}, {} thread{}", processor_name(), machine.threads, machine.threads == 1 ? "" : "s");
  info.kind = "cpu";
  info.memory_bytes = meminfo("MemTotal:");
  info.free_bytes = std::min(meminfo("MemAvailable:"), cgroup_room());
  info.threads = machine.threads;
  const dnnl_version_t* version = dnnl_version();
  info.library = fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  return info;
}

void use_threads(const Machine& machine) {
  if (omp_get_max_threads() != machine.threads) omp_set_num_threads(machine.threads);
}

}  // namespace plimsoll::cpu
