"""Which cases of a large set run today. `make test` takes a few of them, `make test-long` (PLIMSOLL_SLOW_TESTS) takes all.

The choice depends on a seed: $PLIMSOLL_SEED, or the date, so that a week of runs covers more than one run. The seed is printed at
the end of the tests; a failure is repeated with PLIMSOLL_SEED=<that number>.
"""

import datetime
import os

import numpy as np

LONG = os.environ.get("PLIMSOLL_SLOW_TESTS", "") not in ("", "0")
SEED = int(os.environ.get("PLIMSOLL_SEED") or datetime.date.today().strftime("%Y%m%d"))


def rng(*key):
    """A generator that depends on the seed and on what it is for."""
    text = "/".join(map(str, key)).encode()
    return np.random.default_rng([SEED, *text])


def some(cases, count, what):
    """All cases in a long run, else `count` of them, in their own order."""
    cases = list(cases)
    if LONG or count >= len(cases):
        return cases
    chosen = rng("some", what).permutation(len(cases))[:count]
    return [cases[i] for i in sorted(chosen)]
