"""Runs one agent's command, and leaves no process of it alive, even after SIGTERM or a kill of ours.

    python -P -m triggers.agents.minder COMMAND ARGUMENT...

An agent starts shells, and these start more processes. Some leave their session. Orphans become children of this
process, which has no others: so all its descendants belong to the agent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from functions.kernel.process.ending import adopt_orphans, end_children
from state.own_processes import tethered

GRACE_S = 5.0
"""Seconds for the agent to end by itself after SIGTERM."""
KILL_S = 20.0


def main(command: Sequence[str]) -> int:
    """The exit code of the command."""
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # tethered: where this process is killed, the agent itself gets a SIGTERM
    agent = subprocess.Popen(tethered(command), start_new_session=True)
    try:
        return agent.wait()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end(agent)


def _end(agent: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(agent.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        agent.wait(GRACE_S)
    if not end_children((), None, time.monotonic() + KILL_S):
        sys.stderr.write("nightjar: some processes of this agent cannot be ended\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
