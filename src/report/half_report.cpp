#include "report/half_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "report/text_table.h"

namespace plimsoll::engine {
namespace {

constexpr int kFirstScale = 15;  // Keras's LossScaleOptimizer begins with 2^15
constexpr double kMuch = 0.25;   // of the values of a layer that are not zero

std::string_view words_of(HalfPart part) {
  return part == HalfPart::kOutputs ? "outputs" : part == HalfPart::kGradients ? "gradients" : "weights";
}

bool overflows_at(const std::map<LayerPart, Magnitudes>& found, const std::set<std::string>& float32, int scale) {
  return std::any_of(found.begin(), found.end(), [&](const auto& entry) {
    return entry.first.second == HalfPart::kGradients && float32.count(entry.first.first) == 0 &&
           entry.second.overflows(scale) > 0;
  });
}

// Loss scaling lowers the scale until nothing overflows, but not below 1.
int scale_of(const std::map<LayerPart, Magnitudes>& found, const std::set<std::string>& float32) {
  int scale = kFirstScale;
  while (scale > 0 && overflows_at(found, float32, scale)) --scale;
  return scale;
}

HalfLoss loss_of(const LayerPart& part, const Magnitudes& magnitudes, int scale) {
  HalfLoss loss{part.first, part.second, magnitudes.largest, magnitudes.nonzero(), 0, 0, false};
  const int factor = part.second == HalfPart::kGradients ? scale : 0;
  loss.too_large = magnitudes.overflows(factor);
  loss.vanished = magnitudes.vanish(factor);
  loss.needs_float32 =
      loss.too_large > 0 || static_cast<double>(loss.vanished) > kMuch * static_cast<double>(loss.values);
  return loss;
}

// Layers whose outputs or weights do not fit, whatever the loss scale is.
std::set<std::string> without_scale(const std::map<LayerPart, Magnitudes>& found) {
  std::set<std::string> layers;
  for (const auto& [part, magnitudes] : found)
    if (part.second != HalfPart::kGradients && loss_of(part, magnitudes, 0).needs_float32) layers.insert(part.first);
  return layers;
}

std::string share(int64_t part, int64_t of) {
  if (part == 0) return "none";
  const double percent = 100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(of, 1));
  return percent < 0.01 ? "< 0.01 %" : fmt::format("{:.{}f} %", percent, percent < 9.95 ? 2 : 0);
}

std::string table_of(const HalfReport& report) {
  constexpr size_t kMostRows = 24;
  TextTable table;
  table.row({"layer", "", "largest", "become infinite", "become zero"});
  size_t rows = 0;
  for (const HalfLoss& part : report.parts) {
    if (!part.needs_float32 || rows++ >= kMostRows) continue;
    table.row({part.layer, std::string(words_of(part.part)), fmt::format("{:.2g}", part.largest),
               share(part.too_large, part.values), share(part.vanished, part.values)});
  }
  std::string text = table.text();
  if (rows > kMostRows) text += fmt::format("  ... and {} more: --json lists all\n", rows - kMostRows);
  return text;
}

// The largest values, for a model that needs nothing.
std::string margins_of(const HalfReport& report) {
  std::string text;
  for (const HalfPart kind : {HalfPart::kOutputs, HalfPart::kGradients}) {
    const HalfLoss* largest = nullptr;
    for (const HalfLoss& part : report.parts)
      if (part.part == kind && (largest == nullptr || part.largest > largest->largest)) largest = &part;
    if (largest == nullptr) continue;
    text += wrapped(
        fmt::format("The largest of the {} is {:.2g}, in {}.", words_of(kind), largest->largest, largest->layer));
  }
  return text;
}

}  // namespace

HalfReport half_report(const Model& model, const std::map<LayerPart, Magnitudes>& found) {
  HalfReport report;
  report.model = model.name();
  std::set<std::string> float32 = without_scale(found);
  report.scale = scale_of(found, float32);
  std::map<std::string, size_t> order;
  for (const LayerInfo& layer : model.layers()) order.emplace(layer.name, order.size());
  for (const auto& [part, magnitudes] : found) {
    report.not_finite += magnitudes.not_finite();
    report.parts.push_back(loss_of(part, magnitudes, report.scale));
    if (report.parts.back().needs_float32) float32.insert(part.first);
  }
  const auto place = [&](const std::string& layer) {
    const auto at = order.find(layer);
    return at == order.end() ? order.size() : at->second;
  };
  std::stable_sort(report.parts.begin(), report.parts.end(),
                   [&](const HalfLoss& a, const HalfLoss& b) { return place(a.layer) < place(b.layer); });
  for (const HalfLoss& part : report.parts)
    if (float32.count(part.layer) != 0 && (report.float32_layers.empty() || report.float32_layers.back() != part.layer))
      report.float32_layers.push_back(part.layer);
  return report;
}

std::string half_text(const HalfReport& report) {
  const size_t layers = report.float32_layers.size();
  std::string text = wrapped(
      report.any() ? fmt::format("{} layer{} of this model need{} float32 under mixed_float16: {}.", layers,
                                 layers == 1 ? "" : "s", layers == 1 ? "s" : "", fmt::join(report.float32_layers, ", "))
                   : "No layer of this model needs float32 under mixed_float16.");
  text +=
      wrapped(fmt::format("Seen in {} step{} of a training in float32, {} samples. float16 holds numbers from 3e-8 "
                          "to 65,504. Gradients are multiplied by the loss scale, {}, before they are compared.",
                          with_commas(report.steps), report.steps == 1 ? "" : "s", with_commas(report.samples),
                          with_commas(int64_t{1} << report.scale)));
  if (report.not_finite > 0)
    text +=
        wrapped(fmt::format("{} values were infinite or not a number even in float32: this training diverges in "
                            "any precision. A smaller --learning-rate may help.",
                            with_commas(report.not_finite)));
  text += "\n" + (report.any() ? table_of(report) : margins_of(report));
  if (report.any())
    text += wrapped(
        "mixed_bfloat16 has the range of float32, so it needs no such layers. Cards from compute capability "
        "8.0 have it.");
  return text + "\nNext, type\n" + wrapped_command(report.command);
}

nlohmann::ordered_json half_json(const HalfReport& report) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const HalfLoss& part : report.parts)
    parts.push_back(ordered_object({{"layer", part.layer},
                                    {"part", std::string(words_of(part.part))},
                                    {"largest", part.largest},
                                    {"values", part.values},
                                    {"become_infinite", part.too_large},
                                    {"become_zero", part.vanished},
                                    {"needs_float32", part.needs_float32}}));
  return ordered_object({{"schema", "plimsoll.precision/1"},
                         {"model", report.model},
                         {"samples", report.samples},
                         {"steps", report.steps},
                         {"loss_scale", int64_t{1} << report.scale},
                         {"not_finite_in_float32", report.not_finite},
                         {"float32_layers", report.float32_layers},
                         {"command", report.command},
                         {"layers", parts}});
}

}  // namespace plimsoll::engine
