"""The reference of the C++ interface: every public name has a comment, and Doxygen understands it."""

import shutil
import subprocess

import pytest

import program


@pytest.mark.skipif(shutil.which("doxygen") is None, reason="doxygen is not installed")
def test_every_public_name_has_a_comment(tmp_path):
    ended = subprocess.run(
        ["scripts/reference.sh", tmp_path], cwd=program.ROOT, capture_output=True, text=True, timeout=program.TIMEOUT
    )
    assert ended.returncode == 0 and not ended.stderr.strip(), ended.stderr
    assert (tmp_path / "html" / "index.html").exists()
