"""Runs a module under a profiler: SIGUSR1 starts it, SIGUSR2 stops it and writes the profile to a file.

python -P -m bench._profiled FILE MODULE
"""

from __future__ import annotations

import cProfile
import runpy
import signal
import sys
from pathlib import Path


def main(file: Path, module: str) -> None:
    profile = cProfile.Profile()

    def begin(*_: object) -> None:
        profile.clear()
        profile.enable()

    def end(*_: object) -> None:
        profile.disable()
        draft = file.with_suffix(".draft")
        profile.dump_stats(draft)
        draft.replace(file)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
