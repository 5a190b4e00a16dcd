// Draws a plan as SVG: areas over time, ranges of the arena, bars, a frontier. Colours are classes ("c-weights") that
// the page or picture around the drawing defines, for light and dark.
#pragma once

#include <string>

#include "report/picture.h"
#include "report/plan_report.h"

namespace plimsoll::engine {

// The drawing area inside the margins, in SVG units. The same for all charts of a page, so that a script can turn a
// position into an operation or an offset.
struct ChartFrame {
  double left = 64, top = 12, width = 880, height = 260;
  double right() const { return left + width; }
  double bottom() const { return top + height; }
};

// Each returns the <svg> element's content; chart_svg() wraps it.
std::string timeline_chart(const Picture& picture, const ChartFrame& frame);
std::string arena_chart(const Picture& picture, const ChartFrame& frame);
std::string bars_chart(const PlanReport& report, double width);
double bars_height(const PlanReport& report);
std::string frontier_chart(const Advice& advice, const ChartFrame& frame, Bytes budget);

std::string chart_svg(const std::string& id, const std::string& label, double width, double height,
                      const std::string& content);
// The legend of the categories that occur.
std::string legend_html(const Picture& picture);
std::string legend_svg(const Picture& picture, double x, double y);

// Style rules for the classes, light and dark.
std::string chart_style();
// Escapes text for HTML and SVG.
std::string escaped(const std::string& text);

}  // namespace plimsoll::engine
