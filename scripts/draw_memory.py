#!/usr/bin/env python3
"""Draws docs/memory.svg, the picture of README.md: the peak memory of one model in TensorFlow and in Plimsoll.

The peaks of TensorFlow and of Plimsoll without a budget come from the row `seed_2`, batch 128, of bench/results.md. The peak within a
budget is the one that README.md shows for `plimsoll plan seed-2`. README.md must name all three numbers.

    scripts/draw_memory.py             writes docs/memory.svg
    scripts/draw_memory.py --check     exits 1 if the picture or README.md shows other numbers
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = "docs/memory.svg"
WIDTH, HEIGHT = 760, 236
LEFT, FULL = 206, 440  # where bars begin, and how long the longest is


def figures(root):
    """Peaks in MiB: TensorFlow's, Plimsoll's without a budget, the planned one within the budget, and that budget."""
    results = (root / "bench/results.md").read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in results.splitlines() if line.startswith("|")]
    header = next(line for line in lines if "TF peak, MiB" in line)
    row = next(line for line in lines if line[:2] == ["seed_2", "128"] and len(line) == len(header))
    planned = re.search(r"Fits: (\d+) MiB of (\d+) MiB", (root / "README.md").read_text(encoding="utf-8"))
    if not planned:
        raise SystemExit("README.md: no line 'Fits: N MiB of N MiB'")
    return int(row[header.index("TF peak, MiB")]), int(row[header.index("peak, MiB")]), int(planned[1]), int(planned[2])


def picture(tensorflow, plimsoll, planned, budget):
    bars = (
        ("TensorFlow", tensorflow, "#c2410c"),
        ("Plimsoll", plimsoll, "#2563a8"),
        (f"Plimsoll, --budget {budget}MiB", planned, "#0f766e"),
    )
    scale = FULL / max(size for _, size, _ in bars)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="DejaVu Sans, Verdana, sans-serif" role="img">',
        f"<title>Peak memory of the same training: {', '.join(f'{name} {size:,} MiB' for name, size, _ in bars)}</title>",
        # A white card with a grey border: the text on it is readable on a light and on a dark page.
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8" fill="#ffffff" stroke="#8b949e"/>',
        '<text x="20" y="32" font-size="16" font-weight="bold" fill="#1f2328">Peak memory of the same training</text>',
        '<text x="20" y="52" font-size="12" fill="#57606a">images of 128 x 128 pixels, two convolutions, batch 128, Adam, on a CPU</text>',
    ]
    y = 72
    for name, size, colour in bars:
        length = size * scale
        out += [
            f'<text x="{LEFT - 10}" y="{y + 23}" font-size="13" text-anchor="end" fill="#1f2328">{name}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="34" rx="3" fill="{colour}"/>',
            f'<text x="{LEFT + length + 8:.1f}" y="{y + 23}" font-size="15" font-weight="bold" fill="#1f2328">{size:,} MiB</text>',
        ]
        y += 48
    mark = LEFT + budget * scale
    out += [
        f'<path d="M{mark:.1f} {y - 54} V{y - 6}" stroke="#b91c1c" stroke-width="2" stroke-dasharray="5 3"/>',
        f'<text x="{mark + 6:.1f}" y="{y + 2}" font-size="12" fill="#b91c1c">budget: {budget} MiB</text>',
        "</svg>",
    ]
    # The number of the last bar stands behind the mark, not on it.
    out = [line.replace(f'x="{LEFT + planned * scale + 8:.1f}"', f'x="{mark + 8:.1f}"') for line in out]
    return "\n".join(out) + "\n"


def breaches(root):
    numbers = figures(root)
    path = root / PICTURE
    if not path.exists() or path.read_text(encoding="utf-8") != picture(*numbers):
        yield PICTURE, "shows other numbers than bench/results.md and README.md: run scripts/draw_memory.py"
    readme = (root / "README.md").read_text(encoding="utf-8")
    for number in numbers[:3]:
        if f"{number:,} MiB" not in readme:
            yield "README.md", f"does not name {number:,} MiB, which {PICTURE} shows"


def main(arguments):
    if arguments == ["--check"]:
        found = list(breaches(ROOT))
        for name, what in found:
            print(f"{name}: {what}")
        return 1 if found else 0
    (ROOT / PICTURE).write_text(picture(*figures(ROOT)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
