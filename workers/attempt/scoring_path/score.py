"""Runs a tag's evaluator after a training: no file of the experiment is on its path, and no other process reads it.

    python -I score.py <place, as JSON> <script> <argument>...

It is run by path with the project's Python, and imports only the standard library.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import runpy
import sys
from pathlib import Path

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def main(told: str, script: str, arguments: list[str]) -> int:
    """Run the script as a program; answers the exit status of a run without a score."""
    sys.path[:0] = [str(Path(script).parent), str(Path(__file__).parent)]
    evaluator = importlib.import_module("nightjar_evaluator")

    said = json.loads(told)
    evaluator.begin(evaluator.Place(Path(said["tree"]), said["path"], Path(said["folder"]), said["reach"]))
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    except evaluator.Unscored as problem:
        sys.stdout.flush()
        sys.stderr.write(f"\nunscored: {problem}\n")
        return int(problem.status)
    return 0


def guard() -> None:
    """Keep processes of the same user from reading or tracing this one, its pipes included; adopt orphans."""
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    guard()
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
