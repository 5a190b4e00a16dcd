#include "report/advice.h"

namespace plimsoll::engine {

std::string_view words_of(Effect effect) {
  return effect == Effect::kBitwise    ? "results identical"
         : effect == Effect::kRounding ? "equal up to rounding"
                                       : "changes training";
}

}  // namespace plimsoll::engine
