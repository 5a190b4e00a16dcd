"""Tests what `evaluate` and `predict` count against their budget."""

import re

import pytest

from bad_files import GOLDEN, data, refused

MODEL = GOLDEN / "cnn.keras"


@pytest.mark.parametrize("command", ("evaluate", "predict"))
@pytest.mark.parametrize("device,staged", (("rtx-4090-24g", True), ("cpu", False)))
def test_a_gpu_has_a_batch_staged(command, device, staged, tmp_path):
    """A GPU has a staged batch while it computes on the previous one; the CPU reads a batch directly into the arena."""
    flags = ["--data", data()] if command == "evaluate" else ["--data", GOLDEN / "cnn_x.npy", "--output", tmp_path / "p.npy"]
    error = refused(301, command, MODEL, *flags, "--device", device, "--budget", "1MiB", "--batch-size", 4)
    buffers = re.search(r"([0-9.]+ \w+) data buffers", str(error)).group(1)
    assert (buffers != "0 B") == staged, error
