"""`plimsoll top` against /proc, against files of other systems, and against commands whose peak is known."""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

import checkpoints
import program
from bad_files import GOLDEN

MiB = 2**20


def meminfo():
    return {k: int(v) * 1024 for k, v in re.findall(r"^(\w+): +(\d+) kB", pathlib.Path("/proc/meminfo").read_text(), re.M)}


def test_once_agrees_with_proc():
    answer = program.run("top", "--once", "--json").json()
    info = meminfo()
    assert answer["host"]["memory_bytes"] == info["MemTotal"]
    assert answer["host"]["swap_bytes"] == info["SwapTotal"]
    assert abs(answer["host"]["available_bytes"] - info["MemAvailable"]) < info["MemTotal"] / 4
    own = {p["pid"]: p for p in answer["processes"]}[os.getpid()]
    status = pathlib.Path("/proc/self/status").read_text()
    assert own["resident_bytes"] == pytest.approx(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024, rel=0.05)
    assert "pytest" in own["command"] or "python" in own["command"]
    sizes = [p["resident_bytes"] + p["swapped_bytes"] for p in answer["processes"]]
    assert answer["gpus"] or sizes == sorted(sizes, reverse=True)


def test_text_fits_the_columns():
    said = program.run("top", "--once").stdout
    assert all(len(line) <= 80 for line in said.splitlines()), said
    assert "\x1b" not in said and re.search(r"^host +\[\|* *\] ", said, re.M)
    assert len(said.splitlines()) <= 24


def other_system(folder, v2):
    """/proc and /sys of a container with 8 GiB on a machine with 64 GiB."""
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 33554432 kB\nSwapTotal: 2097152 kB\nSwapFree: 104857 kB\n")
    (proc / "loadavg").write_text("3.50 1.00 1.00 1/100 4\n")
    container = "0123456789abcdef" * 4
    for pid, rss, swap in ((10, 100, 0), (11, 5000, 700)):
        (proc / str(pid)).mkdir()
        (proc / str(pid) / "status").write_text(f"Name:\ttrain\nPPid:\t1\nVmHWM:\t{rss * 2} kB\nVmRSS:\t{rss} kB\nRssFile:\t1 kB\nVmSwap:\t{swap} kB\n")
        (proc / str(pid) / "cmdline").write_bytes(b"python\0train.py\0\x1b[31m\0" if pid == 11 else b"")
        (proc / str(pid) / "cgroup").write_text(f"0::/system.slice/docker-{container}.scope\n" if pid == 11 else "0::/\n")
    if v2:
        (proc / "self" / "cgroup").write_text("0::/a/b\n")
        for path, limit in (("a", "8589934592"), ("a/b", "max")):
            group = folder / "sys/fs/cgroup" / path
            group.mkdir(parents=True)
            for name, text in {"memory.max": limit, "memory.current": "4294967296", "memory.peak": "5000000000", "memory.events": "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\n"}.items():
                (group / name).write_text(text + "\n")
    else:
        (proc / "self" / "cgroup").write_text("4:memory:/a/b\n1:cpu:/\n0::/\n")
        group = folder / "sys/fs/cgroup/memory"
        group.mkdir(parents=True)
        for name, text in {"memory.limit_in_bytes": "8589934592", "memory.usage_in_bytes": "4294967296", "memory.max_usage_in_bytes": "5000000000", "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"}.items():
            (group / name).write_text(text + "\n")


@pytest.mark.parametrize("v2", (True, False), ids=("cgroup v2", "cgroup v1"))
def test_another_system(v2, tmp_path):
    other_system(tmp_path, v2)
    answer = program.run("top", "--json", "--root", tmp_path).json()
    assert answer["host"]["memory_bytes"] == 64 * 2**30 and answer["host"]["load"] == 3.5
    group = answer["cgroup"]
    assert (group["version"], group["limit_bytes"], group["used_bytes"], group["peak_bytes"], group["killed"]) == (2 if v2 else 1, 8 * 2**30, 4 * 2**30, 5000000000, 2)
    assert [p["pid"] for p in answer["processes"]] == [11, 10]
    assert answer["processes"][0]["swapped_bytes"] == 700 * 1024 and answer["processes"][0]["container"] == "0123456789ab"
    assert answer["processes"][1]["command"] == "[train]"
    said = program.run("top", "--once", "--root", tmp_path).stdout
    assert "4.00 GiB of 8.00 GiB, 2 killed at the limit" in said and "almost full" in said and "\x1b" not in said


