#include "api/planning_limit.h"

#include <fmt/format.h>

#include "device/host_room.h"

namespace plimsoll::engine {

Bytes reading_limit(const RunOptions& options) {
  return options.budget.value_or(free_host_bytes());
}

Bytes planning_limit(const Budget& budget, const Device& device) {
  return device.info().own_memory ? free_host_bytes() : budget.bytes;
}

Error planning_does_not_fit(const RunOptions& options, Bytes most) {
  Error error{ErrorCode::kDoesNotFit,
              fmt::format("reading and planning {} takes more than {}", options.model,
                          format_bytes(std::max(most, HeapLimit::kGranted))),
              {"there is no plan, so the memory that the model needs is unknown"},
              {}};
  error.remedy("a larger --budget");
  return error.remedy("if you do not expect a model of this size: the file may be damaged or malicious");
}

}  // namespace plimsoll::engine
