// Prints a plan as text for people and as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>

#include "device/device.h"
#include "search/search.h"

namespace plimsoll::engine {

struct PlanReport {
  const Model* model = nullptr;
  std::string file;
  DeviceInfo device;
  Bytes budget = 0;  // 0: no budget was set
  Bytes margin = 0;  // left free if the budget is the default, the machine's free memory
  const SearchResult* result = nullptr;
  Bytes held_before = 0;    // held by the calling program before the run; part of the plan's data_bytes
  bool in_program = false;  // the report is for the C++ interface, which has no flags
};

std::string plan_text(const PlanReport& report);
nlohmann::ordered_json plan_json(const PlanReport& report);  // schema plimsoll.plan/1
nlohmann::ordered_json error_json(const Error& error);

}  // namespace plimsoll::engine
