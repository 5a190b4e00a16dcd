// The half precision lever. Only --precision turns it on; search may suggest it as a remedy.
#pragma once

#include "search/search.h"

namespace plimsoll::engine {

inline constexpr std::string_view kHalfPrecision = "half-precision";

void add_precision_remedy(const SearchRequest& request, const SearchResult& result, Error& error);

}  // namespace plimsoll::engine
