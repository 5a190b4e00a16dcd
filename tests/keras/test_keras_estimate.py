"""What Keras would need for a step: the estimate of `plan` against the measured steps of bench/keras_estimate.md, and against steps that
are measured here."""

import os
import re
import sys

import pytest

import program

MOST = 0.15
PAGE = program.ROOT / "bench" / "keras_estimate.md"
sys.path.insert(0, str(PAGE.parent))


def published():
    """(model, batch, MiB of the measured step, MiB of the estimate) of the tables that bench/keras_estimate.py wrote."""
    text = PAGE.read_text().split("<!--", 1)[0]
    rows = re.findall(r"^\| (\w+) \| (\d+) \| \d+ \| (\d+) \| (\d+) \| ", text, re.MULTILINE)
    return [(name, int(batch), int(step), int(estimate)) for name, batch, step, estimate in rows]


def test_the_published_errors_are_at_most_15_percent():
    rows = published()
    assert len(rows) == 18
    for name, batch, step, estimate in rows:
        assert abs(estimate - step) <= MOST * step + 0.5, (name, batch)


def test_the_published_estimate_is_that_of_plan():
    plan = program.run("plan", "seed-2", "--batch-size", 128, "--device", "cpu", "--json").json()
    (page,) = [estimate for name, batch, _, estimate in published() if (name, batch) == ("seed_2", 128)]
    assert plan["keras"]["step_bytes"] / 2**20 == pytest.approx(page, abs=1)


def step_bytes(*flags):
    return program.run("plan", "seed-1", "--batch-size", 32, "--device", "cpu", "--json", *flags).json()["keras"]["step_bytes"]


def test_the_estimate_knows_the_state_of_the_optimizer():
    adam, sgd = step_bytes("--optimizer", "adam"), step_bytes("--optimizer", "sgd")
    weights = sum(layer["weight_bytes"] for layer in program.run("plan", "seed-1", "--device", "cpu", "--json").json()["layers"])
    assert adam - sgd == pytest.approx(2 * weights, rel=0.1)  # Adam's two moments


@pytest.mark.skipif(not os.environ.get("PLIMSOLL_SLOW_TESTS"), reason="two minutes")
@pytest.mark.parametrize("name, batch", (("seed_2", 32), ("resnet20", 128), ("ResNet50", 16), ("VGG16", 16)))
def test_a_step_of_keras_needs_what_the_estimate_says(name, batch, tmp_path):
    import keras_estimate

    own = keras_estimate.measured("tiny", 32, str(tmp_path))
    step = keras_estimate.measured(name, batch, str(tmp_path)) - own
    assert keras_estimate.estimated(batch, str(tmp_path))["step_bytes"] == pytest.approx(step, rel=MOST)
