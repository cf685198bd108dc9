"""The first process in a run's namespaces: starts the program, waits for it, and says how it ended.

    python -I -S first.py <descriptor> <name=limit,...> <reach> <program> <argument>...

When it ends, the kernel kills all processes of the run. It writes the program's exit status as a line to the
descriptor, or `-N` for an end by signal N: bubblewrap's own exit status cannot distinguish the two. It is run by path
and imports only the standard library.
"""

from __future__ import annotations

import importlib
import os
import select
import sys


def main(told: int, limits: str, reach: str, command: list[str]) -> int:
    """Answers the exit status, as shells report it."""
    if _is_unheard(told):  # the worker died before this process was tied to it
        return 137
    os.set_inheritable(told, False)
    program = os.fork()
    if program == 0:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        launch = importlib.import_module("launch")
        sys.path.pop(0)
        launch.become(limits, reach, command)
    os.closerange(0, told)
    os.closerange(told + 1, os.sysconf("SC_OPEN_MAX"))
    code = os.waitstatus_to_exitcode(_end_of(program))
    os.write(told, f"{code}\n".encode())
    return code if code >= 0 else 128 - code


def _is_unheard(told: int) -> bool:
    """Whether no process has the pipe's other end."""
    poll = select.poll()
    poll.register(told, 0)
    return bool(poll.poll(0))


def _end_of(program: int) -> int:
    """Wait for the program; reap what others have left."""
    while True:
        pid, status = os.wait()
        if pid == program:
            return status


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))
