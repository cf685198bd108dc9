"""Commands for training and for the evaluator, as operators write them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile
from posixpath import basename, normpath
from typing import Final

from state.errors import Invalid

SCRIPT: Final = "train.py"
"""The file that runs where no command is given."""

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PASS_ON = frozenset(
    {
        *("env", "nice", "ionice", "chrt", "timeout", "time", "nohup", "setsid", "stdbuf", "taskset"),
        *("numactl", "uv", "poetry", "pdm", "pipenv", "hatch", "rye", "pixi", "conda", "mamba"),
        *("micromamba", "xvfb-run", "torchrun", "accelerate", "deepspeed", "composer", "mpirun"),
        *("mpiexec", "srun", "horovodrun", "coverage", "ipython", "ipython3", "kernprof", "scalene"),
        *("nsys", "ncu", "py-spy", "strace"),
    }
)
"""Programs that start the Python program among their words, in the folder that they were started in."""
_OPAQUE = frozenset(
    {
        *("bash", "sh", "dash", "zsh", "fish", "make", "just"),
        *("docker", "podman", "singularity", "apptainer", "ssh"),
    }
)
"""Programs that run what their words do not say."""
_PASSING_MODULES = frozenset(
    {
        *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed"),
        *("cProfile", "profile", "trace", "coverage", "scalene", "kernprof", "pdb", "mpi4py", "viztracer"),
    }
)
"""The same for `python -m`."""
_ELSEWHERE = re.compile(r"(?:-C|--chdir|--directory|--cwd|--?wdir|--working-dir(?:ectory)?)(?:=.*)?|-C.+|-D")
"""Options of these programs that start it in another folder."""


def no_script(scripts: Sequence[str]) -> Invalid:
    """Why constants cannot be set in any of these."""
    if scripts:
        return Invalid(
            f"{' or '.join(map(repr, scripts))} is not a file of this code, so its constants cannot be set",
            hint="leave config_delta out",
        )
    return Invalid(
        "the worker's --command does not say which Python file it runs, so no constant can be set",
        hint="change the file itself and leave config_delta and seed out; or have an operator start the worker with"
        ' --command "python FILE"',
    )


def scripts_of(command: Sequence[str] | None) -> tuple[str, ...]:
    """Paths of the file that a command runs, inside the repository: the first that is a file there.

    None of them where that is not known, as of a shell script or of a file outside the repository.
    """
    if not command:
        return (SCRIPT,)
    return tuple(_started_by(list(command), ["."]))


def _started_by(words: list[str], roots: list[str]) -> Iterator[str]:
    """The files that a command line may run; modules lie below the `roots`."""
    program, rest = basename(words[0]), words[1:]
    if _PYTHON.fullmatch(program):
        yield from _run_by_python(rest, roots)
    elif program.endswith(".py"):
        yield from _file(words[0])
    elif program in _PASS_ON:
        yield from _passed_on(rest, roots, is_shell=program == "env")


def _passed_on(words: list[str], roots: list[str], *, is_shell: bool = False) -> Iterator[str]:
    """The files that run behind a launcher's own options: it names a program, a module or a file."""
    for place, word in enumerate(words):
        if _ELSEWHERE.fullmatch(word) or basename(word) in _OPAQUE:
            return
        if is_shell and word.startswith("PYTHONPATH="):
            roots = [*roots, *word.partition("=")[2].split(":")]
        if word in ("-m", "--module"):
            named = next((other for other in words[place + 1 :] if not other.startswith("-")), "")
            yield from _module(named, roots)
            return
        if word.startswith("-") or _ASSIGNMENT.match(word):
            continue
        program = basename(word)
        if _PYTHON.fullmatch(program) or program.endswith(".py") or program in _PASS_ON:
            yield from _started_by(words[place:], roots)
            return


def _run_by_python(words: list[str], roots: list[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word == "-" or word.startswith("--"):
            if word in ("-", "--version", "--help"):
                return
            if word == "--check-hash-based-pycs":
                next(rest, None)
            continue
        if not word.startswith("-"):
            yield from _file(word)
            return
        flags = "".join(takewhile(lambda letter: letter not in "cmWX", word[1:]))
        value = word[len(flags) + 2 :]
        match word[len(flags) + 1 : len(flags) + 2]:
            case "c":
                return
            case "m":
                named = value or next(rest, "")
                passed_on = named in _PASSING_MODULES
                yield from _passed_on(list(rest), roots) if passed_on else _module(named, roots)
                return
            case "W" | "X" if not value:
                next(rest, None)


def _file(path: str) -> Iterator[str]:
    """A script, or a folder with a `__main__.py`."""
    place = normpath(path)
    if place.startswith(("/", "..", "~")):
        return
    if place != ".":
        yield place
    if not place.endswith(".py"):
        yield normpath(f"{place}/__main__.py")


def _module(name: str, roots: Sequence[str]) -> Iterator[str]:
    if not all(part.isidentifier() for part in name.split(".")):
        return
    for root in roots:
        place = normpath(f"{root or '.'}/{name.replace('.', '/')}")
        if not place.startswith(("/", "..")):
            yield f"{place}/__main__.py"
            yield f"{place}.py"


_SCRIPT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*\.py")


def words_of(command: str) -> list[str]:
    """The words of the command. Raises Invalid: it does not run a Python script of the repository."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Invalid(f"the evaluator's command {command!r} cannot be read: {error}", hint=_HINT) from error
    if len(words) < 2 or words[0] != "python" or not _SCRIPT.fullmatch(words[1]):
        raise Invalid(
            f"the evaluator's command {command!r} is not `python SCRIPT.py [ARGUMENT...]`", hint=_HINT
        )
    return words


_HINT = (
    "the worker runs the script with the project's Python, from the base commit's files: name it by its path in the"
    " repository, such as `python prepare.py`"
)
