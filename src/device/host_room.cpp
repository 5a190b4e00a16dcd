#include "device/host_room.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::engine {
namespace {

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

// The files of one version of the cgroup memory controller.
struct MemoryController {
  std::string root;
  std::vector<std::string> limits;  // the smallest of them applies
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

// Above memory.high the kernel does not kill a process, but slows it down until it releases memory. Plimsoll never
// releases memory during a run, so memory.high counts as a limit.
const MemoryController& version_2() {
  static const MemoryController controller{
      "/sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", "active_file", "inactive_file"};
  return controller;
}

// The page cache counts as usage, but the kernel releases it under pressure, including the active part (files read
// twice). MemAvailable counts both parts as free.
Bytes page_cache(const std::string& folder, const MemoryController& controller) {
  std::ifstream stat(folder + "memory.stat");
  std::string key;
  Bytes value = 0, cache = 0;
  while (stat >> key >> value) {
    if (key == controller.active_cache || key == controller.inactive_cache) cache += value;
  }
  return cache;
}

// Returns the bytes that a cgroup still allows: the smallest limit - usage of the group and its ancestors.
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
    // In a container the path of the group may be the host's path. The container's own limits are then at the root.
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

}  // namespace

Bytes host_memory_bytes() {
  return meminfo("MemTotal:");
}

Bytes available_host_bytes() {
  return meminfo("MemAvailable:");
}

Bytes free_host_bytes() {
  return std::min(available_host_bytes(), cgroup_room());
}

}  // namespace plimsoll::engine
