#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/json_numbers.h"
#include "base/printable.h"
#include "cli/live_run.h"
#include "formats/file/file.h"
#include "formats/json/parse.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kMostStatus = 64 * kKiB;
constexpr size_t kBarWidth = 20;

// What other programs of this user wrote: any of it may be damaged or old.
std::vector<nlohmann::json> read_runs(const std::vector<ProcessState>& processes) {
  std::vector<nlohmann::json> runs;
  const auto folder = runs_folder(false);
  if (!folder) return runs;
  for (const ProcessState& process : processes) {
    const auto file = File::open_read(fmt::format("{}/{}.json", *folder, process.pid));
    if (!file || file->size() > kMostStatus) continue;
    std::string text(static_cast<size_t>(file->size()), '\0');
    if (!file->pread_exact(0, std::as_writable_bytes(std::span(text)))) continue;
    auto json = parse_json(text, file->path(), ErrorCode::kFileUnreadable);
    if (json && json->is_object() && json->value("schema", nlohmann::json()) == "plimsoll.run/1")
      runs.push_back(std::move(*json));
  }
  return runs;
}

std::string cut(std::string text, size_t columns) {
  text = printable(text);
  if (text.size() <= columns) return text;
  while (columns > 0 && (static_cast<unsigned char>(text[columns]) & 0xC0) == 0x80) --columns;
  return text.substr(0, columns);
}

std::string bar(Bytes used, Bytes of, const TopStyle& style) {
  const double part = of > 0 ? std::clamp(static_cast<double>(used) / static_cast<double>(of), 0.0, 1.0) : 0;
  const auto full = static_cast<size_t>(std::lround(part * kBarWidth));
  const char* const begin = !style.color ? "" : part > 0.9 ? "\x1b[31m" : part > 0.7 ? "\x1b[33m" : "\x1b[32m";
  return fmt::format("[{}{}{}{}]", begin, std::string(full, '|'), style.color ? "\x1b[0m" : "",
                     std::string(kBarWidth - full, ' '));
}

std::string heading(const std::string& text, const TopStyle& style) {
  return (style.color ? "\x1b[1m" : "") + cut(text, style.columns) + (style.color ? "\x1b[0m" : "") + "\n";
}

// A line with a bar: only what follows the bar may need cutting.
std::string bar_line(const std::string& name, Bytes used, Bytes of, const std::string& rest, const TopStyle& style) {
  const size_t taken = 8 + kBarWidth + 2 + 1;
  return fmt::format("{:<8}{} {}\n", name, bar(used, of, style),
                     cut(rest, style.columns > taken ? style.columns - taken : 0));
}

std::string host_text(const TopView& view, const TopStyle& style) {
  const HostState& host = view.host;
  const Bytes used = host.memory - std::min(host.memory, host.available);
  std::string text = bar_line("host", used, host.memory,
                              fmt::format("{} of {}, load {:.1f} on {} processors", format_bytes(used),
                                          format_bytes(host.memory), host.load, host.processors),
                              style);
  if (host.swap > 0)
    text += bar_line("swap", host.swap - host.swap_free, host.swap,
                     fmt::format("{} of {}{}", format_bytes(host.swap - host.swap_free), format_bytes(host.swap),
                                 host.swap_free < host.swap / 10 ? ": almost full, programs wait for the disk" : ""),
                     style);
  if (const auto& group = host.cgroup) {
    const Bytes held = group->used.value_or(0);
    text +=
        bar_line("cgroup", held, group->limit.value_or(host.memory),
                 fmt::format("{} of {}{}", format_bytes(held), group->limit ? format_bytes(*group->limit) : "no limit",
                             group->kills > 0 ? fmt::format(", {} killed at the limit", group->kills) : ""),
                 style);
  }
  return text;
}

Bytes on_gpus(const TopView& view, int pid) {
  Bytes held = 0;
  for (const GpuState& gpu : view.gpus)
    for (const GpuProcess& process : gpu.processes)
      if (process.pid == pid) held += process.held.value_or(0);
  return held;
}

// The memory of the GPUs that a process uses, without what others hold there.
Bytes room_on_gpus(const TopView& view, int pid) {
  Bytes room = 0;
  for (const GpuState& gpu : view.gpus) {
    Bytes others = 0;
    bool uses = false;
    for (const GpuProcess& process : gpu.processes)
      if (process.pid == pid)
        uses = true;
      else
        others += process.held.value_or(0);
    if (uses) room += std::max<Bytes>(gpu.memory - others, 0);
  }
  return room;
}