FAKE_NVML = r"""
#include <string.h>
typedef struct { unsigned pid; unsigned long long used; unsigned a, b; } Process;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** d) { *d = (void*)(long)(i + 1); return 0; }
int nvmlDeviceGetName(void* d, char* name, unsigned n) { strncpy(name, "NVIDIA Test 24G", n); return 0; }
int nvmlDeviceGetMemoryInfo(void* d, unsigned long long* m) { m[0] = 24ULL << 30; m[1] = 20ULL << 30; m[2] = 4ULL << 30; return 0; }
int nvmlDeviceGetUtilizationRates(void* d, unsigned* u) { u[0] = 87; u[1] = 3; return 0; }
int nvmlDeviceGetPowerUsage(void* d, unsigned* mw) { *mw = 310500; return (long)d == 1 ? 0 : 3; }
int nvmlDeviceGetComputeRunningProcesses_v2(void* d, unsigned* n, Process* p) {
  *n = 2; p[0].pid = 11; p[0].used = 3ULL << 30; p[1].pid = 4242; p[1].used = (unsigned long long)-1; return 0; }
"""


def test_gpus_through_a_library_that_stands_in_for_nvml(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "nvml.c").write_text(FAKE_NVML)
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", tmp_path / "libnvidia-ml.so.1", tmp_path / "nvml.c"], check=True)
    other_system(tmp_path, True)
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    answer = program.run("top", "--json", "--root", tmp_path, env=env).json()
    first, second = answer["gpus"]
    assert (first["name"], first["memory_bytes"], first["used_bytes"], first["utilization_percent"], first["watts"]) == ("NVIDIA Test 24G", 24 * 2**30, 4 * 2**30, 87, 310.5)
    assert first["processes"] == [{"pid": 11, "held_bytes": 3 * 2**30}, {"pid": 4242}]
    assert first["others_bytes"] == 2**30 and "watts" not in second
    said = program.run("top", "--once", "--root", tmp_path, env=env).stdout
    assert "4.00 GiB of 24.0 GiB, 87 %, " in said and "1.00 GiB of it by the driver" in said
    assert all(len(line) <= 80 for line in said.splitlines())


