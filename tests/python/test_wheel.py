"""The wheel of `make wheel` brings the libraries that it loads, and trains where they are not installed otherwise."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from conftest import BUILD, ROOT, run

TOOLS = pathlib.Path(os.environ.get("PLIMSOLL_WHEEL_TOOLS", ROOT / ".venv" / "wheel" / "bin" / "python"))
TRAIN = """
import keras, numpy as np, plimsoll
model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3), keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = plimsoll.fit(model, np.ones((16, 8, 8, 3)), np.ones((16, 1)), verbose=0, budget="2GiB")
print("loss", history.history["loss"][0])
print(*(line.split()[-1] for line in open("/proc/self/maps") if ".so" in line), sep="\\n")
"""
UNWANTED = ("curl", "ssl", "crypto", "hdf5", "krb5", "ldap")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    built = sorted((BUILD / "python-test").glob("*.whl"))
    if not built or not TOOLS.exists():
        pytest.skip("no wheel was built here, or scripts/venv.sh wheel has not been run")
    folder = tmp_path_factory.mktemp("wheel")
    told = run(TOOLS, ROOT / "scripts" / "bundle_wheel.py", built[0], "-o", folder)
    [made] = folder.glob("*.whl")
    assert made.name in told
    return made


def test_every_library_in_it_is_listed_with_its_licence(wheel):
    assert re.search(r"-manylinux_2_\d+_x86_64\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [listed] = [name for name in names if name.endswith("/licenses/libraries/LIST")]
        lines = archive.read(listed).decode().splitlines()
        record = archive.read(next(name for name in names if name.endswith("RECORD"))).decode()
    libraries = [name for name in names if re.match(r"plimsoll\.libs/.", name)]
    assert sorted(libraries) == sorted(line.split()[0] for line in lines)
    for line in lines:
        package = re.search(r"Debian ([\w.+-]+)", line)[1]
        assert any(name.endswith(f"licenses/libraries/{package}.txt") for name in names), line
    assert not [name for name in libraries if any(part in name for part in UNWANTED)]
    assert all(name in record for name in names if not name.endswith("/"))


def test_it_trains_with_its_own_libraries_in_a_fresh_environment(wheel, tmp_path):
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    site = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "keras_of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    ended = subprocess.run([python, "-c", TRAIN], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    assert ended.returncode == 0, ended.stderr
    loaded = set(ended.stdout.splitlines()[1:])
    for library in ("libdnnl", "libfmt"):
        of_it = [path for path in loaded if library in path and "tensorflow" not in path]
        assert of_it and all(path.startswith(str(site)) for path in of_it), (library, of_it)
    assert "plimsoll 1." in run(tmp_path / "venv" / "bin" / "plimsoll", "--version", env=environment)
