// Helpers that build the remedies of levers.
#pragma once

#include <optional>

#include "search/search.h"

namespace plimsoll::engine {

// A request without some of the user's limits, and the names of the removed limits.
struct Freed {
  SearchRequest request;
  std::vector<std::string> without;

  explicit Freed(const SearchRequest& limited) : request(limited) { request.find_least = true; }

  void free_micro_batch();
  void free_levers();
};

// Returns the text of a remedy: the flags, and the --budget if the remedy is not enough alone. Returns none if that
// budget is not smaller than the budget that is enough without the remedy.
std::optional<std::string> remedy_words(const Freed& freed, const std::string& flags, const SearchResult& found,
                                        const SearchResult& limited);

}  // namespace plimsoll::engine
