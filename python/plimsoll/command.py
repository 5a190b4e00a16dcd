"""The command `plimsoll` of the Python package.

Commands for a Keras script (run, plan, check) run here; every other command is the C++ program's, which lies inside the
package.
"""

import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).parent / "bin" / "plimsoll"


def main():
    arguments = sys.argv[1:]
    verb = arguments[0] if arguments else ""
    script = any(text.endswith(".py") for text in arguments[1:])
    if verb in ("run", "check") or (verb == "plan" and script):
        from plimsoll import scripts

        return scripts.main(verb, arguments[1:])
    os.execv(PROGRAM, ["plimsoll", *arguments])


if __name__ == "__main__":
    sys.exit(main())
