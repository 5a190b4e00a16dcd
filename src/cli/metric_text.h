// Metrics as JSON and as text. A metric that is a vector is a list in both.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "execute/callbacks.h"

namespace plimsoll::engine {

nlohmann::ordered_json metrics_json(std::span<const Metric> metrics);
// "0.25", or "[0.25, 0.5]"; `number` gives the text of one number.
std::string value_text(const Metric& metric, const std::function<std::string(double)>& number);

}  // namespace plimsoll::engine
