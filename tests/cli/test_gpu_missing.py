"""Machines on which --device gpu cannot work: no driver, a driver that is too old, or missing libraries.

These tests need no GPU. They build a stub driver, which the CUDA runtime in the program finds through LD_LIBRARY_PATH. A
preloaded library replaces dlopen and hides other libraries, so the tests also work on machines where everything is
installed.
"""

import subprocess

import pytest

import program
from bad_files import GOLDEN, data, fit_refused, refused

HIDE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void* dlopen(const char* file, int flags) {
  void* (*real)(const char*, int) = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  const char* hidden = getenv("HIDDEN_LIBRARIES");
  if (file == NULL || hidden == NULL) return real(file, flags);
  const char* slash = strrchr(file, '/');
  const char* name = slash == NULL ? file : slash + 1;
  for (const char* at = hidden; *at != 0; at += strcspn(at, ":"), at += *at == ':') {
    if (strncmp(name, at, strcspn(at, ":")) != 0) continue;
    char nowhere[4096];
    snprintf(nowhere, sizeof nowhere, "/nowhere/%s", name);
    return real(nowhere, flags);
  }
  return real(file, flags);
}
"""

DRIVER = """
int cuDriverGetVersion(int* version) { *version = %d; return 0; }
int cuInit(unsigned flags) { return flags != 0; }
"""

NEEDED = {
    "cuDNN 9": ("libcudnn.so.9", "nvidia-cudnn"),
    "cuBLASLt": ("libcublasLt.so", "nvidia-cublas"),
    "NVRTC": ("libnvrtc.so", "nvidia-cuda-nvrtc"),
}


def made(folder, name, source):
    folder.mkdir(exist_ok=True)
    (folder / "source.c").write_text(source)
    subprocess.run(
        ["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name, folder / "source.c", "-ldl"], check=True
    )
    return folder / name


@pytest.fixture(scope="module", autouse=True)
def gpu_in_this_build():
    if "GPU       not in this build" in program.run("doctor").stdout:
        pytest.skip("this build has no CUDA runtime")


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Returns environments that simulate a machine: with a driver of some version or without one, and without some libraries."""
    folder = tmp_path_factory.mktemp("machine")
    hide = made(folder, "libhide.so", HIDE)

    def environment(driver=None, hidden=()):
        names = [*hidden]
        env = {"LD_PRELOAD": str(hide)}
        if driver is None:
            names.append("libcuda.so")
        else:
            stub = folder / str(driver)
            if not stub.exists():
                made(stub, "libcuda.so.1", DRIVER % driver)
            env["LD_LIBRARY_PATH"] = str(stub)
        env["HIDDEN_LIBRARIES"] = ":".join(names)
        return env

    return environment


def gpu_refused(folder, env, *mentions):
    fit_refused(folder, 603, None, None, "--device", "gpu", env=env, mentions=mentions)


def doctor(env):
    """Returns the text and the JSON of `doctor`, which must succeed even if things are missing."""
    text = program.run("doctor", env=env).stdout
    return text, program.run("doctor", "--json", env=env).json()


def test_no_driver(machine, tmp_path):
    env = machine()
    gpu_refused(tmp_path, env, "libcuda.so.1", "driver", "--device cpu")
    text, json = doctor(env)
    assert "GPU       none" in text and "libcuda.so.1" in text and "try: install NVIDIA's driver" in text, text
    assert json["gpus"] == [] and "libcuda.so.1" in json["missing"][0]["facts"][0], json


def test_driver_too_old(machine, tmp_path):
    env = machine(11040)
    wanted = ("too old", "CUDA up to 11.4", "this program needs 1", "a driver of version 5", "--device cpu")
    gpu_refused(tmp_path, env, *wanted)
    text, json = doctor(env)
    assert "too old" in text and "CUDA up to 11.4" in text and "try: a driver of version 5" in text, text
    assert json["gpus"] == [] and "too old" in json["missing"][0]["what"], json


def test_evaluate_and_predict_say_the_same(machine, tmp_path):
    model, out = GOLDEN / "cnn.keras", tmp_path / "p.npy"
    named = {"env": machine(11040), "mentions": ["too old"]}
    refused(603, "evaluate", model, "--data", data(), "--device", "gpu", **named)
    refused(603, "predict", model, "--data", GOLDEN / "cnn_x.npy", "--output", out, "--device", "gpu", **named)
    assert not out.exists()


@pytest.mark.parametrize("library", NEEDED)
def test_library_missing(library, machine, tmp_path):
    file, package = NEEDED[library]
    env = machine(99090, hidden=[file])
    gpu_refused(tmp_path, env, f"{library} cannot be loaded", file, package, "--device cpu")
    told, json = doctor(env)
    assert f"missing: {library} cannot be loaded" in told and f"pip install {package}" in told, told
    assert any(library in m["what"] and package in " ".join(m["try"]) for m in json["missing"]), json


def test_all_libraries_missing_is_one_error(machine, tmp_path):
    files, packages = zip(*NEEDED.values())
    gpu_refused(tmp_path, machine(99090, hidden=files), *NEEDED, *files, *packages)


def test_library_without_its_functions(machine, tmp_path):
    env = machine(99090)
    old = made(tmp_path / "old", "libcudnn.so.9", "int cudnnGetVersion(void) { return 1000; }\n")
    env["LD_LIBRARY_PATH"] += f":{old.parent}"
    gpu_refused(tmp_path, env, "cuDNN 9", "too old", "cudnnCreate")


def test_a_driver_that_shows_no_gpu(machine):
    """The stub driver implements only the version query."""
    ended = program.run("plan", GOLDEN / "cnn.keras", "--device", "gpu", env=machine(99090), expect=6)
    assert "error P603" in ended.stderr and "--device cpu" in ended.stderr, ended
