"""What the process holds, as the kernel counts it."""

import contextlib
import ctypes
import os

MIB = 1 << 20
_PAGEOUT = 21  # MADV_PAGEOUT of Linux 5.4 and newer


def _status(key):
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith(key + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def resident_bytes():
    return _status("VmRSS")


def peak_bytes():
    """The most that the process held since reset_peak(), or since it started."""
    return _status("VmHWM")


def reset_peak():
    """Makes peak_bytes() count from now on. Returns whether the kernel allows that."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return True
    except OSError:
        return False


def drop_clean_pages():
    """Gives back the pages of libraries and files, which the kernel reads again when they are needed.

    TensorFlow maps about 390 MiB of them, and most are not used again. Returns the bytes that were given back.
    """
    before = resident_bytes()
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/self/maps") as file:
            mappings = file.read().splitlines()
    except OSError:
        return 0
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in mappings:
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or not fields[5].startswith("/") or "w" in fields[1]:
            continue  # pages that were written to are not clean
        first, end = (int(number, 16) for number in fields[0].split("-"))
        libc.madvise(first, end - first, _PAGEOUT)
    return max(0, before - resident_bytes())


@contextlib.contextmanager
def measured():
    """Measures the peak of a block: the value is a function that returns it, valid afterwards."""
    exact = reset_peak()
    yield lambda: peak_bytes() if exact else 0


def page_size():
    return os.sysconf("SC_PAGE_SIZE")


def format_bytes(count):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count / size < 1000 else f"{count / size:,.0f} {unit}"
    return f"{count} B"
