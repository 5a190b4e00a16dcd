"""docs/coverage.md: what works and what is refused, per class, as the drawn configurations found it.

    python tests/keras/generated/coverage.py [--draws 30] [CLASS ...]    draws, prints every outcome, and writes the page (or the
                                                                         rows of these classes)
"""

import argparse
import collections
import os
import pathlib
import sys
import tempfile

if __name__ == "__main__":
    os.environ.update(KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0")
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import classes
import layer_cases
import objective_cases
import outcome
import program
import rotation

PAGE = program.ROOT / "docs" / "coverage.md"
KINDS = ("layers", "losses", "metrics", "optimizers")
NAMES = {"layers": layer_cases.NAMES, **objective_cases.NAMES}
HEAD = """# Coverage of Keras's classes

This page is written by a test (`tests/keras/generated`), which draws random configurations of every layer, loss, metric and
optimizer that Keras exports, and compares outputs, losses, gradients and a training step with Keras. *works*: every drawn
configuration gave Keras's numbers. *partly*: some configurations are refused before anything runs, for the reasons listed;
N stands for a number. Nothing is computed differently in silence. [keras.md](keras.md) has the details.

Classes of your own and layers that hold code ({own}) cannot be read from a file.

Random functional models of up to 30 layers are compared with Keras by `tests/keras/test_random_models.py`. The models 0 to 149
of PLIMSOLL_SEED=20261118 were run before functions of keras.ops and models per time step were drawn: 8 refused, none different.
With these, the models 0 to 17 of PLIMSOLL_SEED=20261119 were run: none refused, none different; and the models 0 to 243 of
PLIMSOLL_SEED=20261121: 9 refused, one failed to plan, and two had another moving mean of a BatchNormalization that is called
twice; these three are corrected. Three others fail for reasons that lie in Keras or in the drawn model. A run of 2,000 has not
been made yet.
"""


def draw(kind, name, number):
    rng = rotation.rng(kind, name, number)
    return layer_cases.draw_case(name, rng) if kind == "layers" else objective_cases.draw_case(kind, name, rng)


def rows(outcomes):
    """(kind, class) -> (status, reasons) over all its outcomes."""
    found = collections.defaultdict(list)
    for one in outcomes:
        found[one.kind, one.name].append(one)
    table = {}
    for key, ones in found.items():
        works = sum(one.status != "refused" for one in ones)
        reasons = sorted({r for one in ones for r in one.reasons if one.status == "refused"})
        table[key] = ("works" if works == len(ones) else "partly" if works else "refused", reasons)
    return table


def row(name, status, reasons):
    shown = "; ".join(f"`{r}`" for r in reasons).replace("|", "\\|")
    return f"| {name} | {status} | {shown} |".replace("|  |", "| |")


def with_rows(page, outcomes):
    """The page with the rows of these outcomes in place of its own."""
    table, kind, lines = rows(outcomes), None, []
    for line in page.splitlines():
        kind = line[3:].lower() if line.startswith("## ") else kind
        name = line.strip("|").split("|", 1)[0].strip()
        lines.append(row(name, *table[kind, name]) if (kind, name) in table else line)
    return "\n".join(lines) + "\n"


def text(outcomes):
    table, lines = rows(outcomes), [HEAD.format(own=", ".join(sorted(classes.OWN_CODE)))]
    for kind in KINDS:
        lines += [f"## {kind.capitalize()}", "", "| class | | refused |", "| --- | --- | --- |"]
        later = classes.later(kind)
        for name in classes.exported(kind):
            if (kind, name) in table:
                lines.append(row(name, *table[kind, name]))
            elif name in later and name not in classes.OWN_CODE:
                lines.append(f"| {name} | {later[name]} | |")
        lines.append("")
    return "\n".join(lines)


def read_page():
    """(kind, class) -> (status, set of reasons) as committed."""
    table, kind = {}, None
    for line in PAGE.read_text().splitlines() if PAGE.exists() else ():
        if line.startswith("## "):
            kind = line[3:].lower()
        elif line.startswith("| ") and kind and not line.startswith(("| class", "| ---")):
            name, status, reasons = (cell.strip() for cell in line.replace("\\|", "\0").strip("|").split("|", 2))
            table[kind, name] = (status, {r.strip().strip("`").replace("\0", "|") for r in reasons.split("; ") if r.strip()})
    return table


def stale(one, page):
    """Why the committed page disagrees with an outcome; None if it agrees as far as one case can tell."""
    status, reasons = page.get((one.kind, one.name), (None, set()))
    if status is None:
        return f"{one.name} has no row"
    if one.status == "works" and status == "refused":
        return f"{one.name} is listed as refused, but {one.text} works"
    if one.status == "refused" and not set(one.reasons) <= reasons:
        return f"{one.name}: {one.text} is refused for {sorted(set(one.reasons) - reasons)}, which the page does not list"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            for name in NAMES[kind]:
                if options.names and name not in options.names and kind not in options.names:
                    continue
                for number in range(options.draws):
                    try:
                        case = draw(kind, name, number)
                        one = outcome.run(kind, case, pathlib.Path(folder) / f"{kind}_{name}")
                    except Exception as e:
                        print(f"{kind} {name}: no case: {e}", flush=True)
                        break
                    outcomes.append(one)
                    detail = "" if one.status == "works" else "\n    " + "\n    ".join(one.reasons)
                    print(f"{one.status:<8} {kind} {one.text}{detail}", flush=True)
    counts = collections.Counter(one.status for one in outcomes)
    print(f"seed {rotation.SEED}:", ", ".join(f"{v} {k}" for k, v in counts.items()))
    PAGE.write_text(with_rows(PAGE.read_text(), outcomes) if options.names else text(outcomes))


if __name__ == "__main__":
    main()
