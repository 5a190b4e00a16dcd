#include "levers/lever.h"

namespace plimsoll::engine {

std::string_view name_of(Effect effect) {
  switch (effect) {
    case Effect::kBitwise:
      return "bitwise";
    case Effect::kRounding:
      return "rounding";
    case Effect::kTraining:
      return "training";
  }
  return "";
}

}  // namespace plimsoll::engine
