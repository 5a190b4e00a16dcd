// The script and the style of the page of plan_html().
#pragma once

#include <string_view>

namespace plimsoll::engine {

std::string_view page_style();
std::string_view page_script();

}  // namespace plimsoll::engine
