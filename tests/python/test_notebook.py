"""The code cells of examples/python.ipynb run in order, and show what the text around them says."""

import json
import pathlib
import subprocess

NOTEBOOK = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python.ipynb"
RUNNER = """
import ast, sys
for cell in sys.stdin.read().split("\\0"):
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), globals())
    if last is not None:  # what a notebook shows
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), globals())
        print(value if not hasattr(value, "_repr_html_") else value._repr_html_())
"""


def test_every_cell_runs(python):
    cells = ["".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    ended = subprocess.run([python, "-c", RUNNER], input="\0".join(cells), capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr
    for shown in ("NVIDIA GeForce RTX 4090", "val_accuracy", "held by the script", "loss of step 2", "P301"):
        assert shown in ended.stdout, shown
