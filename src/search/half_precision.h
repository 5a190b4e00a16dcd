// The half precision lever. Only --precision turns it on; search may suggest it as a remedy.
#pragma once

#include "search/remedies.h"

namespace plimsoll::engine {

inline constexpr std::string_view kHalfPrecision = "half-precision";

std::optional<Remedy> precision_remedy(const SearchRequest& request, const SearchResult& result);

}  // namespace plimsoll::engine
