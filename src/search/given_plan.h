// An existing plan: saved by `plan --save`, or by the run that wrote a checkpoint.
//
// The plan in a file is never executed. This program compiles the plan again from the settings in the file and from the
// run's own model, data and device. Then it compares the file's plan with the new one, node by node and byte by byte.
#pragma once

#include "search/search.h"

namespace plimsoll::engine {

struct GivenPlan {
  Plan plan;
  std::string from;  // the file, for messages
  bool of_checkpoint = false;
};

struct AcceptedPlan {
  SearchResult result;  // in the form that search() returns
  std::string note;     // for the user, or empty: this version compiles another plan than the one in the checkpoint
};

// Fails with P211 (plan file) or P212 (checkpoint) if the plan contradicts itself, or has settings that are not in the
// lever table. Must be called before any part of the plan is used.
Status check_plan(const GivenPlan& given, const LeverTable& table = lever_table());

// Compiles a checked plan again and compares. Fails with P211 or P212 if the plan does not match the request, or if
// compiling its settings gives another plan. For a checkpoint, the latter is only a note, because its state works with
// any plan of the same program. Fails with P301 if the plan does not fit the budget.
Result<AcceptedPlan> accept_plan(const GivenPlan& given, const SearchRequest& request);

}  // namespace plimsoll::engine
