#include "execute/window.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll::engine {

Result<Window> next_window(Session& session, const OptimizerState& state, int64_t samples, uint64_t seed) {
  Window window{samples, state.iteration, state.learning_rate, seed};
  const Optimizer& optimizer = session.model().optimizer();
  if (optimizer.schedule.is_null()) return window;
  PLIMSOLL_ASSIGN(window.known_skips, session.skipped_updates());
  const int64_t made = state.iteration - window.known_skips;
  window.learning_rate = learning_rate_at(optimizer, made);
  window.rate_if_skipped = learning_rate_at(optimizer, std::max<int64_t>(made - 1, 0));
  return window;
}

Status read_cut(Prefetcher& reader, const BatchRequest& cut, const BatchBuffers& into) {
  PLIMSOLL_ASSIGN(const BatchRequest served, reader.next(into));
  if (served == cut) return {};
  return fail(ErrorCode::kInternal,
              fmt::format("{} samples from {} of epoch {} were read, but {} from {} of epoch {} were expected",
                          served.count, served.first, served.epoch, cut.count, cut.first, cut.epoch));
}

}  // namespace plimsoll::engine
