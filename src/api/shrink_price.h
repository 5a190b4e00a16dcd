// What a model costs in every phase, from plans, before anything is trained or written.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api/pricing.h"
#include "shrink/held_model.h"

namespace plimsoll::engine {

struct PhasePrice {
  bool fits = false;
  Bytes peak_bytes = 0, arena_bytes = 0;
  double seconds = 0;  // of a step, or of a predicted batch
};

struct ShrinkPrice {
  int64_t parameters = 0;
  FileBytes file;
  double multiplications = 0;  // of a prediction for one sample
  int64_t batch = 0;
  std::optional<PhasePrice> training;  // none: the model was never compiled
  PhasePrice inference;
};

// Plans training and prediction of a model. `options`: those of the command; data in them are used if the model still
// takes them.
Result<ShrinkPrice> price_shrunk(const HeldModel& held, const KerasArchive* source, const RunOptions& options);

// The multiples of which widths should be: the smallest for which the device offers the same kernel of a convolution
// as for a width of 128 channels.
int64_t preferred_multiple(const Device& device);

nlohmann::ordered_json price_json(const ShrinkPrice& price);
// Two columns, before and after.
std::string price_table(const ShrinkPrice& before, const ShrinkPrice& after);

}  // namespace plimsoll::engine
