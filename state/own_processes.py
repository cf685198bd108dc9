"""Command lines that /proc shows for forks, and children that end with their parents."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_MM = 35
_PR_SET_MM_MAP = 14
_START_CODE = 26
"""Field numbers of /proc/self/stat, see proc(5)."""
_START_DATA = 45

_kept: list[object] = []
"""Keeps the buffers alive that the kernel reads."""


def tell(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Have `ps` and /proc/PID/{cmdline,environ} show these; False if the kernel refuses.

    It moves two marks of the memory map, as programs do that restore a process from a file; that needs no privilege.
    """
    if sys.platform != "linux":
        return False
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environ.items())
    told = ctypes.create_string_buffer(words + variables, len(words) + len(variables))
    at = ctypes.addressof(told)
    marks = struct.pack("=12QIi", *_map(), at, *[at + len(words)] * 2, at + len(told), 0, 0, -1)
    if ctypes.CDLL(None).prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.c_char_p(marks), len(marks), 0) != 0:
        return False
    _kept.append(told)
    return True


def _map() -> tuple[int, ...]:
    """The marks that stay, in the order of the kernel's struct prctl_mm_map."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()

    def field(number: int) -> int:
        return int(fields[number - 3])

    start_code, end_code, start_stack = (field(_START_CODE + n) for n in range(3))
    start_data, end_data, start_brk = (field(_START_DATA + n) for n in range(3))
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    libc.sbrk.argtypes = [ctypes.c_ssize_t]
    return start_code, end_code, start_data, end_data, start_brk, libc.sbrk(0), start_stack


_TETHER = """
import ctypes, os, signal, sys
parent, argv = int(sys.argv[1]), sys.argv[2:]
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM), 0, 0, 0)  # PR_SET_PDEATHSIG, kept over exec
    if os.getppid() != parent:  # it died before we asked
        sys.exit(143)
try:
    os.execvp(argv[0], argv)
except OSError as error:
    sys.exit(f"{argv[0]}: {error.strerror}")
"""


def tethered(argv: Sequence[str]) -> list[str]:
    """Command line that starts `argv` with a signal: the kernel sends SIGTERM when the parent dies, even by SIGKILL
    (Linux only).

    The kernel watches the *thread* that forks: start it from one that lives as long as the child. A short Python asks
    for the signal and becomes `argv`, because a `preexec_fn` may deadlock in a process with threads.
    """
    return [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid()), *argv]
