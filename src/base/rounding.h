#pragma once

namespace plimsoll::engine {

// Rounds a number to float32. Must not be inlined: GCC 12's vectoriser removes two such roundings that stand side by
// side.
[[gnu::noinline]] inline double through_float32(double value) {
  return static_cast<double>(static_cast<float>(value));
}

}  // namespace plimsoll::engine
