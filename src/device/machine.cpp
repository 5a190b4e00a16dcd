#include "device/machine.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <sstream>

namespace plimsoll::engine {
namespace {

constexpr size_t kMostText = size_t{1} << 20;

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::string block(4096, '\0');
  while (file && text.size() < kMostText) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block.data(), static_cast<size_t>(file.gcount()));
  }
  return text;
}

// The number behind `key` in a file of lines such as "VmRSS:   1234 kB" or "oom_kill 3".
std::optional<int64_t> number_behind(const std::string& text, const std::string& key) {
  size_t at = text.starts_with(key) ? 0 : text.find("\n" + key);
  if (at == std::string::npos) return std::nullopt;
  at = text.find_first_of("0123456789", text.find(key, at) + key.size());
  int64_t value = 0;
  if (at == std::string::npos) return std::nullopt;
  const auto read = std::from_chars(text.data() + at, text.data() + text.size(), value);
  return read.ec == std::errc{} ? std::optional(value) : std::nullopt;
}

Bytes kib_behind(const std::string& text, const std::string& key) {
  const int64_t kib = number_behind(text, key).value_or(0);
  return kib > INT64_MAX / kKiB ? 0 : kib * kKiB;
}

std::optional<Bytes> bytes_in(const std::string& path) {
  const std::string text = read_text(path);
  Bytes value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  // cgroup v1 writes "no limit" as the largest multiple of a page, v2 as "max".
  return read.ec == std::errc{} && value < (Bytes{1} << 60) ? std::optional(value) : std::nullopt;
}

std::optional<CgroupMemory> read_cgroup(const std::string& root) {
  std::istringstream groups(read_text(root + "/proc/self/cgroup"));
  std::optional<CgroupMemory> found;
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",memory,") == std::string::npos) continue;
    if (found && found->used) continue;
    CgroupMemory group;
    group.version = unified ? 2 : 1;
    group.path = line.substr(second + 1);
    const std::string base = root + (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    const char* const limit = unified ? "/memory.max" : "/memory.limit_in_bytes";
    const char* const used = unified ? "/memory.current" : "/memory.usage_in_bytes";
    const char* const peak = unified ? "/memory.peak" : "/memory.max_usage_in_bytes";
    // In a container the path may be the host's. The container's own group is then at the root.
    std::string folder = group.path == "/" ? "" : group.path;
    if (!bytes_in(base + folder + used)) folder.clear();
    group.used = bytes_in(base + folder + used);
    group.peak = bytes_in(base + folder + peak);
    const std::string events = read_text(base + folder + (unified ? "/memory.events" : "/memory.oom_control"));
    group.kills = number_behind(events, "oom_kill ").value_or(0);
    for (;; folder.erase(folder.rfind('/'))) {
      if (const auto most = bytes_in(base + folder + limit); most && (!group.limit || *most < *group.limit))
        group.limit = most;
      if (folder.rfind('/') == std::string::npos) break;
    }
    found = group;
  }
  return found && found->used ? found : std::nullopt;
}

// "/docker/0123456789ab...", "docker-0123456789ab....scope", "cri-containerd-....scope"
std::string container_of(const std::string& groups) {
  size_t run = 0;
  for (size_t at = 0; at <= groups.size(); ++at) {
    const bool hexadecimal = at < groups.size() && std::isxdigit(static_cast<unsigned char>(groups[at])) != 0;
    if (hexadecimal) {
      ++run;
      continue;
    }
    if (run == 64) return groups.substr(at - 64, 12);
    run = 0;
  }
  return "";
}

// The bytes of managed memory of a process: the driver maps each allocation of it from /dev/nvidia-uvm (seen with
// driver 580). Other allocations on a card appear nowhere in the mappings.
Bytes managed_memory(const std::string& maps) {
  Bytes sum = 0;
  for (size_t at = 0; at < maps.size();) {
    const size_t end = std::min(maps.find('\n', at), maps.size());
    const std::string_view line = std::string_view(maps).substr(at, end - at);
    at = end + 1;
    if (!line.ends_with("/dev/nvidia-uvm")) continue;
    uint64_t from = 0, to = 0;
    const char* const last = line.data() + line.size();
    const auto first = std::from_chars(line.data(), last, from, 16);
    if (first.ec != std::errc{} || first.ptr == last || *first.ptr != '-') continue;
    const auto second = std::from_chars(first.ptr + 1, last, to, 16);
    constexpr uint64_t kAddresses = uint64_t{1} << 57;
    if (second.ec != std::errc{} || to <= from || to > kAddresses) continue;
    sum = std::min(sum + static_cast<Bytes>(to - from), static_cast<Bytes>(kAddresses));
  }
  // The driver's own part.
  constexpr Bytes kOwn = 16 * kMiB;
  return sum > kOwn ? sum : 0;
}

}  // namespace

HostState read_host(const std::string& root) {
  const std::string info = read_text(root + "/proc/meminfo");
  HostState host;
  host.memory = kib_behind(info, "MemTotal:");
  host.available = kib_behind(info, "MemAvailable:");
  host.swap = kib_behind(info, "SwapTotal:");
  host.swap_free = kib_behind(info, "SwapFree:");
  const std::string load = read_text(root + "/proc/loadavg");
  std::from_chars(load.data(), load.data() + load.size(), host.load);
  host.processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  host.cgroup = read_cgroup(root);
  return host;
}

std::optional<ProcessState> read_process(int pid, const std::string& root) {
  const std::string folder = root + "/proc/" + std::to_string(pid);
  const std::string status = read_text(folder + "/status");
  if (status.empty()) return std::nullopt;
  ProcessState process;
  process.pid = pid;
  process.parent = static_cast<int>(number_behind(status, "PPid:").value_or(0));
  process.resident = kib_behind(status, "VmRSS:");
  process.peak_resident = kib_behind(status, "VmHWM:");
  process.swapped = kib_behind(status, "VmSwap:");
  process.shared = kib_behind(status, "RssFile:") + kib_behind(status, "RssShmem:");
  process.command = read_text(folder + "/cmdline");
  while (!process.command.empty() && process.command.back() == '\0') process.command.pop_back();
  std::replace(process.command.begin(), process.command.end(), '\0', ' ');
  if (process.command.empty() && status.starts_with("Name:")) {
    const size_t from = status.find_first_not_of(" \t", 5);
    if (from != std::string::npos) process.command = "[" + status.substr(from, status.find('\n', from) - from) + "]";
  }
  process.container = container_of(read_text(folder + "/cgroup"));
  return process;
}

std::vector<ProcessState> read_processes(const std::string& root, bool with_managed) {
  std::vector<ProcessState> processes;
  const std::string folder = root + "/proc";
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (!open) return processes;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view name = entry->d_name;
    int pid = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (read.ec != std::errc{} || read.ptr != name.data() + name.size()) continue;
    auto process = read_process(pid, root);
    if (!process) continue;
    if (with_managed) process->managed = managed_memory(read_text(folder + "/" + std::string(name) + "/maps"));
    processes.push_back(std::move(*process));
  }
  return processes;
}

}  // namespace plimsoll::engine
