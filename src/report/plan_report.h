// A plan as people and machines read it.
#pragma once

#include <nlohmann/json.hpp>

#include "device/device.h"
#include "search/search.h"

namespace plimsoll::engine {

struct PlanReport {
  const Model* model = nullptr;
  std::string file;
  DeviceInfo device;
  Bytes budget = 0;  // 0: none was set
  Bytes margin = 0;  // left free when the budget is what the machine has
  const SearchResult* result = nullptr;
  Bytes held_before = 0;    // by the program that calls us, counted in the plan's data_bytes
  bool in_program = false;  // read through the C++ interface, where there are no flags
};

std::string plan_text(const PlanReport& report);
nlohmann::ordered_json plan_json(const PlanReport& report);  // schema plimsoll.plan/1
nlohmann::ordered_json error_json(const Error& error);

}  // namespace plimsoll::engine
