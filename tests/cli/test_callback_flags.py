"""Flags of callbacks: their form, and metrics that a run does not compute."""

import os
import shutil

import pytest

import program
from bad_files import GOLDEN, refused
from checkpoints import fit


@pytest.mark.parametrize(
    "flag, values",
    (
        (
            "--early-stopping",
            ("val_loss", ":3", "loss:", "loss:x", "loss:-1", "loss:1.5", "loss:3:best", "loss:3:restore-best:1"),
        ),
        (
            "--reduce-lr-on-plateau",
            ("loss", "loss:3", "loss:3:1", "loss:3:0", "loss:3:-0.5", "loss:3:nan", "loss:3:0.5:1", ":3:0.5", "loss:x:0.5"),
        ),
        ("--keep-checkpoints", ("0", "-1", "x", "1.5")),
        ("--save-best", ("best.h5", "best", "best.h5:loss")),
    ),
)
def test_what_does_not_parse_is_refused(flag, values, tmp_path):
    for value in values:
        refused(201, *fit(flag, tmp_path / value if flag == "--save-best" else value), mentions=[flag])


@pytest.mark.parametrize("metric", ("acuracy", "val_loss", "lr"))
def test_a_metric_that_is_not_computed_is_refused_with_those_that_are(metric, tmp_path):
    for flag, value in (
        ("--early-stopping", f"{metric}:2"),
        ("--early-stopping", f"{metric}:2:restore-best"),
        ("--reduce-lr-on-plateau", f"{metric}:2:0.5"),
        ("--save-best", f"{tmp_path / 'best.keras'}:{metric}"),
    ):
        refused(201, *fit(flag, value), mentions=[flag, f"'{metric}'", "it computes loss, accuracy"])
    assert not list(tmp_path.iterdir())


def test_save_best_watches_what_there_is(tmp_path):
    """It watches the training loss if there is no validation."""
    program.run(*fit("--epochs", 2, "--save-best", tmp_path / "best.keras"))
    assert (tmp_path / "best.keras").exists()


def test_a_place_for_the_best_that_cannot_be_written_is_found_before_training(tmp_path):
    refused(602, *fit("--save-best", tmp_path / "none" / "best.keras"))


def test_help_has_every_flag():
    text = program.run("fit", "--help").stdout
    for flag in ("--early-stopping", "--reduce-lr-on-plateau", "--save-best", "--csv-log", "--keep-checkpoints", "--resume"):
        assert f"  {flag} " in text, flag


def test_a_run_whose_data_have_a_name_that_is_no_text_resumes(tmp_path):
    """The name contains bytes that are not UTF-8."""
    folder = os.fsencode(tmp_path)
    names = []
    for name in ("x", "y"):
        names.append(os.path.join(folder, name.encode() + b"\xff.npy"))
        shutil.copy(GOLDEN / f"cnn_{name}.npy", names[-1])
    where = os.fsdecode(b",".join(names))
    for flags in ((), ("--resume",)):
        program.run(*fit("--epochs", 1 + len(flags), "--checkpoint", tmp_path / "run", *flags, data_=where))
