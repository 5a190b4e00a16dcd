// What a lever's remedy is made of.
#pragma once

#include <optional>

#include "search/search.h"

namespace plimsoll::engine {

// A request with some of its limits gone, and the words for them.
struct Freed {
  SearchRequest request;
  std::vector<std::string> without;

  explicit Freed(const SearchRequest& limited) : request(limited) { request.find_least = true; }

  void free_micro_batch();
  void free_levers();
};

// The flags and words of a remedy, with the budget that it needs besides. None where that budget is not smaller than
// the one that needs no remedy.
std::optional<std::string> remedy_words(const Freed& freed, const std::string& flags, const SearchResult& found,
                                        const SearchResult& limited);

}  // namespace plimsoll::engine
