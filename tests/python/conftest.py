"""The Python package, installed in a fresh environment outside the source tree, against Keras in the same process."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PLIMSOLL", ROOT / "build" / "plimsoll")).resolve().parent


def run(*command, **options):
    ended = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def install(folder):
    """Builds the wheel against the library of the build folder, and installs it in a new environment in `folder`."""
    prefix = folder / "library"
    run("cmake", "--build", BUILD, "--target", "plimsoll_library")
    run("cmake", "--install", BUILD, "--prefix", prefix)
    run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-build-isolation", "--no-deps", "--no-index", "-w", folder,
        "-C", f"build-dir={BUILD / 'wheel'}", "-C", f"cmake.define.plimsoll_DIR={prefix}/lib/cmake/plimsoll")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (pathlib.Path(site) / "keras_of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", *folder.glob("*.whl"))
    return python


def pytest_configure(config):
    """Makes `import plimsoll` import the installed package. PLIMSOLL_PYTHON names an interpreter that has one already."""
    if "PLIMSOLL_PYTHON" not in os.environ:
        folder = BUILD / "python-test"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        os.environ["PLIMSOLL_PYTHON"] = str(install(folder))
    site = run(os.environ["PLIMSOLL_PYTHON"], "-c", "import plimsoll; print(plimsoll.__path__[0])").strip()
    sys.path.insert(0, str(pathlib.Path(site).parent))


@pytest.fixture
def python():
    """The interpreter of an environment outside the source tree, in which the package was installed."""
    return os.environ["PLIMSOLL_PYTHON"]


@pytest.fixture(autouse=True)
def fresh():
    import keras

    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
