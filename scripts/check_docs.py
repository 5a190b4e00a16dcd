#!/usr/bin/env python3
"""Checks that the docs and the code agree.

Each ErrorCode of include/plimsoll/error.h has a page docs/errors/P###.md that names it and its exit code, and each page has a code. The
index docs/errors/README.md lists them all. docs/keras.md lists every supported layer, loss, metric, optimizer and schedule. Links between Markdown files
are not broken. docs/memory.svg and README.md show the numbers of bench/results.md. No source file is longer than 500 lines.

    scripts/check_docs.py [ROOT]     prints FILE: WHAT for each breach; exits with 1 if there is one
"""

import pathlib
import re
import sys

import draw_memory

MAX_LINES = 500
# Files that may be longer, each with the reason.
LONG_FILES = {}

CODE = re.compile(r"^\s*(k\w+)\s*=\s*(\d{3}),", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def error_pages(root):
    text = (root / "include/plimsoll/error.h").read_text(encoding="utf-8")
    codes = {f"P{number}": name for name, number in CODE.findall(text)}
    if not codes:
        yield "include/plimsoll/error.h", "no error codes found: has the form of the enum changed?"
    folder = root / "docs/errors"
    pages = {path.stem: path for path in folder.glob("P*.md")}
    for code in sorted(codes.keys() - pages.keys()):
        yield f"docs/errors/{code}.md", f"missing: the page of {codes[code]}"
    for code in sorted(pages.keys() - codes.keys()):
        yield f"docs/errors/{code}.md", "there is no such code in include/plimsoll/error.h"
    for code in sorted(codes.keys() & pages.keys()):
        page = pages[code].read_text(encoding="utf-8")
        if not page.startswith(f"# {code}: "):
            yield f"docs/errors/{code}.md", f"does not begin with '# {code}: '"
        if f"error {code}: " not in page:
            yield f"docs/errors/{code}.md", "has no example of the printed error"
        if f"Exit code {code[1]}" not in page:
            yield f"docs/errors/{code}.md", f"does not say 'Exit code {code[1]}'"
    index = (folder / "README.md").read_text(encoding="utf-8") if (folder / "README.md").exists() else ""
    for code in sorted(codes):
        if f"({code}.md)" not in index:
            yield "docs/errors/README.md", f"does not list {code}"


def keras_names(root):
    """The Keras names in the registries of src/model."""
    page = (root / "docs/keras.md").read_text(encoding="utf-8")
    known = set()
    for path in sorted((root / "src/model").glob("*.cpp")):
        text = path.read_text(encoding="utf-8")
        known.update(re.findall(r'LayerClass\{"(\w+)"', text))
        known.update(re.findall(r'\{"\w+",\s*"(\w+)",\s*"\w*",\s*Target::', text))  # losses
        known.update(re.findall(r'\{"(\w+)",\s*0\.\d+,', text) if path.name == "optimizer_classes.cpp" else [])
        known.update(re.findall(r'\{"(\w+)",\s*"\w*",\s*"\w+",\s*[\[a-z]', text) if path.name.startswith("metrics") else [])
        known.update(re.findall(r's\.kind == "(\w+)"', text))
    if len(known) < 30:
        yield "src/model", "few layers, losses, metrics, optimizers and schedules found: has the form of the registries changed?"
    for name in sorted(known):
        if not re.search(rf"\b{name}\b", page):
            yield "docs/keras.md", f"does not list {name}"


def links(root):
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / "examples").glob("*.md"))]:
        if not path.exists():
            continue
        for target in LINK.findall(path.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
                yield path.relative_to(root).as_posix(), f"links to {target}, which does not exist"


def long_files(root):
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".h", ".inl", ".cpp", ".cu", ".cuh"}:
            continue
        name = path.relative_to(root).as_posix()
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_LINES and name not in LONG_FILES:
            yield name, f"{lines} lines, more than {MAX_LINES}: split the file, or give the reason in scripts/check_docs.py"
        if lines <= MAX_LINES and name in LONG_FILES:
            yield name, f"{lines} lines: no longer needs an exception, remove it from scripts/check_docs.py"
    for name in LONG_FILES:
        if not (root / name).exists():
            yield name, "scripts/check_docs.py has an exception for this file, which does not exist"


def main(arguments):
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    breaches = [*error_pages(root), *keras_names(root), *links(root), *draw_memory.breaches(root), *long_files(root)]
    for name, what in breaches:
        print(f"{name}: {what}")
    print(f"check_docs: {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
