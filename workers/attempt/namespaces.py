"""The command line of bubblewrap that gives a run namespaces of its own: processes, files, IPC, network, host name.

The run sees only the files that it may touch, at their usual paths. Files that it may only read are mounted
read-only. `/tmp` and `/dev/shm` are memory file systems that end with the run. When its first process (first.py)
ends, the kernel kills all others. The first process itself dies with the worker. launch.py imports this file by path;
it imports only the standard library.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from workers.attempt.isolation import Reach

_HERE = os.path.dirname(os.path.abspath(__file__))
_OWN = tuple(os.path.join(_HERE, name) for name in ("first.py", "launch.py", "confine.py"))
_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--disable-userns", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"),
)
_MEMORY = ("/tmp", "/dev/shm")
_MADE = ("/proc", "/dev")
"""Mounted by bubblewrap itself."""
_MOST_LINKS = 40
_EMPTY_BYTES = 4096


def enclosed(reach: Reach, gpus: Iterable[str], command: Sequence[str]) -> list[str]:
    """The command line that runs the command, Python first, in namespaces. Raises OSError: no folder to write in."""
    mounts, links = _layout(reach)
    argv = [str(reach.bwrap), *_NAMESPACES, *(() if reach.network else ("--unshare-net",))]
    for place in sorted(mounts, key=lambda place: (place.rstrip("/").count("/"), place)):
        argv += mounts[place]
    for place, target in links.items():
        if not _is_bound(place, mounts):
            argv += ("--symlink", target, place)
    for device in gpus:
        argv += ("--dev-bind-try", device, device)
    for hidden in reach.hides:
        argv += _cover(hidden)
    return [*argv, "--remount-ro", "/", "--chdir", os.getcwd(), "--", *command]


def inside(reach: Reach) -> Mapping[str, object]:
    """Changed fields of the reach inside the namespaces. The network is closed by the namespace, not by Landlock."""
    return {"writes": [*reach.writes, *_MEMORY], "network": True, "bwrap": None}


def _layout(reach: Reach) -> tuple[Mapping[str, Sequence[str]], Mapping[str, str]]:
    """Mounts by place, and the symbolic links on the way to them."""
    links: dict[str, str] = {}
    reads = [place for place in (*(reach.reads or ()), *_of_python(), *_OWN) if os.path.exists(place)]
    for place in reach.writes:
        os.stat(place)
    real_reads = {_followed(place, links) for place in reads}
    together = () if reach.together is None else (reach.together,)
    real_writes = {_followed(place, links) for place in (*reach.writes, *together)}
    mounts: dict[str, Sequence[str]] = {
        place: ("--size", str(reach.scratch_bytes), "--tmpfs", place) for place in _MEMORY
    }
    for place in real_reads:
        if not _is_below(place, (*_MADE, *real_writes, *(real_reads - {place}))):
            mounts[place] = ("--ro-bind", place, place)
    for place in real_writes:
        if not _is_below(place, real_writes - {place}):
            mounts[place] = ("--bind", place, place)
    mounts |= {"/proc": ("--proc", "/proc"), "/dev": ("--dev", "/dev")}
    return mounts, links


def _followed(place: str, links: dict[str, str]) -> str:
    """Where a place really is; each symbolic link on the way there is added to the links."""
    here, rest, passed = "", _parts(place), 0
    while rest:
        part = rest.pop(0)
        if part == "..":
            here = os.path.dirname(here).rstrip("/")
            continue
        there = f"{here}/{part}"
        if passed > _MOST_LINKS or not os.path.islink(there):
            here = there
            continue
        passed += 1
        links[there] = target = os.readlink(there)
        rest[:0] = _parts(target)
        here = "" if target.startswith("/") else here
    return here or "/"


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _is_bound(place: str, mounts: Mapping[str, Sequence[str]]) -> bool:
    """Whether a place lies in a folder that is mounted from outside, and so exists already."""
    above = os.path.dirname(place)
    while above not in mounts and above != "/":
        above = os.path.dirname(above)
    return above in mounts and "bind" in mounts[above][0]


def _is_below(place: str, folders: Iterable[str]) -> bool:
    return any(folder in ("/", place) or place.startswith(f"{folder}/") for folder in folders)


def _cover(hidden: str) -> Sequence[str]:
    """Mount something empty over an entry."""
    if os.path.islink(hidden):  # its target is not mounted, unless it may be read
        return ()
    if os.path.isdir(hidden):
        return ("--perms", "0555", "--size", str(_EMPTY_BYTES), "--tmpfs", hidden)
    return ("--ro-bind", "/dev/null", hidden)


def _of_python() -> Iterator[str]:
    """Files of this process's Python, without the packages of its environment."""
    yield from {
        os.path.realpath(sys.executable),
        sys.base_prefix,
        sys.base_exec_prefix,
        os.path.dirname(os.__file__),
    }
