"""A call that Plimsoll cannot run goes to Keras: never silently, and never after the first step."""

import itertools
import sys
import types

from plimsoll import errors, settings

REASONS = (errors.Unsupported,)


class Kept:
    """The arguments of a call. Looking at a generator's first batch does not lose it for Keras."""

    def __init__(self, arguments, named):
        self._used = {}
        self.arguments = tuple(self._watch(value) for value in arguments)
        self.named = {name: self._watch(value) for name, value in named.items()}

    def _watch(self, value):
        if not isinstance(value, types.GeneratorType):
            return value
        seen = []

        def recording():
            for item in value:
                seen.append(item)
                yield item

        made = recording()
        self._used[id(made)] = (made, seen, value)
        return made

    def again(self):
        """The same arguments for another reader, from their beginning."""
        return tuple(map(self._restore, self.arguments)), {name: self._restore(v) for name, v in self.named.items()}

    def _restore(self, value):
        if id(value) not in self._used:
            return value
        _, seen, rest = self._used[id(value)]
        return (item for item in itertools.chain(seen, rest))


def say(what, framework, reasons):
    """Tells on stderr that a framework runs a call, why, and which settings do not hold."""
    lines = [f"plimsoll: {what} runs in {framework}, because {reasons.what}"]
    lines += [f"  {reason}" for reason in reasons.facts]
    lost = [f"{option}={value!r}" for option, value in settings.complete({}).items()]
    lines.append(f"  not in effect: {', '.join(lost) if lost else 'the memory budget'}")
    lines.append("  to stop here instead: fallback=False (plimsoll run --no-fallback)")
    print("\n".join(lines), file=sys.stderr, flush=True)
