"""Finds the commands in the code blocks of README.md and docs/, with the output that the page shows for each."""

import dataclasses
import re

import program

FIRST_WORDS = ("plimsoll ", "make", "cmake", "ctest", "python3", "ulimit", ".venv/", "scripts/", "bench/", "build/", "build-fuzz/")
# Indented blocks that hold no commands, by how they begin.
FORMULAS = ("budget  >=",)


@dataclasses.dataclass
class Command:
    page: str
    line: int
    text: str
    output: list = dataclasses.field(default_factory=list)

    def __str__(self):
        return f"{self.page}:{self.line}: {self.text}"


def pages():
    return [program.ROOT / "README.md", *sorted((program.ROOT / "docs").rglob("*.md"))]


def name_of(path):
    return path.relative_to(program.ROOT).as_posix()


def fenced_and_indented(text):
    """Yields (kind, first line's number, lines) of each code block."""
    lines, i = text.splitlines(), 0
    while i < len(lines):
        if lines[i].lstrip().startswith("```"):
            start = i + 1
            i = next(j for j in range(start, len(lines)) if lines[j].lstrip().startswith("```"))
            yield "fenced", start + 1, lines[start:i]
        elif lines[i].startswith("    ") and (i == 0 or not lines[i - 1].strip()):
            start = i
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                i += 1
            yield "indented", start + 1, [line.strip() for line in lines[start:i]]
            continue
        i += 1


def without_comment(text):
    """`make fuzz     60 s per target` and `make fuzz  # ...` are both `make fuzz`."""
    return re.split(r"\s+#\s|\s{3,}", text.strip())[0]


def is_command(text):
    return text.startswith(FIRST_WORDS)


def commands_of_block(page, kind, number, lines):
    found, i = [], 0
    if kind == "indented" and lines[0].startswith(FORMULAS):
        return []
    with_prompt = any(line.startswith("$ ") for line in lines)
    while i < len(lines):
        line, at = lines[i], number + i
        if line.startswith("$ ") or (line and not with_prompt and (kind == "indented" or is_command(line))):
            text = line.removeprefix("$ ")
            while text.endswith("\\"):
                i += 1
                text = text[:-1].rstrip() + " " + lines[i].strip()
            for part in without_comment(text).split(" && "):
                found.append(Command(page, at, part))
        elif with_prompt and found:
            found[-1].output.append(line)
        i += 1
    return found


def commands_of(path):
    page = name_of(path)
    return [c for block in fenced_and_indented(path.read_text(encoding="utf-8")) for c in commands_of_block(page, *block)]
