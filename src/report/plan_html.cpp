#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/json_text.h"
#include "report/draw.h"
#include "report/plan_picture.h"
#include "report/plan_script.h"

namespace plimsoll::engine {
namespace {

using Json = nlohmann::ordered_json;

// Numbers each name once.
class Names {
 public:
  int of(const std::string& name) {
    if (name.empty()) return -1;
    const auto [found, is_new] = index_.emplace(name, static_cast<int>(index_.size()));
    if (is_new) list_.push_back(name);
    return found->second;
  }
  const Json& list() const { return list_; }

 private:
  std::map<std::string, int> index_;
  Json list_ = Json::array();
};

Json frame_json(const ChartFrame& frame) {
  return ordered_object({{"left", frame.left}, {"top", frame.top}, {"width", frame.width}, {"height", frame.height}});
}

// What the page's script needs for hovering.
Json picture_json(const Picture& picture, const ChartFrame& timeline, const ChartFrame& arena) {
  Names ops, layers;
  Json steps = Json::array(), values = Json::array(), phases = Json::array(), categories = Json::array();
  for (const PictureStep& step : picture.steps)
    steps.push_back(
        Json::array({step.phase, ops.of(step.op), layers.of(step.layer), std::llround(step.seconds * 1e6)}));
  for (const PictureValue& value : picture.values)
    values.push_back(Json::array({value.first, value.last, value.offset, value.bytes, layers.of(value.layer),
                                  static_cast<int>(value.category)}));
  for (const PicturePhase& phase : picture.phases) phases.push_back(phase.name);
  for (size_t i = 0; i < kCategories; ++i) categories.push_back(name_of(static_cast<Category>(i)));
  return ordered_object({{"steps", steps},
                         {"values", values},
                         {"ops", ops.list()},
                         {"layers", layers.list()},
                         {"phases", phases},
                         {"categories", categories},
                         {"most", picture.arena_bytes + picture.arena_bytes / 20},
                         {"timeline", frame_json(timeline)},
                         {"arena", frame_json(arena)}});
}

// JSON inside a page: "</script>" in a name must not end the script.
std::string embedded(const char* id, const Json& json) {
  std::string text = json_text(json, -1);
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;) text.replace(at, 1, "\\u003c");
  return fmt::format("<script type=\"application/json\" id=\"{}\">{}</script>\n", id, text);
}

std::string section(const std::string& title, const std::string& explanation, const std::string& content) {
  return fmt::format("<h2>{}</h2>\n{}{}", title,
                     explanation.empty() ? "" : fmt::format("<p class=\"soft\">{}</p>\n", explanation), content);
}

std::string table(const char* id, const char* css = "") {
  return fmt::format("<div class=\"wide\"><table id=\"{}\" class=\"{}\"></table></div>\n", id, css);
}

std::string command_section(const PlanReport& report) {
  if (report.advice == nullptr || report.advice->command.empty()) return "";
  const Advice& advice = *report.advice;
  const std::string title = report.result->fits ? "Next, type" : "What fits";
  return section(title,
                 report.result->fits ? escaped(advice.command_note)
                                     : escaped(fmt::format("With {}: {}.", format_bytes(advice.command_peak_bytes),
                                                           advice.command_note)),
                 fmt::format("<pre id=\"next\">{}</pre>\n", escaped(advice.command)));
}

std::string advice_sections(const PlanReport& report) {
  if (report.advice == nullptr) return "";
  const Advice& advice = *report.advice;
  std::string text;
  if (advice.frontier.size() > 1) {
    ChartFrame frame;
    frame.height = 200;
    text += section("Memory against time",
                    "Each point is a plan. Less memory costs time, because values are computed again or moved.",
                    chart_svg("frontier", "Time of a step against memory", 960, frame.bottom() + 24,
                              frontier_chart(advice, frame, report.budget)));
  }
  if (!advice.batches.empty()) text += section("Which batch fits", "", table("batches-table", "narrow"));
  if (advice.precisions.size() > 1) text += section("Which precision", "", table("precisions-table", "narrow"));
  if (!advice.remedies.empty())
    text += section("What else changes the memory", "Best first. Each line was planned, as its flags would plan it.",
                    table("remedies-table"));
  return text;
}

}  // namespace

std::string plan_html(const PlanReport& report, const nlohmann::ordered_json& json) {
  const Plan& plan = report.result->plan;
  const Picture picture = picture_of(plan);
  ChartFrame timeline, arena;
  arena.height = 340;
  const double below = 40;
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{} in memory</title>\n<style>{}{}</style></head><body>\n",
      escaped(plan.model), chart_style(), page_style());
  page += fmt::format("<h1>{}</h1>\n<p class=\"soft\">{} on {}</p>\n<p class=\"answer {}\">{}</p>\n<p>{} {}</p>\n",
                      escaped(plan.model), escaped(plan.precision), escaped(report.device.name),
                      report.result->fits ? "fits" : "fails", escaped(plan_answer(report)), escaped(plan_batch(report)),
                      escaped(keras_answer(report)));
  page += chart_svg("bars", "Keras and Plimsoll", 960, bars_height(report), bars_chart(report, 960));
  page += command_section(report);
  page += section("Memory during one training step",
                  "What is in use at each operation, in the order in which they run. Point at it for the values.",
                  legend_html(picture) + chart_svg("timeline", "Memory in use over one training step", 960,
                                                   timeline.bottom() + below, timeline_chart(picture, timeline)));
  page += section("Where each value lies",
                  "The arena, one block of memory: each box is a value, from the operation that makes it to the last "
                  "one that reads it.",
                  chart_svg("arena", "Offsets in the arena over one training step", 960, arena.bottom() + below,
                            arena_chart(picture, arena)));
  page += section("Where the bytes are at the peak", "", table("peak-table"));
  page += advice_sections(report);
  page += section("Layers", "Those with the most activations first. Not all of them are in memory at the same time.",
                  table("layers-table") + "<details id=\"more-layers\"><summary>all other layers</summary>" +
                      table("more-layers-table") + "</details>\n");
  page +=
      "<p class=\"soft\">Times are predicted. What Keras would need is an estimate from the same graph without any "
      "saving.</p>\n<div id=\"tip\"></div>\n";
  page += embedded("plan-json", json) + embedded("picture-json", picture_json(picture, timeline, arena));
  return page + fmt::format("<script>{}</script>\n</body></html>\n", page_script());
}

}  // namespace plimsoll::engine