// Managed memory that does not fit on the process's GPUs beside the rest: the driver moves its pages over the bus, and
// nothing fails.
bool moves_pages(const TopView& view, const ProcessState& process) {
  return process.managed > 0 && process.managed > room_on_gpus(view, process.pid) - on_gpus(view, process.pid);
}

std::string managed_text(const TopView& view, const GpuState& gpu, const TopStyle& style) {
  std::string text;
  for (const ProcessState& process : view.processes) {
    const bool here = std::any_of(gpu.processes.begin(), gpu.processes.end(),
                                  [&](const GpuProcess& one) { return one.pid == process.pid; });
    if (!here || process.managed == 0) continue;
    text += cut(fmt::format("        process {}: {} of managed memory{}", process.pid, format_bytes(process.managed),
                            moves_pages(view, process) ? " do not fit: pages move" : ""),
                style.columns) +
            "\n";
  }
  return text;
}

std::string gpus_text(const TopView& view, const TopStyle& style) {
  std::string text;
  for (const GpuState& gpu : view.gpus) {
    std::string rest = fmt::format("{} of {}", format_bytes(gpu.used), format_bytes(gpu.memory));
    if (gpu.utilization) rest += fmt::format(", {} %", *gpu.utilization);
    if (gpu.watts) rest += fmt::format(", {:.0f} W", *gpu.watts);
    text += bar_line(fmt::format("gpu {}", gpu.index), gpu.used, gpu.memory, rest + ", " + gpu.name, style);
    text += managed_text(view, gpu, style);
    const Bytes others = gpu.held_by_others();
    if (others > 0 && !gpu.processes.empty())
      text += cut(fmt::format("        {} of it by the driver and by processes that are hidden from here",
                              format_bytes(others)),
                  style.columns) +
              "\n";
  }
  return text;
}

double number(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

std::string duration(double seconds) {
  if (!(seconds > 0) || seconds > 1e8) return "-";
  const auto whole = static_cast<int64_t>(seconds);
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return whole >= 60 ? fmt::format("{}m{:02}s", whole / 60, whole % 60) : fmt::format("{}s", whole);
}

Bytes byte_number(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? 0 : whole_number(*found, 0).value_or(0);
}

std::string plan_words(const nlohmann::json& run) {
  const auto plan = run.find("plan");
  if (plan == run.end() || !plan->is_object()) return "";
  std::string words;
  if (const auto batch = plan->find("batch"); batch != plan->end() && batch->is_object())
    words = fmt::format("batch {:.0f} in pieces of {:.0f}", number(*batch, "effective"), number(*batch, "micro"));
  const auto levers = plan->find("levers");
  for (size_t i = 0; levers != plan->end() && levers->is_array() && i < levers->size() && i < 8; ++i) {
    const nlohmann::json& lever = (*levers)[i];
    if (lever.is_object() && lever.contains("name") && lever["name"].is_string())
      words += ", " + lever["name"].get<std::string>();
  }
  return words;
}

std::string runs_text(const TopView& view, const TopStyle& style) {
  if (view.runs.empty()) return "";
  std::string text = "\n" + heading("runs of Plimsoll", style);
  for (const nlohmann::json& run : view.runs) {
    const auto name = run.find("model");
    text +=
        cut(fmt::format("  {:>7.0f} {}  {} of {}  epoch {:.0f}/{:.0f}  step {:.0f}  {:.0f} samples/s  {} left",
                        number(run, "pid"), name != run.end() && name->is_string() ? name->get<std::string>() : "?",
                        format_bytes(byte_number(run, "held_bytes")), format_bytes(byte_number(run, "budget_bytes")),
                        number(run, "epoch"), number(run, "epochs"), number(run, "step"),
                        number(run, "samples_per_second"), duration(number(run, "seconds_left"))),
            style.columns) +
        "\n";
    std::string more = plan_words(run);
    if (const Bytes swapped = byte_number(run, "swapped_bytes"); swapped > 4 * kMiB)
      more += fmt::format("{}{} swapped out", more.empty() ? "" : ", ", format_bytes(swapped));
    if (!more.empty()) text += cut("          " + more, style.columns) + "\n";
  }
  return text;
}

std::string processes_text(const TopView& view, const TopStyle& style, size_t most) {
  const bool gpus = !view.gpus.empty();
  std::string text = "\n" + heading(fmt::format("  {:>7} {:>9} {:>9} {}{}", "pid", "memory", "swapped",
                                                gpus ? fmt::format("{:>9} ", "gpu") : "", "command"),
                                    style);
  for (size_t i = 0; i < view.processes.size() && i < most; ++i) {
    const ProcessState& one = view.processes[i];
    const Bytes gpu = on_gpus(view, one.pid);
    text += cut(fmt::format("  {:>7} {:>9} {:>9} {}{}{}", one.pid, format_bytes(one.resident),
                            one.swapped > 0 ? format_bytes(one.swapped) : "-",
                            gpus ? fmt::format("{:>9} ", gpu > 0 ? format_bytes(gpu) : "-") : "",
                            one.container.empty() ? "" : one.container + " ", one.command),
                style.columns) +
            "\n";
  }
  return text;
}

template <typename Value>
void add_if(nlohmann::ordered_json& json, const char* key, const std::optional<Value>& value) {
  if (value) json[key] = *value;
}

}  // namespace

