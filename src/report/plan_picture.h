// A plan as a picture: a page for any browser, and an SVG for a README.
#pragma once

#include "report/plan_report.h"

namespace plimsoll::engine {

// One self-contained page: no network, no other file. `json`: plan_json() of the report; the page's tables show its
// numbers.
std::string plan_html(const PlanReport& report, const nlohmann::ordered_json& json);
// The memory of a step over time, with Keras's estimate beside it.
std::string plan_svg(const PlanReport& report);

}  // namespace plimsoll::engine
