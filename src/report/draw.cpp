#include "report/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace plimsoll::engine {
namespace {

// From the bottom of the stack to its top: what lives longest first.
constexpr Category kStack[] = {Category::kWeights,     Category::kOptimizer,   Category::kGradients, Category::kInputs,
                               Category::kActivations, Category::kTemporaries, Category::kWorkspace};

// A round number of bytes between two ticks of an axis, so that there are at most six.
Bytes tick_of(Bytes most) {
  Bytes tick = 1;
  while (most / tick > 6) tick *= 2;
  // Up to 1024 the powers of two are round; 1024 is the next unit.
  return std::max<Bytes>(tick, 1);
}

std::string text_at(double x, double y, const std::string& text, const char* anchor = "start", const char* css = "t") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>", x, y, anchor, css,
                     escaped(text));
}

std::string line_at(double x1, double y1, double x2, double y2, const char* css) {
  return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" class=\"{}\"/>", x1, y1, x2, y2, css);
}

// Where bytes and steps lie in a chart.
struct Scale {
  ChartFrame frame;
  Bytes most;
  size_t steps;
  double x(double step) const {
    return frame.left + frame.width * step / static_cast<double>(std::max<size_t>(1, steps));
  }
  double y(Bytes bytes) const {
    return frame.bottom() - frame.height * static_cast<double>(bytes) / static_cast<double>(std::max<Bytes>(1, most));
  }
};

std::string byte_axis(const Scale& scale) {
  std::string text;
  const Bytes tick = tick_of(scale.most);
  for (Bytes at = 0; at <= scale.most; at += tick) {
    text += line_at(scale.frame.left, scale.y(at), scale.frame.right(), scale.y(at), at == 0 ? "axis" : "grid");
    text += text_at(scale.frame.left - 6, scale.y(at) + 4, at == 0 ? "0" : format_bytes(at), "end");
  }
  return text;
}

// Labels a range of steps, if there is room for the text.
std::string range_label(const Scale& scale, size_t first, size_t last, const std::string& text, double y) {
  constexpr double kLetter = 6.3;
  const double from = scale.x(static_cast<double>(first)), to = scale.x(static_cast<double>(last) + 1);
  if (to - from < kLetter * static_cast<double>(text.size()) + 8) return "";
  return text_at((from + to) / 2, y, text, "middle");
}

std::string phase_text(const PicturePhase& phase) {
  const std::string name = phase.name == "begin"        ? "start"
                           : phase.name == "accumulate" ? "one piece of the batch"
                           : phase.name == "apply"      ? "update"
                           : phase.name == "train"      ? ""
                                                        : phase.name;
  return phase.runs > 1 ? fmt::format("{}, runs {} times", name, phase.runs) : name;
}

// The operation of a phase from which on the backward pass runs. Operations that are computed again are forward
// operations in it, so the boundary is where the fewest operations are on the wrong side.
size_t first_backward(const Picture& picture, size_t first, size_t last) {
  int64_t wrong = 0;
  for (size_t i = first; i <= last; ++i) wrong += picture.steps[i].stage == Stage::kForward ? 1 : 0;
  int64_t least = wrong;
  size_t best = first;
  for (size_t i = first; i <= last; ++i) {
    wrong += picture.steps[i].stage == Stage::kForward ? -1 : 1;
    if (wrong >= least) continue;
    least = wrong;
    best = i + 1;
  }
  return best;
}

// Forward and backward below the time axis; the phases of a step below that.
std::string time_axis(const Picture& picture, const Scale& scale) {
  std::string text;
  const double first_row = scale.frame.bottom() + 16, second_row = scale.frame.bottom() + 32;
  for (const PicturePhase& phase : picture.phases) {
    if (phase.first > 0)
      text += line_at(scale.x(phase.first), scale.frame.top, scale.x(phase.first), scale.frame.bottom(), "phase");
    text += range_label(scale, static_cast<size_t>(phase.first), static_cast<size_t>(phase.last), phase_text(phase),
                        second_row);
  }
  for (const PicturePhase& phase : picture.phases) {
    const auto first = static_cast<size_t>(phase.first), last = static_cast<size_t>(phase.last);
    const size_t backward = first_backward(picture, first, last);
    if (backward == first || backward > last) continue;  // only one of them
    text += range_label(scale, first, backward - 1, "forward", first_row);
    text += range_label(scale, backward, last, "backward", first_row);
    const double at = scale.x(static_cast<double>(backward));
    text += line_at(at, scale.frame.bottom(), at, scale.frame.bottom() + 5, "axis");
  }
  return text;
}