TopView look_around(const Nvml* nvml, const std::string& root) {
  TopView view;
  view.host = read_host(root);
  if (nvml != nullptr) view.gpus = nvml->read();
  view.processes = read_processes(root, !view.gpus.empty());
  view.runs = read_runs(view.processes);
  const auto weight = [&](const ProcessState& process) {
    return process.resident + process.swapped + on_gpus(view, process.pid);
  };
  std::stable_sort(view.processes.begin(), view.processes.end(),
                   [&](const ProcessState& a, const ProcessState& b) { return weight(a) > weight(b); });
  return view;
}

std::string top_text(const TopView& view, const TopStyle& style) {
  const std::string above = host_text(view, style) + gpus_text(view, style) + runs_text(view, style);
  const auto taken = static_cast<size_t>(std::count(above.begin(), above.end(), '\n')) + 3;
  return above + processes_text(view, style, style.rows > taken ? style.rows - taken : 1);
}

nlohmann::ordered_json top_json(const TopView& view) {
  const HostState& host = view.host;
  nlohmann::ordered_json json = ordered_object({{"schema", "plimsoll.top/1"},
                                                {"host", ordered_object({{"memory_bytes", host.memory},
                                                                         {"available_bytes", host.available},
                                                                         {"swap_bytes", host.swap},
                                                                         {"swap_free_bytes", host.swap_free},
                                                                         {"load", host.load},
                                                                         {"processors", host.processors}})}});
  if (const auto& group = host.cgroup) {
    nlohmann::ordered_json cgroup =
        ordered_object({{"version", group->version}, {"path", group->path}, {"killed", group->kills}});
    add_if(cgroup, "limit_bytes", group->limit);
    add_if(cgroup, "used_bytes", group->used);
    add_if(cgroup, "peak_bytes", group->peak);
    json["cgroup"] = cgroup;
  }
  for (const char* key : {"gpus", "runs", "processes"}) json[key] = nlohmann::ordered_json::array();
  for (const GpuState& gpu : view.gpus) {
    nlohmann::ordered_json one = ordered_object({{"index", gpu.index},
                                                 {"name", gpu.name},
                                                 {"memory_bytes", gpu.memory},
                                                 {"used_bytes", gpu.used},
                                                 {"others_bytes", gpu.held_by_others()}});
    add_if(one, "utilization_percent", gpu.utilization);
    add_if(one, "watts", gpu.watts);
    add_if(one, "watt_limit", gpu.watt_limit);
    one["processes"] = nlohmann::ordered_json::array();
    for (const GpuProcess& process : gpu.processes) {
      nlohmann::ordered_json entry = ordered_object({{"pid", process.pid}});
      add_if(entry, "held_bytes", process.held);
      one["processes"].push_back(std::move(entry));
    }
    json["gpus"].push_back(std::move(one));
  }
  for (const nlohmann::json& run : view.runs) json["runs"].push_back(nlohmann::ordered_json(run));
  for (const ProcessState& process : view.processes) {
    nlohmann::ordered_json one = ordered_object({{"pid", process.pid},
                                                 {"parent", process.parent},
                                                 {"resident_bytes", process.resident},
                                                 {"peak_resident_bytes", process.peak_resident},
                                                 {"swapped_bytes", process.swapped},
                                                 {"container", process.container},
                                                 {"command", process.command}});
    if (process.managed > 0) {
      one["managed_bytes"] = process.managed;
      one["managed_fits"] = !moves_pages(view, process);
    }
    json["processes"].push_back(std::move(one));
  }
  return json;
}

}  // namespace plimsoll::engine
