// Who holds the host's memory: the machine, the cgroup of this process, and every process, as /proc and /sys say it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::engine {

struct CgroupMemory {
  int version = 0;  // 1 or 2
  std::string path;
  std::optional<Bytes> limit;  // the smallest of the group and its ancestors; none: unlimited
  std::optional<Bytes> used, peak;
  int64_t kills = 0;  // by the out-of-memory killer
};

struct HostState {
  Bytes memory = 0, available = 0, swap = 0, swap_free = 0;
  double load = 0;  // mean number of runnable processes of the last minute
  int processors = 0;
  std::optional<CgroupMemory> cgroup;
};

struct ProcessState {
  int pid = 0, parent = 0;
  std::string command;    // with its arguments, or the name in brackets
  std::string container;  // the short id of a container, or ""
  Bytes resident = 0, peak_resident = 0, swapped = 0, shared = 0;
  Bytes managed = 0;  // CUDA's managed memory, which the driver moves between card and host (only with `with_managed`)
};

// `root`: the folder below which proc and sys lie; "" for this machine.
HostState read_host(const std::string& root = "");
std::optional<ProcessState> read_process(int pid, const std::string& root = "");
// `with_managed`: reads the mappings of each process as well.
std::vector<ProcessState> read_processes(const std::string& root = "", bool with_managed = false);

}  // namespace plimsoll::engine
