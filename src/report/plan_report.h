// Prints a plan as text for people and as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>

#include "device/device.h"
#include "report/advice.h"
#include "search/search.h"

namespace plimsoll::engine {

struct PlanReport {
  const Model* model = nullptr;
  std::string file;
  DeviceInfo device;
  Bytes budget = 0;  // 0: no budget was set
  Bytes margin = 0;  // left free if the budget is the default, the machine's free memory
  const SearchResult* result = nullptr;
  Bytes held_before = 0;           // held by the calling program before the run; part of the plan's data_bytes
  bool in_program = false;         // the report is for the C++ interface, which has no flags
  const Advice* advice = nullptr;  // null: none was made
  std::vector<std::string> data_lines = {};  // how the data are read: sentences
  nlohmann::ordered_json data = nullptr;     // the same for programs; null: nothing to say
};

// The whole report, at most 80 columns wide.
std::string plan_text(const PlanReport& report);
// Tables for readers who want all of a plan: layers, phases, kernels, what each lever saves.
std::string plan_details(const PlanReport& report);
// One line for `fit`: the peak, the budget, and how the batch runs.
std::string plan_line(const PlanReport& report);
// The sentences that the text begins with: whether it fits; how the batch runs ("" if it does not fit); what Keras
// would need ("" without an estimate).
std::string plan_answer(const PlanReport& report);
std::string plan_batch(const PlanReport& report);
std::string keras_answer(const PlanReport& report);
// The table of cards, for --device all.
std::string cards_text(const std::vector<CardPrice>& cards);

nlohmann::ordered_json plan_json(const PlanReport& report);  // schema plimsoll.plan/1
nlohmann::ordered_json cards_json(const std::vector<CardPrice>& cards);
nlohmann::ordered_json error_json(const Error& error);

}  // namespace plimsoll::engine
