"""The command `nightjar` of an installed wheel; `python -P -m nightjar -m MODULE` runs one of its processes.

Nightjar's packages lie in this folder. Only Nightjar's own processes have it on their path, so a script that the same
interpreter trains does not see them. An unsuitable Python can read this file, and is told which one is needed.
"""

import os
import sys

SUITABLE = ((3, 11), (3, 12), (3, 13))
MODULE = "-m"


def main() -> int:
    """Run the command line, or the module that the first arguments name; answers the exit code."""
    if sys.version_info[:2] not in SUITABLE:
        this = f"{sys.version_info[0]}.{sys.version_info[1]} ({sys.executable})"
        sys.stderr.write(f"nightjar: it needs Python 3.11, 3.12 or 3.13; this one is {this}\n")
        return 1
    here = os.path.dirname(os.path.abspath(__file__))
    if here not in sys.path:
        sys.path.insert(0, here)  # before everything: no other package called `state` may be taken for ours
    # for the lab's processes, as the launcher of a checkout has it
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if sys.argv[1:2] == [MODULE]:
        import runpy

        del sys.argv[:2]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return 0
    from triggers.cli.__main__ import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
