"""A script whose first thread ends while another one goes on: /proc shows a zombie that has no environment."""

from __future__ import annotations

import platform

import pytest

_SYS_EXIT = {"x86_64": 60, "aarch64": 93}

needs_number_of_exit = pytest.mark.skipif(
    platform.machine() not in _SYS_EXIT, reason="the number of the system call exit is not known here"
)
HEADLESS = f"""
import ctypes, os, threading, time

def go_on():
    while open(f"/proc/{{os.getpid()}}/stat").read().split()[2] != "Z":
        time.sleep(0.01)
    os.write(1, b"ready\\n")
    time.sleep(600)

threading.Thread(target=go_on).start()
ctypes.CDLL(None).syscall({_SYS_EXIT.get(platform.machine())}, 0)
"""
"""Prints `ready` once its first thread has ended."""
