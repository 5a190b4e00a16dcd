// A plan that was made before: by `plan --save`, or by the run that a checkpoint stems from.
//
// What a file says is never executed. The plan is made again, by this program, from the settings that the file names
// and from the run's own model, data and device; the file's plan is then compared with it, node by node and byte by
// byte.
#pragma once

#include "search/search.h"

namespace plimsoll::engine {

struct GivenPlan {
  Plan plan;
  std::string from;  // the file, for messages
  bool of_checkpoint = false;
};

struct AcceptedPlan {
  SearchResult result;  // as search() would return it
  std::string note;     // empty, or what the user should know: a checkpoint's plan is not made the same way any more
};

// P211 or P212 where the plan contradicts itself, or has settings that are not in the table of levers. Comes before
// anything of it is used.
Status check_plan(const GivenPlan& given, const LeverTable& table = lever_table());

// Of a plan that was checked: P211 or P212 where it was made for something else, or is not what its settings give; of a
// checkpoint the last is a note only, because its state serves any plan of the same program. P301 where it does not
// fit the budget.
Result<AcceptedPlan> accept_plan(const GivenPlan& given, const SearchRequest& request);

}  // namespace plimsoll::engine
