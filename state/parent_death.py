"""Ties the life of a child process to its parent's."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

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
