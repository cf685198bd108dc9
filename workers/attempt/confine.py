"""Confines a process before it becomes another program: what it may write, whom it may reach.

    python -I -S confine.py <folder> <program> <argument>...

With Landlock (Linux 5.13 and later, no root needed) it and its children write only below the folder and to the
devices that programs need, open no TCP port (from 6.7 on), and reach no process outside: not by ptrace or /proc, nor
by signals and abstract sockets (from 6.12 on). They keep the right to read what their user reads. Capabilities are
given up everywhere. A seccomp filter (x86-64 and 64-bit ARM) closes the ways past Landlock to tell a later process
something: System V and POSIX queues, shared memory, semaphores, keyrings and extended attributes are refused; changes
of mode, owner and times report success and do nothing. It is run by path and imports only the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from glob import glob
from itertools import chain

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
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "nvidia*", "nvidia*/*", "dri/*", "kfd", "dxg")
"""Below /dev. Files of /dev/shm and /dev/mqueue are none: they would outlive the process."""

_PR_SET_SECCOMP, _FILTER = 22, 2
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
"""Instructions of a filter."""
_KILL, _ERROR, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_NUMBER, _ARCHITECTURE, _REQUEST = 0, 4, 24
"""Where a filter finds the system call, its architecture and the lower half of its second argument."""
_X32 = 0x40000000
_SET_FLAGS, _SET_ATTRIBUTES = 0x40086602, 0x401C5820
"""Requests of ioctl that change what a file system keeps of a file."""
_IO_URING, _NEW_CALLS = 425, (463, 466, 469)
"""io_uring goes round filters; setxattrat, removexattrat, file_setattr. The same on every architecture."""
_CALLS = {
    "x86_64": (
        0xC000003E,
        16,
        # chmod .. lchown, utime, utimes, fchownat, futimesat, fchmodat, utimensat, fchmodat2
        (*range(90, 95), 132, 235, 260, 261, 268, 280, 452),
        # shm*, sem*, msg*, *xattr, semtimedop, mq_*, add_key .. keyctl
        (
            *(*range(29, 32), *range(64, 67), *range(68, 72), *range(188, 191), *range(197, 200), 220),
            *(*range(240, 246), *range(248, 251)),
        ),
    ),
    "aarch64": (
        0xC00000B7,
        29,
        (*range(52, 56), 88, 452),  # fchmod .. fchown, utimensat, fchmodat2
        # *xattr, mq_*, msg*, sem*, shm*, add_key .. keyctl
        (*range(5, 8), *range(14, 17), *range(180, 197), *range(217, 220)),
    ),
}
"""By machine: its number, ioctl, calls that do nothing, calls that are refused."""


def main(folder: str, command: list[str]) -> None:
    """Never returns: execs the command, or exits with 127 and writes the reason to stderr."""
    if sys.platform.startswith("linux"):
        give_up_rights()
        restrict(folder)
        leave_no_trace()
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
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # may fail: no right, or no such number
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
    devices = chain.from_iterable(glob(f"/dev/{name}") for name in _DEVICES)
    of_device = ((path, of_devices) for path in devices if not os.path.isdir(path))
    for place, rights in ((folder, writes), *of_device):
        parent = os.open(place, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", rights, parent)
        if libc.syscall(_ADD_RULE, handle, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), "landlock_add_rule", place)
        os.close(parent)
    if libc.syscall(_RESTRICT_SELF, handle, 0):
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")


def leave_no_trace() -> None:
    """Close what Landlock leaves open to tell a later process something; nothing happens on other machines."""
    known = _CALLS.get(os.uname().machine)
    if known is None:
        return
    architecture, ioctl, idle, refused = known
    program = b"".join(_filter(architecture, ioctl, idle, (*refused, _IO_URING, *_NEW_CALLS)))
    text = ctypes.create_string_buffer(program, len(program))
    told = struct.pack("@HP", len(program) // 8, ctypes.addressof(text))
    ctypes.CDLL(None).prctl(_PR_SET_SECCOMP, _FILTER, told, 0, 0)  # refused by kernels without filters


def _filter(architecture: int, ioctl: int, idle: Iterable[int], refused: Iterable[int]) -> Iterator[bytes]:
    """The instructions of the filter."""

    def step(code: int, value: int, otherwise: int = 0) -> bytes:
        """One instruction; `otherwise`: how many to pass over where a comparison fails."""
        return struct.pack("=HBBI", code, 0, otherwise, value)

    refuse = step(_RETURN, _ERROR | errno.EPERM)
    yield step(_LOAD, _ARCHITECTURE)
    yield struct.pack("=HBBI", _EQUAL, 1, 0, architecture)
    yield step(_RETURN, _KILL)
    yield step(_LOAD, _NUMBER)
    yield step(_AT_LEAST, _X32, 1) + refuse
    for call in idle:
        yield step(_EQUAL, call, 1) + step(_RETURN, _ERROR)
    for call in refused:
        yield step(_EQUAL, call, 1) + refuse
    yield step(_EQUAL, ioctl, 5) + step(_LOAD, _REQUEST)
    for request in (_SET_FLAGS, _SET_ATTRIBUTES):
        yield step(_EQUAL, request, 1) + refuse
    yield step(_RETURN, _ALLOW)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