// The area between two heights per step, as one path.
std::string area(const Scale& scale, const std::vector<Bytes>& low, const std::vector<Bytes>& high, const char* css) {
  const size_t count = low.size();
  if (low == high || count == 0) return "";
  std::string path = fmt::format("M{:.1f} {:.1f}", scale.x(0), scale.y(low[0]));
  Bytes now = low[0];
  for (size_t i = 0; i < count; ++i) {
    if (high[i] == now) continue;
    path += fmt::format("H{:.1f}V{:.1f}", scale.x(static_cast<double>(i)), scale.y(high[i]));
    now = high[i];
  }
  path += fmt::format("H{:.1f}", scale.x(static_cast<double>(count)));
  for (size_t i = count; i-- > 0;) {
    if (low[i] == now) continue;
    path += fmt::format("H{:.1f}V{:.1f}", scale.x(static_cast<double>(i) + 1), scale.y(low[i]));
    now = low[i];
  }
  return fmt::format("<path d=\"{}Z\" class=\"{}\"/>", path, css);
}

std::string css_of(Category category) {
  return fmt::format("c-{}", name_of(category));
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      result += c;
  }
  return result;
}

std::string chart_svg(const std::string& id, const std::string& label, double width, double height,
                      const std::string& content) {
  return fmt::format(
      "<svg id=\"{}\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" "
      "xmlns=\"http://www.w3.org/2000/svg\">{}</svg>\n",
      id, width, height, escaped(label), content);
}

std::string timeline_chart(const Picture& picture, const ChartFrame& frame) {
  const Scale scale{frame, picture.arena_bytes + picture.arena_bytes / 20, picture.steps.size()};
  std::string text = byte_axis(scale);
  std::vector<Bytes> low(picture.steps.size(), 0), high = low;
  for (const Category category : kStack) {
    for (size_t i = 0; i < high.size(); ++i) high[i] = low[i] + picture.steps[i].live[static_cast<size_t>(category)];
    text += area(scale, low, high, css_of(category).c_str());
    low = high;
  }
  text += line_at(frame.left, scale.y(picture.arena_bytes), frame.right(), scale.y(picture.arena_bytes), "limit");
  text += text_at(frame.right() - 2, scale.y(picture.arena_bytes) - 4,
                  fmt::format("reserved: {}", format_bytes(picture.arena_bytes)), "end");
  return text + time_axis(picture, scale);
}

std::string arena_chart(const Picture& picture, const ChartFrame& frame) {
  const Scale scale{frame, picture.arena_bytes + picture.arena_bytes / 20, picture.steps.size()};
  std::string text = byte_axis(scale);
  for (const Category category : kStack) {
    std::string path;
    for (const PictureValue& value : picture.values) {
      if (value.category != category) continue;
      const double left = scale.x(value.first), top = scale.y(value.offset + value.bytes);
      const double width = scale.x(value.last + 1) - left, height = scale.y(value.offset) - top;
      if (height < 0.05) continue;  // too thin to be seen
      path += fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h{:.1f}z", left, top, width, height, -width);
    }
    if (!path.empty()) text += fmt::format("<path d=\"{}\" class=\"{} edge\"/>", path, css_of(category));
  }
  text += line_at(frame.left, scale.y(picture.arena_bytes), frame.right(), scale.y(picture.arena_bytes), "limit");
  return text + time_axis(picture, scale);
}

// ---- Keras beside ours

