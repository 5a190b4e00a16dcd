// Prints an explanation as text for people and as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "explain/decide.h"

namespace plimsoll::engine::explain {

std::string explanation_text(const Explanation& explanation);
nlohmann::ordered_json explanation_json(const Explanation& explanation);  // schema plimsoll.explain/1

}  // namespace plimsoll::engine::explain
