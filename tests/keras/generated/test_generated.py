"""Random configurations of every class that Keras exports, against Keras. `make test-long` draws 30 of each class and writes
docs/coverage.md; `make test` draws one of some classes, and checks that page as far as these can tell. A failure names the seed:
PLIMSOLL_SEED=<seed> repeats the run, and generated/coverage.py prints all outcomes of one class."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

import keras
import pytest

import classes
import coverage
import outcome
import program
import rotation

DRAWS = 30 if rotation.LONG else 1
SAMPLE = {"layers": 36, "losses": 8, "metrics": 8, "optimizers": 6}
CHOSEN = [(kind, name) for kind in coverage.KINDS for name in rotation.some(coverage.NAMES[kind], SAMPLE[kind], kind)]
outcomes = []


@pytest.mark.parametrize("kind,name", CHOSEN)
def test_class(kind, name, tmp_path):
    ours = []
    for number in range(DRAWS):
        ours.append(outcome.run(kind, coverage.draw(kind, name, number), tmp_path / str(number)))
    outcomes.extend(ours)
    wrong = [one for one in ours if one.status == "wrong"]
    assert not wrong, f"seed {rotation.SEED}: {len(wrong)} of {len(ours)}\n" + "\n\n".join(
        f"{one.text}\n{one.reasons[0]}" for one in wrong[:5]
    )


def test_the_page_is_up_to_date():
    if rotation.LONG:
        coverage.PAGE.write_text(coverage.text(outcomes))
    page = coverage.read_page()
    for kind in coverage.KINDS:
        for name in (*coverage.NAMES[kind], *classes.later(kind)):
            assert (kind, name) in page or name in classes.OWN_CODE, f"docs/coverage.md has no row for {name}"
    old = [reason for one in outcomes if one.status != "wrong" and (reason := coverage.stale(one, page))]
    assert not old, "docs/coverage.md is out of date, write it with tests/keras/generated/coverage.py:\n" + "\n".join(old)


@pytest.mark.parametrize("name", classes.later("layers"))
def test_later_families_are_named_in_the_error(name, tmp_path):
    """The program says of each class what docs/coverage.md says."""
    config = json.loads(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="it")]).to_json())
    layer = config["config"]["layers"][-1]
    layer["class_name"], layer["config"] = name, {"name": "it"}
    (tmp_path / "model.json").write_text(json.dumps(config))
    ended = program.run("plan", tmp_path / "model.json", "--batch-size", 1, "--optimizer", "sgd", "--loss", "mse", expect=2)
    assert f"layer 'it' ({name})" in ended.stderr, ended.stderr
    words = classes.later("layers")[name]
    if words.startswith("not yet"):
        assert words in ended.stderr, ended.stderr