namespace {

struct BarPart {
  Bytes bytes;
  const char* css;
};
struct Bar {
  std::string name;
  std::vector<BarPart> parts;
};

constexpr double kBarStep = 34, kBarHeight = 20, kBarLabel = 190, kBarEnd = 90;

std::vector<Bar> bars_of(const PlanReport& report) {
  const Plan& plan = report.result->plan;
  std::vector<Bar> bars;
  if (report.advice != nullptr && report.advice->keras)
    bars.push_back({"Keras (estimate)",
                    {{report.advice->keras->library_bytes, "b-own"}, {report.advice->keras->step_bytes, "b-keras"}}});
  bars.push_back({report.result->fits ? "Plimsoll, this plan" : "Plimsoll, smallest plan",
                  {{plan.overhead_at_peak(), "b-own"}, {plan.data_bytes + plan.arena_bytes, "b-ours"}}});
  if (report.result->fits && report.result->least_bytes > 0 && report.result->least_bytes < plan.peak_bytes())
    bars.push_back({"Plimsoll, at least", {{report.result->least_bytes, "b-least"}}});
  return bars;
}

}  // namespace

double bars_height(const PlanReport& report) {
  return static_cast<double>(bars_of(report).size()) * kBarStep + 22;
}

std::string bars_chart(const PlanReport& report, double width) {
  const std::vector<Bar> bars = bars_of(report);
  const auto total = [](const Bar& bar) {
    Bytes sum = 0;
    for (const BarPart& part : bar.parts) sum += part.bytes;
    return sum;
  };
  Bytes most = report.budget;
  for (const Bar& bar : bars) most = std::max(most, total(bar));
  // A budget far above everything would leave nothing to see.
  Bytes widest = 1;
  for (const Bar& bar : bars) widest = std::max(widest, total(bar));
  const bool far = most > 3 * widest;
  if (far) most = widest;
  const double scale = (width - kBarLabel - kBarEnd) / static_cast<double>(most);
  std::string text;
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = 4 + static_cast<double>(i) * kBarStep;
    text += text_at(kBarLabel - 10, y + kBarHeight - 5, bars[i].name, "end");
    double x = kBarLabel;
    for (const BarPart& part : bars[i].parts) {
      const double length = static_cast<double>(part.bytes) * scale;
      text += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" class=\"{}\"/>", x, y,
                          length, kBarHeight, part.css);
      x += length;
    }
    text += text_at(x + 6, y + kBarHeight - 5, format_bytes(total(bars[i])), "start", "t strong");
  }
  const double bottom = static_cast<double>(bars.size()) * kBarStep;
  if (report.budget > 0 && !far) {
    const double x = kBarLabel + static_cast<double>(report.budget) * scale;
    text += line_at(x, 0, x, bottom, "limit");
    text += text_at(std::clamp(x, kBarLabel + 40, width - 80), bottom + 14,
                    fmt::format("budget {}", format_bytes(report.budget)), "middle");
  }
  return text;
}

// ---- The frontier

std::string frontier_chart(const Advice& advice, const ChartFrame& frame, Bytes budget) {
  const auto& points = advice.frontier;
  Bytes most = 1;
  double slowest = 1;
  for (const FrontierPoint& point : points) {
    most = std::max(most, point.peak_bytes);
    slowest = std::max(slowest, point.step_ratio);
  }
  most += most / 12;
  const double top = 1 + (std::max(slowest, 1.05) - 1) * 1.15;
  const auto x = [&](Bytes bytes) {
    return frame.left + frame.width * static_cast<double>(bytes) / static_cast<double>(most);
  };
  const auto y = [&](double ratio) { return frame.bottom() - frame.height * (ratio - 0.98) / (top - 0.98); };
  std::string text;
  for (int i = 0; i <= 4; ++i) {
    const double ratio = 1 + (top - 1) * i / 4;
    text += line_at(frame.left, y(ratio), frame.right(), y(ratio), "grid");
    text += text_at(frame.left - 6, y(ratio) + 4, fmt::format("{:.2f}x", ratio), "end");
  }
  const Bytes tick = tick_of(most);
  for (Bytes at = 0; at <= most; at += tick)
    text += text_at(x(at), frame.bottom() + 16, at == 0 ? "0" : format_bytes(at), "middle");
  text += line_at(frame.left, frame.bottom(), frame.right(), frame.bottom(), "axis");
  if (budget > 0 && budget <= most) {
    text += line_at(x(budget), frame.top, x(budget), frame.bottom(), "limit");
    text += text_at(x(budget) - 5, frame.top + 10, "budget", "end");
  }
  std::string path;
  for (const FrontierPoint& point : points)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(point.peak_bytes), y(point.step_ratio));
  text += fmt::format("<path d=\"{}\" class=\"curve\"/>", path);
  for (size_t i = 0; i < points.size(); ++i)
    text += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" class=\"{}\" data-point=\"{}\"/>",
                        x(points[i].peak_bytes), y(points[i].step_ratio), points[i].chosen ? 7 : 5,
                        points[i].chosen ? "point chosen" : "point", i);
  return text;
}

