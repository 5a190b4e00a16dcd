#!/usr/bin/env python3
"""Checks from #include lines that the folders keep their order: a folder of src/ includes only itself and folders above it.

    scripts/check_folders.py [ROOT]     prints FILE:LINE: RULE for each breach; exits 1 if there is one
    scripts/check_folders.py --self-test
"""

import pathlib
import re
import sys
import tempfile

# The path of the data, from the top. docs/internals/architecture.md draws it.
ORDER = ["base", "formats", "graph", "ops", "model", "autodiff", "program", "device", "levers", "lower", "plan", "search",
         "backends", "data", "execute", "shrink", "report", "api", "cli"]
RANK = {name: rank for rank, name in enumerate(ORDER)}

# Folders that may include less than what stands above them.
ONLY = {
    "formats": ({"base", "formats"}, "formats turn bytes into plain structs and know nothing of learning"),
    "graph": ({"base", "graph"}, "the graph knows no file format"),
    "ops": ({"base", "graph", "ops"}, "an op knows no file format"),
}
# A plan must be possible for a device that is not in this machine.
DEVICE_ONLY = {"levers", "lower", "plan", "search"}
# Headers of libraries that belong to one backend, and are absent where that backend is not built.
LIBRARIES = {"backends/cpu": re.compile(r"^(dnnl|oneapi/)"), "backends/cuda": re.compile(r"^(cuda|cudnn|cublas)")}
# The float64 reference and what backends share are always built; every other backend is optional.
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
            return f"<{target}> belongs to {backend}; elsewhere a backend is seen through device/"
    return None


def source_rule(place, target):
    """Why a file in src/`place` may not include "`target`", or None."""
    folder, other = place.split("/")[0], target.split("/")[0]
    if other == "plimsoll":
        if place == "base" and target == "plimsoll/error.h":  # errors are the one thing both sides share
            return None
        return None if folder in ("api", "cli") else f"src/{folder} is below the public API and must not include it"
    if other not in RANK or "/" not in target:
        return f'"{target}": write includes from src/ ("graph/graph.h")'
    if folder in DEVICE_ONLY and other == "backends":
        return f"{folder} sees a backend only through device/"
    if folder in ONLY and other not in ONLY[folder][0]:
        return f"{folder} must not include {other}: {ONLY[folder][1]}"
    if RANK[other] > RANK[folder]:
        return f"{folder} must not include {other}, which stands below it in the order"
    if folder == other == "backends":
        ours, theirs = "/".join(place.split("/")[:2]), "/".join(target.split("/")[:2])
        if place == "backends":  # the registry, which knows every backend
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
            breaches.append((f"src/{folder}", 0, f"no place in the order is known for this folder ({', '.join(ORDER)})"))
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


# File, its one include, and whether that is a breach.
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
