"""Commands of the command line, as a person would run them who has no terminal, in a folder that is no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import NoReturn

from tests.warm import call
from triggers.cli.__main__ import main

PATIENCE_S = 300.0


def command_line(*words: str) -> list[str]:
    """What `./nightjar` becomes."""
    return [sys.executable, "-P", "-m", "triggers.cli", *words]


def started_nightjar(data: Path, *words: str, stdin: str = "", **environment: str) -> CompletedProcess[str]:
    """Run a command on a lab's data by its command line."""
    return subprocess.run(
        command_line(*words),
        capture_output=True,
        text=True,
        check=False,
        input=stdin,
        cwd=data.parent,
        env=_environ(data, environment),
    )


def nightjar(data: Path, *words: str, stdin: str = "", **environment: str) -> CompletedProcess[str]:
    """The same in a process forked from a warm parent."""
    return forked_nightjar(words, _environ(data, environment), data.parent, stdin)


def forked_nightjar(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: str = ""
) -> CompletedProcess[str]:
    """Run a command in a fork of a warm parent, which has imported everything once: that takes most time."""
    with tempfile.TemporaryDirectory() as temporary:
        streams = [Path(temporary, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_text(stdin)
        process = call(_become, words, dict(environment), folder, streams)
        try:
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()  # nothing where it has ended
        return CompletedProcess(words, code, streams[1].read_text(), streams[2].read_text())


def _environ(data: Path, more: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "NIGHTJAR_DATA": str(data), **more}


def _become(words: Sequence[str], environ: Mapping[str, str], cwd: Path, streams: Sequence[Path]) -> NoReturn:
    """Turn this process into a command: set what a new Python would find."""
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    for number, (path, mode) in enumerate(zip(streams, "rww", strict=True)):
        with path.open(mode) as file:
            os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    sys.argv = ["nightjar", *words]
    sys.exit(main())
