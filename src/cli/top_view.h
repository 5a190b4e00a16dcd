// What `plimsoll top` shows, as data, as text of a given width, and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/machine.h"
#include "device/nvml.h"

namespace plimsoll::engine {

struct TopView {
  HostState host;
  std::vector<ProcessState> processes;  // of all, those with the most memory first
  std::vector<GpuState> gpus;
  std::vector<nlohmann::json> runs;  // what runs of Plimsoll say of themselves (cli/live_run.h)
};

TopView look_around(const Nvml* nvml, const std::string& root);

struct TopStyle {
  size_t columns = 80, rows = 24;
  bool color = false;
};
std::string top_text(const TopView& view, const TopStyle& style);
nlohmann::ordered_json top_json(const TopView& view);  // schema plimsoll.top/1

}  // namespace plimsoll::engine
