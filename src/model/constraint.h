// Constraints on weights, applied after each update (keras/src/constraints/constraints.py).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/expression.h"

namespace plimsoll::engine {

class Config;

struct Constraint {
  enum class Kind : uint8_t { kNonNegative, kMaxNorm, kUnitNorm, kMinMaxNorm };
  Kind kind = Kind::kNonNegative;
  double least = 0, most = 0, rate = 1;
  std::vector<int64_t> axes;  // as in the file: may be negative
};

// Reads a constraint of a layer's configuration. Returns nothing if the key is missing; unsupported ones are listed.
std::optional<Constraint> read_constraint(Config& config, const std::string& key);

// Returns "" or why the constraint does not fit a weight of this shape.
std::string check_constraint(const Constraint& constraint, const Shape& shape);

Expression constrained(const Constraint& constraint, const Expression& weight);

}  // namespace plimsoll::engine
