"""The scripts of examples/seeds, as they are: with TensorFlow's losses, or in TensorFlow with the reason."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEEDS = ROOT / "examples" / "seeds"
SEEDED = ROOT / "tests" / "python" / "seeded.py"
ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "",
               "OMP_NUM_THREADS": "2"}


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=900, env=ENVIRONMENT)


def both(python, script, *flags):
    """(TensorFlow's run, ours), with the same seeds."""
    program = pathlib.Path(python).parent / "plimsoll"
    return run(python, SEEDED, SEEDS / script), run(program, "run", *flags, SEEDED, SEEDS / script)


def losses(ended):
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line.startswith("Loss")]
    found = [float(number) for line in lines for number in re.findall(r"\d+\.\d+(?:e-?\d+)?", line)]
    assert found, ended.stdout
    return found


SLOW = pytest.mark.skipif(not os.environ.get("PLIMSOLL_SLOW_TESTS"), reason="PLIMSOLL_SLOW_TESTS=1 runs it")


@pytest.mark.parametrize("script", ["001_example_1.py", *(pytest.param(f"{name}.py", marks=SLOW) for name in
                         ("001_example_3", "000_example_1", "003_example_1", "003_example_3"))])
def test_scripts_that_run_here(python, script):
    theirs, ours = both(python, script, "--budget", "3GiB", "--no-fallback")
    assert losses(ours) == pytest.approx(losses(theirs), rel=1e-3)
    assert "runs in" not in ours.stderr and "fits:" in ours.stderr.lower()


@pytest.mark.parametrize("script, reason", [("000_example_2.py", "GradientTape"), pytest.param("000_example_3.py", "scales the loss", marks=SLOW)])
def test_scripts_that_fall_back(python, script, reason):
    theirs, ours = both(python, script)
    assert losses(ours) == pytest.approx(losses(theirs), rel=1e-3)
    assert reason in ours.stderr


def test_001_example_2_trains_in_memory_in_which_tensorflow_is_killed(python, tmp_path):
    """The article: "This can potentially trigger an OOM error"."""
    script, program = SEEDS / "001_example_2.py", pathlib.Path(python).parent / "plimsoll"
    limited = (ROOT / "scripts" / "in_cgroup.sh", "--report", tmp_path / "report", "1500MiB", "--")
    theirs = run(*limited, python, SEEDED, script)
    if theirs.returncode == 77:
        pytest.skip("no memory cgroup can be made here")
    assert "oom_killed=yes" in (tmp_path / "report").read_text(), theirs.stderr
    ours = run(*limited, program, "run", "--budget", "1400MiB", "--no-fallback", SEEDED, script)
    assert "oom_killed=no" in (tmp_path / "report").read_text(), ours.stderr
    assert losses(ours) == pytest.approx(losses(run(python, SEEDED, script)), rel=1e-3)
    assert len(losses(ours)) == 8