// ---- Legends and colours

namespace {

std::vector<Category> categories_in(const Picture& picture) {
  std::vector<Category> list;
  for (const Category category : kStack)
    if (std::any_of(picture.values.begin(), picture.values.end(),
                    [&](const PictureValue& value) { return value.category == category; }))
      list.push_back(category);
  return list;
}

}  // namespace

std::string legend_html(const Picture& picture) {
  std::string text = "<p class=\"legend\">";
  for (const Category category : categories_in(picture))
    text += fmt::format(
        "<span><svg viewBox=\"0 0 12 12\"><rect width=\"12\" height=\"12\" rx=\"2\" class=\"{}\"/></svg>{}</span>",
        css_of(category), name_of(category));
  return text + "</p>\n";
}

std::string legend_svg(const Picture& picture, double x, double y) {
  constexpr double kLetter = 6.6;
  std::string text;
  for (const Category category : categories_in(picture)) {
    text += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"11\" height=\"11\" rx=\"2\" class=\"{}\"/>", x, y - 10,
                        css_of(category));
    text += text_at(x + 16, y, std::string(name_of(category)));
    x += 34 + kLetter * static_cast<double>(name_of(category).size());
  }
  return text;
}

std::string chart_style() {
  return R"css(
:root,svg{--ink:#1d2733;--soft:#5c6b7a;--paper:#ffffff;--rule:#dfe5ea;--limit:#c2372e;
--weights:#2f6db3;--optimizer:#86b3de;--gradients:#8762b5;--inputs:#4f9d69;--activations:#e58a3c;--temporaries:#e2bf4b;--workspace:#9aa5b1;
--own:#b4bec8;--keras:#d96b54;--ours:#2f6db3}
@media(prefers-color-scheme:dark){:root,svg{--ink:#e6ebf0;--soft:#98a6b4;--paper:#12181f;--rule:#2c3742;--limit:#ff7b6e;
--weights:#4f8fd6;--optimizer:#31587f;--gradients:#a384d1;--inputs:#5fb57e;--activations:#e39a55;--temporaries:#c9a83e;--workspace:#6d7986;
--own:#56626e;--keras:#e0806c;--ours:#4f8fd6}}
.t{font:12px system-ui,sans-serif;fill:var(--soft)}.strong{fill:var(--ink);font-weight:600;paint-order:stroke;stroke:var(--paper);stroke-width:4px}
.axis{stroke:var(--soft);fill:none}.grid{stroke:var(--rule);fill:none}
.phase{stroke:var(--soft);stroke-dasharray:2 3;fill:none}.limit{stroke:var(--limit);stroke-dasharray:5 3;fill:none}
.curve{stroke:var(--soft);stroke-width:1.5;fill:none}
.point{fill:var(--paper);stroke:var(--ours);stroke-width:2}.chosen{fill:var(--ours)}
.edge{stroke:var(--paper);stroke-width:.4}
.c-weights{fill:var(--weights)}.c-optimizer{fill:var(--optimizer)}.c-gradients{fill:var(--gradients)}.c-inputs{fill:var(--inputs)}
.c-activations{fill:var(--activations)}.c-temporaries{fill:var(--temporaries)}.c-workspace{fill:var(--workspace)}
.b-own{fill:var(--own)}.b-keras{fill:var(--keras)}.b-ours{fill:var(--ours)}.b-least{fill:var(--optimizer)}
)css";
}

}  // namespace plimsoll::engine
