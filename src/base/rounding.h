#pragma once

namespace plimsoll::engine {

// A number as float32 holds it. Never inlined: of two such roundings side by side GCC 12's vectoriser makes none.
[[gnu::noinline]] inline double through_float32(double value) {
  return static_cast<double>(static_cast<float>(value));
}

}  // namespace plimsoll::engine
