"""Loads the module of the C++ library, with OpenMP's threads set up as the command sets them up.

A thread that waits for another one spins before it sleeps, by default so long that a step takes ten times as long and more where other programs
want the processors too. OpenMP's library reads how long when it is loaded, so the variable stands in the environment during the load
alone. Where another package has loaded that library before, its setting stays.
"""

import os


def load():
    unset = "GOMP_SPINCOUNT" not in os.environ and "OMP_WAIT_POLICY" not in os.environ
    if unset:
        os.environ["GOMP_SPINCOUNT"] = "2000"
    try:
        import plimsoll._core  # noqa: F401
    finally:
        if unset:
            del os.environ["GOMP_SPINCOUNT"]
