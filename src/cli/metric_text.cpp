#include "cli/metric_text.h"

namespace plimsoll::engine {

nlohmann::ordered_json metrics_json(std::span<const Metric> metrics) {
  nlohmann::ordered_json made = nlohmann::ordered_json::object();
  for (const Metric& metric : metrics) {
    if (metric.elements.empty())
      made[metric.name] = metric.value;
    else
      made[metric.name] = metric.elements;
  }
  return made;
}

std::string value_text(const Metric& metric, const std::function<std::string(double)>& number) {
  if (metric.elements.empty()) return number(metric.value);
  std::string text;
  for (const double one : metric.elements) text += (text.empty() ? "[" : ", ") + number(one);
  return text + "]";
}

}  // namespace plimsoll::engine
