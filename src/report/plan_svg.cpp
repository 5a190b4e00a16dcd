#include <fmt/format.h>

#include "report/draw.h"
#include "report/plan_picture.h"

namespace plimsoll::engine {

std::string plan_svg(const PlanReport& report) {
  constexpr double kWidth = 960, kMargin = 12;
  const Picture picture = picture_of(report.result->plan);
  const double bars = bars_height(report);
  ChartFrame frame;
  frame.height = 200;
  const double chart = bars + 40;
  const Plan& plan = report.result->plan;
  std::string content =
      fmt::format("<style>{}</style><rect width=\"100%\" height=\"100%\" style=\"fill:var(--paper)\"/>", chart_style());
  content +=
      fmt::format("<text x=\"{:.0f}\" y=\"22\" class=\"t strong\" style=\"font-size:15px\">{}</text>", kMargin,
                  escaped(fmt::format("{}, batch {}: memory of one training step", plan.model, plan.batch.effective)));
  content += fmt::format("<g transform=\"translate(0 36)\">{}</g>", bars_chart(report, kWidth));
  content += fmt::format("<g transform=\"translate(0 {:.0f})\">{}</g>", chart, timeline_chart(picture, frame));
  const double legend = chart + frame.bottom() + 56;
  content += legend_svg(picture, frame.left, legend);
  return chart_svg("plan", plan_answer(report), kWidth, legend + 14, content);
}

}  // namespace plimsoll::engine
