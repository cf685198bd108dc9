"""Confines a process, before it execs a program, to the files and processes that it may reach.

Landlock (Linux 5.13 and later, no root needed) limits it and its children to the given files. From Linux 6.7 on they
open no TCP port. They inspect no process outside by ptrace or /proc, and from 6.12 on they send no signals there and
use no abstract sockets. Capabilities are always given up.

A seccomp filter (x86-64, 64-bit ARM) closes ways past Landlock by which a run could leave data for a later process.
It refuses System V and POSIX queues, System V shared memory and semaphores, and keyrings. If nothing may be left, it
also refuses extended attributes; changes of mode, owner and times then report success and do nothing.

launch.py imports this file by path; it imports only the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from itertools import chain

TYPE_CHECKING = False  # typing takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from workers.attempt.isolation import Reach

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls; the numbers are the same on every architecture."""
_CREATE_VERSION = 1
_PATH_BENEATH = 1
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITIES = 64

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_REMOVE_FILE, _MAKE_FILE = 1 << 5, 1 << 8
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_RIGHTS = ((1 << 13) - 1, _REFER, _TRUNCATE, 0, _IOCTL)
"""Rights over files that each version of Landlock has added."""
_TCP, _SCOPES = 0b11, 0b11
"""bind and connect; abstract sockets and signals."""
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
"""Rights that a file can have; all others are a folder's."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
"""Below /dev."""
_GPUS = ("nvidia", "dri", "kfd", "dxg")
"""How names of GPUs' devices, or of their folders, begin there."""
_SHARED_MEMORY = "/dev/shm"

_SET_FILTER, _SPECULATE = 1, 1 << 2
"""Without the flag, kernels before 5.16 slow down whatever has a filter."""
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
        317,
        16,
        # chmod .. lchown, utime, utimes, fchownat, futimesat, fchmodat, utimensat, fchmodat2
        (*range(90, 95), 132, 235, 260, 261, 268, 280, 452),
        (*range(188, 191), *range(197, 200)),  # *xattr
        # shm*, sem*, shmdt, msg*, semtimedop, mq_*, add_key .. keyctl
        (*range(29, 32), *range(64, 72), 220, *range(240, 246), *range(248, 251)),
    ),
    "aarch64": (
        0xC00000B7,
        277,
        29,
        (*range(52, 56), 88, 452),  # fchmod .. fchown, utimensat, fchmodat2
        (*range(5, 8), *range(14, 17)),  # *xattr
        (*range(180, 198), *range(217, 220)),  # mq_*, msg*, sem*, shm*, add_key .. keyctl
    ),
}
"""By machine: architecture number, seccomp, ioctl, ignored and refused calls on files, calls refused always."""


def confine(reach: Reach) -> None:
    """Limit this process and its descendants for good. Raises OSError: a missing folder, or the kernel refuses."""
    if sys.platform.startswith("linux"):
        give_up_rights()
        restrict(reach)
        refuse_calls(leaves=reach.leaves)


def give_up_rights() -> None:
    """Drop capabilities for good: exec of a set-user-ID program, or as root, gives none back."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # may fail: no right, or no such number
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def version() -> int:
    """Version of this kernel's Landlock; below 1: none."""
    if not sys.platform.startswith("linux"):
        return 0
    return int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _CREATE_VERSION))


def restrict(reach: Reach) -> None:
    """Apply Landlock as far as this kernel has it; without it nothing happens."""
    abi = version()
    if abi < 1:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    rights = sum(_RIGHTS[:abi]) & ~(0 if reach.reads is not None else _READ)
    fields = [rights, 0 if reach.network or abi < 4 else _TCP, _SCOPES if abi >= 6 else 0]
    known = 1 + (abi >= 4) + (abi >= 6)
    ruleset = struct.pack(f"={known}Q", *fields[:known])
    handle = libc.syscall(_CREATE_RULESET, ruleset, len(ruleset), 0)
    if handle < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset failed")
    for place, allowed, is_needed in _rules(reach):
        try:
            parent = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError as problem:
            if is_needed:
                raise OSError(problem.errno, f"{place} is to be written and cannot be opened") from problem
            continue
        allowed &= rights if stat.S_ISDIR(os.fstat(parent).st_mode) else rights & _OF_FILES
        rule = struct.pack("=Qi", allowed, parent)
        if allowed and libc.syscall(_ADD_RULE, handle, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), f"landlock_add_rule of {place} failed")
        os.close(parent)
    if libc.syscall(_RESTRICT_SELF, handle, 0):
        raise OSError(ctypes.get_errno(), "landlock_restrict_self failed")


def _rules(reach: Reach) -> Iterator[tuple[str, int, bool]]:
    """Places, the rights there, and whether they must exist."""
    everything = (1 << 64) - 1
    for folder in reach.writes:
        yield folder, everything, True
    for device in chain((f"/dev/{name}" for name in _DEVICES), gpu_devices()):
        yield device, _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL, False
    if reach.leaves:
        # semaphores and shared tensors of Python's multiprocessing
        yield (
            _SHARED_MEMORY,
            _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _MAKE_FILE | _REMOVE_FILE,
            False,
        )
    yield "/dev", _READ_DIR, False
    for place in reach.reads or ():
        for entry in _without(place, reach.hides):
            yield entry, _READ, False


def _without(folder: str, hides: Sequence[str]) -> Iterator[str]:
    """The folder, or its entries but the hidden ones: a rule holds for all that is below its place."""
    if not any(os.path.dirname(hidden) == folder for hidden in hides):
        yield folder
        return
    yield from (entry.path for entry in _entries(folder) if entry.path not in hides)


def gpu_devices() -> Iterator[str]:
    for device in _entries("/dev"):
        if device.name.startswith(_GPUS):
            inner = _entries(device.path) if device.is_dir() else [device]
            yield from (found.path for found in inner if not found.is_dir())


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [*entries]
    except OSError:
        return []


def refuse_calls(*, leaves: bool) -> None:
    """Install the seccomp filter (no-op elsewhere); with `leaves`, attributes, mode, owner and times may change."""
    known = _CALLS.get(os.uname().machine)
    if known is None:
        return
    architecture, seccomp, ioctl, idle, attributes, refused = known
    of_files = () if leaves else (*attributes, _IO_URING, *_NEW_CALLS)
    filtered = _filter(architecture, None if leaves else ioctl, () if leaves else idle, (*refused, *of_files))
    program = b"".join(filtered)
    text = ctypes.create_string_buffer(program, len(program))
    told = struct.pack("@HP", len(program) // 8, ctypes.addressof(text))
    libc = ctypes.CDLL(None)
    if libc.syscall(seccomp, _SET_FILTER, _SPECULATE, told) != 0:
        libc.syscall(seccomp, _SET_FILTER, 0, told)  # refused by kernels without filters


def _filter(
    architecture: int, ioctl: int | None, idle: Iterable[int], refused: Iterable[int]
) -> Iterator[bytes]:
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
    if ioctl is not None:
        yield step(_EQUAL, ioctl, 5) + step(_LOAD, _REQUEST)
        for request in (_SET_FLAGS, _SET_ATTRIBUTES):
            yield step(_EQUAL, request, 1) + refuse
    yield step(_RETURN, _ALLOW)
