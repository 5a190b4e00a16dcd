"""keras.backend.clear_session() gives back what engines hold, as it gives back what Keras holds."""

import weakref

from keras.src.backend.common import global_state


class _Mark:
    """Lies in Keras's global state. clear_session() drops that state, under whichever of its names it was called."""


def at_clear(call):
    """Calls `call` when the session is cleared from this thread."""
    mark = global_state.get_global_attribute("plimsoll_mark")
    if mark is None:
        mark = _Mark()
        global_state.set_global_attribute("plimsoll_mark", mark)
    weakref.finalize(mark, call).atexit = False