def test_managed_memory_that_does_not_fit_is_named(tmp_path):
    """The driver maps managed memory from /dev/nvidia-uvm, as /proc showed it on an H200; the rest of a card appears in no mapping."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "nvml.c").write_text(FAKE_NVML)
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", tmp_path / "libnvidia-ml.so.1", tmp_path / "nvml.c"], check=True)
    other_system(tmp_path, True)
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    own = "204a00000-204c00000 rw-s 204a00000 00:06 144                             /dev/nvidia-uvm\n7f466f400000-7f466f600000 rw-s 00000000 00:06 142 /dev/nvidiactl\n"
    for gib, fits in ((0, None), (2, True), (60, False)):
        mapped = f"7f0000000000-{0x7F0000000000 + (gib << 30):x} rw-s 7f0000000000 00:06 144                    /dev/nvidia-uvm\n" if gib else ""
        (tmp_path / "proc" / "11" / "maps").write_text(own + mapped + "ffffffffffffffff-0 /dev/nvidia-uvm\n-- /dev/nvidia-uvm")
        process = next(p for p in program.run("top", "--json", "--root", tmp_path, env=env).json()["processes"] if p["pid"] == 11)
        said = program.run("top", "--once", "--root", tmp_path, env=env).stdout
        assert process.get("managed_fits") == fits
        assert process.get("managed_bytes", 0) == ((gib << 30) + (2 << 20) if gib else 0)
        assert ("do not fit: pages move" in said) == (fits is False) and ("managed memory" in said) == (gib > 0)
        assert all(len(line) <= 80 for line in said.splitlines())


# ---- top -- COMMAND


def peak_of(*command, expect=0):
    ended = program.run("top", "--json", "--", *command, expect=expect)
    return json.loads(ended.stderr.strip().splitlines()[-1]), ended


@pytest.mark.parametrize("size", (60, 300))
def test_the_peak_of_a_command_is_within_one_percent(size):
    """The process itself says what the kernel counted for it at its end, after the memory was given back."""
    script = (
        f"block = bytearray(b'x') * ({size} << 20)\ndel block\n"
        "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')][0])"
    )
    peak, ended = peak_of(sys.executable, "-c", script)
    own = int(ended.stdout) * 1024
    assert own > size * MiB
    assert peak["peak_bytes"] == pytest.approx(own, rel=0.01)
    assert peak["counted_by_kernel"] and peak["exit_code"] == 0 and peak["processes"] == 1


def test_processes_are_counted_together():
    script = (
        "import subprocess, sys, time\n"
        "code = 'b = bytearray(b\"x\") * (80 << 20); import time; time.sleep(1.5)'\n"
        "for p in [subprocess.Popen([sys.executable, '-c', code]) for _ in range(2)]: p.wait()"
    )
    peak, _ = peak_of(sys.executable, "-c", script)
    assert peak["processes"] == 3
    assert 160 * MiB < peak["together_bytes"] < 220 * MiB and peak["peak_bytes"] == peak["together_bytes"]
    assert 80 * MiB < peak["largest_process_bytes"] < 110 * MiB


def test_the_command_s_exit_code_and_signal_are_passed_on():
    assert peak_of("sh", "-c", "exit 7", expect=7)[0]["exit_code"] == 7
    assert peak_of("sh", "-c", "kill -9 $$", expect=137)[0]["signal"] == 9
    ended = program.run("top", "--", "no-such-command-here", expect=2)
    assert "P201" in ended.stderr


def test_text_of_a_peak():
    ended = program.run("top", "--", "echo", "hello")
    assert ended.stdout == "hello\n" and re.search(r"^peak of the host's memory +\S+ \w+ \(\d+ bytes\), ", ended.stderr)


# ---- Runs of Plimsoll


def test_a_run_is_shown_with_its_budget_and_its_figures(tmp_path):
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    flags = ["fit", GOLDEN / "cnn.keras", "--data", f"{GOLDEN / 'cnn_x.npy'},{GOLDEN / 'cnn_y.npy'}", "--batch-size", 4, "--epochs", 10**6, "--budget", "64MiB", "--log", tmp_path / "a.jsonl"]
    process = checkpoints.start(*flags, cwd=tmp_path, env=env)
    try:
        checkpoints.wait_until(lambda: checkpoints.steps_in(tmp_path / "a.jsonl") > 20, process)
        answer = program.run("top", "--json", env={"XDG_RUNTIME_DIR": str(tmp_path)}).json()
        (run,) = [r for r in answer["runs"] if r["pid"] == process.pid]
        assert run["model"] == "cnn" and run["budget_bytes"] == 64 * MiB and 0 < run["held_bytes"] <= 64 * MiB
        assert run["plan"]["batch"]["effective"] == 4 and run["epochs"] == 10**6
        said = program.run("top", "--once", env={"XDG_RUNTIME_DIR": str(tmp_path)}).stdout
        assert "runs of Plimsoll" in said and "of 64.0 MiB" in said and "batch 4 in pieces of 4" in said
    finally:
        process.kill()
        process.communicate()
    assert not program.run("top", "--json", env={"XDG_RUNTIME_DIR": str(tmp_path)}).json()["runs"], "a run that is gone"


def test_what_others_write_into_the_folder_of_runs_is_not_believed(tmp_path):
    folder = tmp_path / "plimsoll"
    folder.mkdir(mode=0o700)
    mine = folder / f"{os.getpid()}.json"
    for text in ("", "{", "[]", '{"schema": "plimsoll.run/1", "pid": {}, "plan": [1], "model": 7, "held_bytes": -5, "budget_bytes": 1e300, "seconds_left": "x"}', "9" * 100000):
        mine.write_text(text)
        program.run("top", "--once", env={"XDG_RUNTIME_DIR": str(tmp_path)})
    mine.write_text('{"schema": "plimsoll.run/1", "pid": 1, "model": "\\u001b[2J"}')
    assert "\x1b" not in program.run("top", "--once", env={"XDG_RUNTIME_DIR": str(tmp_path)}).stdout
    folder.chmod(0o777)
    assert not program.run("top", "--json", env={"XDG_RUNTIME_DIR": str(tmp_path)}).json()["runs"]


# ---- In a terminal


def screen(*flags, seconds=2.5, keys=b"q", env=None):
    """Runs in a terminal of 80 columns and returns what was written and the exit code."""
    import fcntl, struct, termios

    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm", **(env or {})})
        if "NO_COLOR" not in (env or {}):
            os.environ.pop("NO_COLOR", None)
        os.execv(program.PROGRAM[0], [program.PROGRAM[0], "top", *flags])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    written, end, sent = b"", time.time() + 20, False
    start = time.time()
    while time.time() < end:
        if not sent and time.time() - start > seconds:
            os.write(terminal, keys)
            sent = True
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                block = os.read(terminal, 65536)
            except OSError:
                break
            if not block:
                break
            written += block
    return written.decode(errors="replace"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_screen_is_drawn_again_and_restored():
    text, code = screen("--interval", "0.5")
    assert code == 0
    assert text.startswith("\x1b[?1049h") and text.rstrip().endswith("\x1b[?1049l")
    frames = text.split("\x1b[H")[2:]
    assert len(frames) >= 2
    for frame in frames[:-1]:
        lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frame).split("\r\n")
        assert len(lines) <= 24 and all(len(line) <= 80 for line in lines), lines
    assert "\x1b[32m" in text or "\x1b[33m" in text or "\x1b[31m" in text


def test_no_color():
    text, code = screen("--interval", "0.5", env={"NO_COLOR": "1"})
    assert code == 0 and not re.search(r"\x1b\[[0-9;]*m", text)


def test_ctrl_c_restores_the_screen():
    text, code = screen(seconds=1.5, keys=b"\x03")
    assert code == 0 and text.rstrip().endswith("\x1b[?1049l")
