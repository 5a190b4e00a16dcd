// What to type if no plan fits: other flags, and what the plan that they give needs and takes.
//
// Every remedy is the result of a search with these very flags, so its bytes and its time are those of the plan that
// would run.
#pragma once

#include <optional>

#include "search/search.h"

namespace plimsoll::engine {

struct Remedy {
  std::string flags;                   // to add; "": none
  std::vector<std::string> leave_out;  // the user's flags to remove
  Bytes budget = 0;                    // of the --budget that is needed as well; 0: the user's budget is enough
  Bytes peak_bytes = 0;                // of the process, with the plan that runs then
  double step_seconds = 0;             // of that plan
  double times = 0;                    // step_seconds over those of the whole batch without levers; 0: no training
  std::string what;                    // in a word or two; "": the flags say it
  std::string changes;                 // what it changes; "": nothing, or only the rounding
};

// Returns the remedies for a result that does not fit, those that change nothing first.
std::vector<Remedy> remedies(const SearchRequest& request, const SearchResult& result);
std::string to_text(const Remedy& remedy);

// A request without some of the user's limits, and the names of the removed limits.
struct Freed {
  SearchRequest request;
  std::vector<std::string> without;

  explicit Freed(const SearchRequest& limited) : request(limited) { request.find_least = false; }

  void free_micro_batch();
  void free_levers();
};

// Searches with the freed request, whose flags are `flags`; if that does not fit, also with the smallest --budget that
// is enough. Returns none if that budget is not smaller than the one that is enough for `limited`, the result without
// the remedy.
std::optional<Remedy> remedy_of(Freed freed, const std::string& flags, const SearchResult& limited);

}  // namespace plimsoll::engine
