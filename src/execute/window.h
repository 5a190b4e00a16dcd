// One optimizer step: the window with the learning rate it has, and its micro-batches.
#pragma once

#include "execute/cutter.h"
#include "execute/weights.h"

namespace plimsoll::engine {

// The learning rate depends on how many updates were applied. A device that runs a step ahead has not told yet whether
// an overflow prevented the last one: the window carries the rate for either case, and the device takes the right one.
// So at most one window may wait to be collected here.
Result<Window> next_window(Session& session, const OptimizerState& state, int64_t samples, uint64_t seed);

// The next batch of a reader, which must be the one that `cut` asks for: kInternal where it is another one.
Status read_cut(Prefetcher& reader, const BatchRequest& cut, const BatchBuffers& into);

// The micro-batches of a window, from where the cutter stands to the window's end. `read` fills each:
// Status(const BatchRequest&, const BatchBuffers&). `go_on`, bool(const BatchRequest&), is asked after each; where it
// says no, the rest of the window is left. Returns whether the window is whole. Allocates nothing.
template <typename Read, typename GoOn>
Result<bool> accumulate_window(Session& session, Cutter& cutter, const Read& read, const GoOn& go_on) {
  for (;;) {
    const auto cut = cutter.next();
    if (!cut) return fail(ErrorCode::kInternal, "a window was asked for after the last one");
    // One pointer, which a std::function holds in place.
    const auto both = [&](const BatchBuffers& into) { return read(*cut, into); };
    PLIMSOLL_TRY(session.accumulate(cut->count, [&both](const BatchBuffers& into) { return both(into); }));
    const bool goes_on = go_on(*cut);
    if (cut->last_of_window) return true;
    if (!goes_on) return false;
  }
}

}  // namespace plimsoll::engine
