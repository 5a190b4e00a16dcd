// What a plan's reader can do next: other batches, precisions and budgets with their prices, remedies, and a command.
// Every number in it comes from a plan that was made for it (api/advice.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "levers/lever.h"
#include "report/keras_estimate.h"

namespace plimsoll::engine {

// What an effect means for the results, in the words of the reports.
std::string_view words_of(Effect effect);

// One way to need less memory. `plimsoll plan` with the user's flags and then `flags` gives exactly this plan.
struct PricedRemedy {
  std::string name;   // "half the input size"
  std::string flags;  // "--input-shape 64,64,3"; empty if it is not a flag
  std::string note;   // what to change in Keras, or what it does; may be empty
  bool fits = false;
  Bytes peak_bytes = 0;
  Bytes saves_bytes = 0;  // compared with the plan of the report; negative: it needs more
  double step_ratio = 1;  // seconds per sample, compared with the plan of the report
  Effect effect = Effect::kBitwise;
};

// A plan for another batch size, with everything else as the user asked.
struct BatchPrice {
  int64_t batch = 0, micro = 0;
  bool fits = false;
  Bytes peak_bytes = 0;  // of the smallest plan if none fits
  double step_seconds = 0;
  bool asked = false;  // the report's own batch
};

struct PrecisionPrice {
  std::string precision;
  bool fits = false;
  Bytes peak_bytes = 0;
  double step_seconds = 0;
};

struct FrontierPoint {
  Bytes budget_bytes = 0, peak_bytes = 0;
  double step_ratio = 1;  // seconds of a step, compared with the fastest plan of the frontier
  std::vector<std::string> levers;
  bool chosen = false;  // the plan of the report
};

// A card, and what it does with the model.
struct CardPrice {
  std::string profile, name;
  Bytes memory_bytes = 0;
  bool measured = false;  // false: its speed comes from a data sheet
  bool fits = false;
  Bytes peak_bytes = 0;
  double step_seconds = 0;
  int64_t largest_batch = 0;  // in one piece, without a lever that costs time; 0: not even one sample
};

struct Advice {
  std::optional<KerasEstimate> keras;
  std::vector<BatchPrice> batches;
  std::vector<PrecisionPrice> precisions;
  std::vector<PricedRemedy> remedies;  // best first
  std::vector<FrontierPoint> frontier;
  std::string command;          // what to type next; empty if nothing was found that fits
  std::string command_changes;  // the flags among them that differ from the user's
  std::string command_note;     // what they change
  Bytes command_peak_bytes = 0;
  int64_t epoch_samples = 0;  // 0: unknown
  bool quick = false;         // only plans without levers were tried, because planning this model takes long
};

}  // namespace plimsoll::engine
