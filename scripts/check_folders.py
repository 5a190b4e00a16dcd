#!/usr/bin/env python3
"""Checks the #include lines: a folder of src/ may include only itself and folders before it in the order.

    scripts/check_folders.py [ROOT]     prints FILE:LINE: RULE for each breach; exits with 1 if there is one
    scripts/check_folders.py --self-test
"""

import pathlib
import re
import sys
import tempfile

# The folders in the order of the data flow. docs/internals/architecture.md shows it.
ORDER = ["base", "formats", "graph", "ops", "model", "autodiff", "program", "device", "levers", "lower", "plan", "search",
         "backends", "data", "execute", "shrink", "report", "explain", "api", "cli"]
RANK = {name: rank for rank, name in enumerate(ORDER)}

# Folders that may not include all folders before them.
ONLY = {
    "formats": ({"base", "formats"}, "formats turn bytes into plain structs and must not depend on training"),
    "graph": ({"base", "graph"}, "the graph must not depend on a file format"),
    "ops": ({"base", "graph", "ops"}, "an op must not depend on a file format"),
}
# These folders must work for a device that is not in this machine.
DEVICE_ONLY = {"levers", "lower", "plan", "search"}
# Headers of libraries that belong to one backend. They are absent if that backend is not built.
LIBRARIES = {"backends/cpu": re.compile(r"^(dnnl|oneapi/)"), "backends/cuda": re.compile(r"^(cuda|cudnn|cublas)")}
# The float64 reference and the code shared by backends are always built; every other backend is optional.
ALWAYS_BUILT = ("backends/reference", "backends/common")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".h", ".inl", ".cpp", ".cu", ".cuh"}


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def library_rule(place, target):
    for backend, headers in LIBRARIES.items():
        if headers.match(target) and not place.startswith(backend):
            return f"<{target}> belongs to {backend}; other folders must use a backend through device/"
    return None


def source_rule(place, target):
    """Why a file in src/`place` may not include "`target`", or None."""
    folder, other = place.split("/")[0], target.split("/")[0]
    if other == "plimsoll":
        if place == "base" and target == "plimsoll/error.h":  # only errors are shared by both sides
            return None
        return None if folder in ("api", "cli") else f"src/{folder} is below the public API and must not include it"
    if other not in RANK or "/" not in target:
        return f'"{target}": write includes from src/ ("graph/graph.h")'
    if folder in DEVICE_ONLY and other == "backends":
        return f"{folder} must use a backend only through device/"
    if folder in ONLY and other not in ONLY[folder][0]:
        return f"{folder} must not include {other}: {ONLY[folder][1]}"
    if RANK[other] > RANK[folder]:
        return f"{folder} must not include {other}, which comes after it in the order"
    if folder == other == "backends":
        ours, theirs = "/".join(place.split("/")[:2]), "/".join(target.split("/")[:2])
        if place == "backends":  # the registry, which may include every backend
            return None
        if theirs not in (ours, *ALWAYS_BUILT) and target.count("/") > 1:
            return f"{ours} must not include {theirs}: each backend is optional"
    return None


def public_rule(target):
    if target.startswith("plimsoll/"):
        return None
    return f'"{target}": what users include may not reach into src/'


def files_of(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in SOURCES) if folder.is_dir() else []


def check(root):
    """Breaches as (file, line, rule), in order."""
    breaches = []
    source = root / "src"
    for folder in sorted(p.name for p in source.iterdir() if p.is_dir()) if source.is_dir() else []:
        if folder not in RANK:
            breaches.append((f"src/{folder}", 0, f"this folder is not in the order ({', '.join(ORDER)})"))
            continue
        for path in files_of(source / folder):
            place = path.parent.relative_to(source).as_posix()
            for line, kind, target in includes(path):
                rule = library_rule(place, target)
                if rule is None and kind == '"':
                    rule = source_rule(place, target)
                if rule:
                    breaches.append((path.relative_to(root).as_posix(), line, rule))
    for folder in ("include", "examples"):
        for path in files_of(root / folder):
            for line, kind, target in includes(path):
                rule = public_rule(target) if kind == '"' else library_rule(folder, target)
                if rule:
                    breaches.append((path.relative_to(root).as_posix(), line, rule))
    return breaches


# A file, its only include, and whether that is a breach.
SELF_TEST = [
    ("src/base/bytes.h", '#include "base/error.h"', False),
    ("src/base/bad.h", '#include "graph/graph.h"', True),
    ("src/formats/keras/file.h", '#include "formats/hdf5/file.h"', False),
    ("src/formats/npy/bad.h", '#include "graph/graph.h"', True),
    ("src/ops/bad.cpp", '#include "formats/npy/npy.h"', True),
    ("src/model/model.h", '#include "formats/keras/file.h"', False),
    ("src/plan/bad.cpp", '#include "backends/cpu/device.h"', True),
    ("src/plan/indented.cpp", '  #  include "search/search.h"', True),
    ("src/search/comment.cpp", '// #include "cli/cli.h"', False),
    ("src/levers/bad.cpp", '#include <dnnl.hpp>', True),
    ("src/backends/cpu/conv.cpp", '#include <dnnl.hpp>', False),
    ("src/backends/cpu/other.cpp", '#include "backends/reference/reference.h"', False),
    ("src/backends/cpu/shared.cpp", '#include "backends/common/node_view.h"', False),
    ("src/backends/cuda/bad.cpp", '#include "backends/cpu/conv.h"', True),
    ("src/backends/cpu/bad.cpp", '#include "execute/run.h"', True),
    ("src/backends/registry.cpp", '#include "backends/cpu/cpu.h"', False),
    ("src/execute/run.cpp", '#include "backends/cpu/device.h"', False),
    ("src/execute/bad.cpp", '#include "plimsoll/plimsoll.h"', True),
    ("src/api/api.cpp", '#include "plimsoll/plimsoll.h"', False),
    ("src/graph/bad.cpp", '#include "graph.h"', True),
    ("src/misc/bad.cpp", '#include <vector>', True),
    ("include/plimsoll/plimsoll.h", '#include <string>', False),
    ("include/plimsoll/bad.h", '#include "base/error.h"', True),
    ("examples/seed.cpp", '#include "plimsoll/plimsoll.h"', False),
    ("examples/bad.cpp", '#include "model/model.h"', True),
]


def self_test():
    wrong = 0
    for name, line, expected in SELF_TEST:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text("// a file\n" + line + "\n", encoding="utf-8")
            found = check(pathlib.Path(folder))
            if bool(found) != expected or (expected and found[0][1] not in (0, 2)):
                print(f"self-test: {name}: {line}: expected {'a breach' if expected else 'none'}, found {found}")
                wrong += 1
    print(f"check_folders: self-test of {len(SELF_TEST)} cases, {wrong} wrong")
    return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    breaches = check(root)
    for name, line, rule in breaches:
        print(f"{name}:{line}: {rule}")
    print(f"check_folders: {len(breaches)} breaches of the folder order")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
