"""Other projects build against Plimsoll: installed, or as sources inside them (docs/embedding.md)."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

import program

BUILD = pathlib.Path(program.PROGRAM[0]).resolve().parent
OUTSIDE = program.ROOT / "tests" / "outside"
HEADERS = sorted((program.ROOT / "include" / "plimsoll").glob("*.h"))

pytestmark = pytest.mark.skipif(
    not (BUILD / "plimsollConfig.cmake").exists() or shutil.which("cmake") is None,
    reason="the program under test does not stand in a build folder with the library, or there is no cmake",
)


def run(*command):
    ended = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=program.TIMEOUT)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def configure(folder, *options):
    return run("cmake", "-S", OUTSIDE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *options)


def version():
    text = (program.ROOT / "include" / "plimsoll" / "version.h").read_text()
    return ".".join(re.findall(r"define PLIMSOLL_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("installed")
    run("cmake", "--build", BUILD, "--target", "plimsoll_library")
    run("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


def test_what_is_installed(installed):
    assert {p.name for p in (installed / "include" / "plimsoll").iterdir()} == {p.name for p in HEADERS}
    assert sorted(p.name for p in installed.iterdir()) == ["bin", "include", "lib", "share"]
    assert [p.name for p in installed.rglob("LICENSE")] == ["LICENSE"]
    libraries = {p.resolve() for p in (installed / "lib").iterdir() if p.name.startswith("lib")}
    assert len(libraries) == 1, libraries
    assert run(installed / "bin" / "plimsoll", "--version").strip() == f"plimsoll {version()}"


def test_no_installed_file_names_the_source_or_build_folder(installed):
    for path in installed.rglob("*.cmake"):
        text = path.read_text()
        assert str(BUILD) not in text and str(program.ROOT) not in text, path


def test_a_project_outside_trains_and_keras_agrees(installed, tmp_path):
    configure(tmp_path, f"-DCMAKE_PREFIX_PATH={installed}")
    run("cmake", "--build", tmp_path)
    ended = subprocess.run([tmp_path / "outside"], capture_output=True, text=True, timeout=program.TIMEOUT, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run(tmp_path / "version_1")
    assert re.fullmatch(rf"plimsoll {version()}, (4\d) misuses refused", ended.stdout.strip()), ended.stdout
    keras = pytest.importorskip("keras")
    numpy = pytest.importorskip("numpy")
    model = keras.models.load_model(tmp_path / "outside.keras")
    assert int(model.optimizer.iterations) == 30
    image = numpy.fromfile(tmp_path / "image.bin", "float32").reshape(-1, 8, 8, 1)
    age = numpy.fromfile(tmp_path / "age.bin", "float32").reshape(-1, 3)
    ours = numpy.fromfile(tmp_path / "predicted.bin", "float32").reshape(-1, 1)
    numpy.testing.assert_allclose(model.predict([image, age], verbose=0), ours, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wanted, compatible", (("1.0.0", True), ("0.1", False), ("2", False)))
def test_versions_with_the_same_first_number_are_compatible(installed, tmp_path, wanted, compatible):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(outside LANGUAGES CXX)\n"
        f"find_package(plimsoll {wanted} QUIET)\nfile(WRITE found ${{plimsoll_FOUND}})\n"
    )
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    assert (tmp_path / "found").read_text() == str(int(compatible))


@pytest.mark.parametrize("way", ("subdirectory", "fetch"))
def test_sources_inside_another_project(way, tmp_path):
    """Configured only: compiling the engine a second time would take minutes."""
    sources = [f"-DPLIMSOLL_FROM={way}", f"-DPLIMSOLL_SOURCES={program.ROOT}", "-DPLIMSOLL_CUDA=OFF"]
    configure(tmp_path, *sources, "-DFETCHCONTENT_FULLY_DISCONNECTED=ON")
    commands = {c["file"]: c["command"] for c in json.loads((tmp_path / "compile_commands.json").read_text())}
    ours, theirs = [c for f, c in commands.items() if "/src/" in f], commands[str(OUTSIDE / "main.cpp")]
    assert "plimsoll" not in theirs.replace(str(program.ROOT), "").replace(str(tmp_path), "").lower(), theirs
    for flag in ("-Werror", "-W", "-ffp-contract", "-fstack-protector", "-D", "ccache"):
        assert f" {flag}" not in theirs.replace("-DNDEBUG", ""), (flag, theirs)
    assert f"{program.ROOT}/include" in theirs and f"{program.ROOT}/src" not in theirs, theirs
    assert "-std=gnu++20" in theirs or "-std=c++20" in theirs, theirs

    assert len(ours) > 100 and all("-Werror" not in c and "-ffp-contract=off" in c for c in ours)
    targets = run("ninja", "-C", tmp_path, "-t", "targets", "all")
    assert re.search(r"/libplimsoll\.(a|so.*): ", targets), "the library is not there"
    for name in (r"test_\w+:", r"example_\w+:", r"bench_\w+:", r"(plimsoll|plimsoll-build)/plimsoll:"):
        found = re.search(rf"(^|/){name}", targets, re.MULTILINE)
        assert not found, f"{found} is a target of the outer project"
    # The program is compiled and linked with everything the library needs.
    link = run("ninja", "-C", tmp_path, "-t", "commands", "outside").splitlines()[-1]
    assert "libplimsoll." in link and "fmt" in link and "gomp" in link, link


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.name)
def test_public_headers_export_what_they_declare(header):
    """In a shared library everything else is hidden. Macros need no export."""
    text = header.read_text()
    declares = len(re.findall(r"^namespace plimsoll", text, re.MULTILINE))
    pushed, popped = text.count("#pragma GCC visibility push(default)"), text.count("#pragma GCC visibility pop")
    assert pushed == popped and (pushed > 0) == (declares > 0), "wrap its namespace in #pragma GCC visibility push(default) and pop"
    if pushed:
        assert text.rindex("#include") < text.index("#pragma GCC visibility push"), "include before the push"
