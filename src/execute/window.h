// One optimizer step: a window with its learning rate and its micro-batches.
#pragma once

#include "execute/cutter.h"
#include "execute/weights.h"

namespace plimsoll::engine {

// Returns the next window with its learning rate. The rate depends on how many updates were applied. If the device runs
// a step ahead, the host does not yet know whether an overflow prevented the last update. So the window carries the
// rates for both cases, and the device selects one. At most one window may wait to be collected when this is called.
Result<Window> next_window(Session& session, const OptimizerState& state, int64_t samples, uint64_t seed);

// Reads the next batch of a reader. Fails with kInternal if it is not the batch that `cut` names.
Status read_cut(Prefetcher& reader, const BatchRequest& cut, const BatchBuffers& into);

// Accumulates the micro-batches of a window, from the cutter's position to the window's end. `read`, Status(const
// BatchRequest&, const BatchBuffers&), fills each micro-batch. `go_on`, bool(const BatchRequest&), is called after each
// one; if it returns false, the rest of the window is skipped. Returns whether the window is complete. Allocates
// nothing.
template <typename Read, typename GoOn>
Result<bool> accumulate_window(Session& session, Cutter& cutter, const Read& read, const GoOn& go_on) {
  for (;;) {
    const auto cut = cutter.next();
    if (!cut) return fail(ErrorCode::kInternal, "a window was asked for after the last one");
    // The lambda below captures one pointer, which a std::function stores without an allocation.
    const auto both = [&](const BatchBuffers& into) { return read(*cut, into); };
    PLIMSOLL_TRY(session.accumulate(cut->count, [&both](const BatchBuffers& into) { return both(into); }));
    const bool goes_on = go_on(*cut);
    if (cut->last_of_window) return true;
    if (!goes_on) return false;
  }
}

}  // namespace plimsoll::engine
