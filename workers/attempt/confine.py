"""Confines a process before it becomes another program: what it may write, whom it may reach.

    python -I -S confine.py <folder> <program> <argument>...

With Landlock (Linux 5.13 and later, no root needed) it and its children write only below the folder and to devices,
open no TCP port (from 6.7 on), and reach no process outside: not by ptrace or /proc, nor by signals and abstract
sockets (from 6.12 on). They keep the right to read what their user reads. Capabilities are given up everywhere.
It is run by path and imports only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls; the numbers are the same on every architecture."""
_CREATE_VERSION = 1
_PATH_BENEATH = 1
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITIES = 64

_WRITE_FILE, _READ = 1 << 1, (1 << 0) | (1 << 2) | (1 << 3)
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_RIGHTS = ((1 << 13) - 1, _REFER, _TRUNCATE, 0, _IOCTL)
"""Rights over files that each version of Landlock has added."""
_TCP, _SCOPES = 0b11, 0b11
"""bind and connect; abstract sockets and signals."""


def main(folder: str, command: list[str]) -> None:
    """Never returns: execs the command, or exits with 127 and writes the reason to stderr."""
    if sys.platform.startswith("linux"):
        give_up_rights()
        restrict(folder)
    try:
        os.execvpe(command[0], command, os.environ)
    except OSError as error:
        sys.stderr.write(f"nightjar: cannot start {command[0]!r}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127)


def give_up_rights() -> None:
    """Get no right back by exec: neither from a set-user-ID program nor, as root, by being root."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused to whoever has none, and unknown numbers
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def restrict(folder: str) -> None:
    """Apply Landlock as far as this kernel has it; without it nothing happens."""
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(_CREATE_RULESET, None, 0, _CREATE_VERSION)
    if abi < 1:
        return
    writes = sum(_RIGHTS[:abi]) & ~_READ
    fields = [writes, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0]
    known = 1 + (abi >= 4) + (abi >= 6)
    ruleset = struct.pack(f"={known}Q", *fields[:known])
    handle = libc.syscall(_CREATE_RULESET, ruleset, len(ruleset), 0)
    if handle < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    of_devices = writes & (_WRITE_FILE | _TRUNCATE | _IOCTL)
    for place, rights in ((folder, writes), ("/dev", of_devices)):
        parent = os.open(place, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", rights, parent)
        if libc.syscall(_ADD_RULE, handle, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), "landlock_add_rule", place)
        os.close(parent)
    if libc.syscall(_RESTRICT_SELF, handle, 0):
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
