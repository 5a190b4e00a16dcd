#!/usr/bin/env python3
"""Checks that a program has the hardening options of CMakeLists.txt, which make bugs harder to exploit.

    scripts/check_hardening.py PROGRAM...     prints what is missing; exits with 1 if anything is
"""

import re
import subprocess
import sys


def readelf(flag, program):
    return subprocess.run(["readelf", "-W", flag, program], check=True, capture_output=True, text=True).stdout


def missing(program):
    header, segments = readelf("-h", program), readelf("-l", program)
    dynamic, symbols = readelf("-d", program), readelf("--dyn-syms", program)
    stack = re.search(r"GNU_STACK.*", segments)
    checks = {
        "position-independent (PIE)": re.search(r"Type:\s+DYN", header) and "INTERP" in segments,
        "relocations read-only (GNU_RELRO)": "GNU_RELRO" in segments,
        "all symbols bound at start (BIND_NOW)": re.search(r"BIND_NOW|FLAGS_1.*\bNOW\b", dynamic),
        "no executable stack (GNU_STACK RW)": stack and "RWE" not in stack.group(),
        "no segment both writable and executable": not re.search(r"LOAD.*RWE", segments),
        "stack protector (__stack_chk_fail)": "__stack_chk_fail" in symbols,
        "checked copies (_FORTIFY_SOURCE)": re.search(r"__\w+_chk\b(?<!__stack_chk)", symbols),
    }
    return [name for name, held in checks.items() if not held]


def main():
    failed = False
    for program in sys.argv[1:]:
        for name in missing(program):
            print(f"{program}: {name}: missing")
            failed = True
    return 1 if failed or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
