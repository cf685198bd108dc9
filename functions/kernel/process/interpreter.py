"""The Python that trains a project, and imports of its scripts that this Python lacks."""

from __future__ import annotations

import ast
import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from functions.formats.parsing import last_name, parsed
from functions.formats.train_command import SCRIPT
from functions.kernel.git import command, environment
from state.errors import Invalid

PROVIDED = frozenset(
    {"nightjar_report", "nightjar_predict", "nightjar_constants", "worker", "nightjar_evaluator"}
)
"""Modules that every run finds, or that its evaluator does."""
_PREPARE = "prepare.py"
_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
_HOME = Path(__file__).parents[3]
_UV_S = 60.0
_LOOK_S = 30.0
_LOOK = """
import sys
from importlib.util import find_spec
sys.path[:] = [place for place in sys.path if place not in ("", sys.argv[1])]
for name in sys.argv[2:]:
    try:
        found = find_spec(name) is not None
    except Exception:  # it is there, and wrong, or has no specification
        found = True
    if not found:
        print(name)
"""

_LIST = """
import sys
from importlib.metadata import distributions
sys.path[:] = [place for place in sys.path if place]
print("python==" + sys.version.split()[0])
found = {f"{one.name}=={one.version}" for one in distributions() if one.name}
print(*sorted(found, key=str.lower), sep="\\n")
"""


@dataclass(frozen=True)
class Interpreter:
    path: Path
    is_own: bool = False
    """Whether it is Nightjar's own, because no other was found."""


async def find_interpreter(repo: Path, environ: Mapping[str, str]) -> Interpreter:
    """The repository's `.venv`, the uv project's Python, the active environment's, conda's, else Nightjar's own.

    Raises:
        Invalid: the `.venv`, or the active environment, has a Python that this user cannot run.
    """
    own_place = repo / ".venv" / "bin" / "python"
    if _is_usable(own_place):
        return _known(own_place)
    if (of_project := await _found_by_uv(repo, environ)) is not None:
        return _known(of_project)
    for name in _ACTIVE:
        if environ.get(name) and _is_usable(active := Path(environ[name], "bin", "python")):
            return _known(active)
    return Interpreter(Path(sys.executable), is_own=True)


def named(python: str) -> Path:
    """The interpreter that an operator names: a path, an environment's folder, or on PATH. Raises Invalid."""
    place = Path(os.path.abspath(Path(python).expanduser()))
    for program in (place, place / "bin" / "python"):
        if _can_run(program):
            return program
    if os.sep not in python and (found := shutil.which(python)) is not None:
        return Path(found).absolute()
    raise Invalid(
        f"--python {python!r} is no program that can be run",
        hint="name an interpreter, or the folder of its environment",
    )


def shortcomings(interpreter: Interpreter, repo: Path, environ: Mapping[str, str]) -> list[str]:
    """Warnings about the interpreter before it trains, each with its remedy. Blocks."""
    python, found = interpreter.path, []
    if interpreter.is_own:
        found.append(
            f"Nightjar's own Python trains, {brief(repo)} has none: make a .venv there, activate another"
            " environment, or name one with --python"
        )
    try:
        missing = missing_imports(python, repo, environ)
    except Invalid as problem:
        return [*found, f"{problem.detail}: {problem.hint}"]
    left = {name for names in missing.values() for name in names if _is_module(repo, name)}
    if left:
        found.append(f"no commit has {', '.join(sorted(left))}, which its scripts import: commit it")
    missing = {
        script: kept for script, names in missing.items() if (kept := [n for n in names if n not in left])
    }
    if missing:
        which = ", ".join(f"{name} ({script})" for script, names in missing.items() for name in names)
        found.append(f"{python} does not have: {which}{_remedy(interpreter, repo)}")
    return found


def _is_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


def _remedy(interpreter: Interpreter, repo: Path) -> str:
    if interpreter.is_own:
        return ""
    if (repo / "uv.lock").is_file() and not (repo / ".venv").exists():
        return f"; `uv sync` in {brief(repo)} makes its environment"
    return "; install them there, or name another with --python"


def brief(place: Path) -> str:
    """A path for people: below their home it begins with `~`."""
    home = Path.home()
    return f"~/{place.relative_to(home)}" if place.is_relative_to(home) else str(place)


def missing_imports(python: Path, repo: Path, environ: Mapping[str, str]) -> dict[str, list[str]]:
    """Imports of train.py and prepare.py of the newest commit that the interpreter lacks. Blocks.

    Only the first name of a module is looked for. None is imported, because that may take long, or a GPU.

    Raises:
        Invalid: the interpreter does not run.
    """
    listed = _git(repo, "ls-tree", "-r", "--name-only", "-z", "HEAD").split("\0")
    known = PROVIDED.union(name.partition("/")[0].removesuffix(".py") for name in listed)
    texts = {
        script: _git(repo, "cat-file", "blob", f"HEAD:{script}")
        for script in (SCRIPT, _PREPARE)
        if script in listed
    }
    if any("sys.path" in text for text in texts.values()):  # modules may lie in any folder
        known |= {part.removesuffix(".py") for name in listed for part in name.split("/")}
    wanted = {
        script: [name for name in imported(text) if name not in known] for script, text in texts.items()
    }
    missing = _missing(python, sorted({name for names in wanted.values() for name in names}), environ)
    lacking = {script: [name for name in names if name in missing] for script, names in wanted.items()}
    return {script: names for script, names in lacking.items() if names}


def packages_of(python: Path, environ: Mapping[str, str]) -> list[str]:
    """Versions of an interpreter and its packages as `name==version`. Blocks. Raises Invalid: it does not run."""
    return _asked(python, _LIST, [], environ)


def _missing(python: Path, names: list[str], environ: Mapping[str, str]) -> set[str]:
    return set(_asked(python, _LOOK, [str(_HOME), *names], environ))


def _asked(python: Path, script: str, arguments: list[str], environ: Mapping[str, str]) -> list[str]:
    """The lines that a script prints in an interpreter."""
    kept = {name: environ[name] for name in ("HOME", "LANG", "PATH") if name in environ}
    try:
        done = _run([str(python), "-c", script, *arguments], env=kept, cwd="/")
        problem = f"exit status {done.returncode}: {done.stderr.strip()[-200:]}" if done.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:
        done, problem = None, str(error)
    if done is None or problem:
        raise Invalid(f"{python} does not run ({problem})", hint="name another with --python")
    return done.stdout.split()


def _git(repo: Path, *arguments: str) -> str:
    """The output of git; empty where it fails."""
    try:
        done = _run(command(repo, *arguments), env=environment())
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout


def _run(
    argv: list[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_LOOK_S,
        check=False,
    )


async def _found_by_uv(repo: Path, environ: Mapping[str, str]) -> Path | None:
    """The interpreter of a uv project; None if this is not one, or uv is missing or fails."""
    uv = shutil.which("uv", path=environ.get("PATH"))
    if uv is None or not (repo / "uv.lock").is_file():
        return None
    process = await asyncio.create_subprocess_exec(
        *(uv, "python", "find", "--project", str(repo)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_UV_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = Path(output.decode("utf-8", "replace").strip() or "/nonexistent")
    return found if process.returncode == 0 and _is_file(found) else None


def _known(python: Path) -> Interpreter:
    """An interpreter, and whether it is that of Nightjar's own environment."""
    is_own = python.parent.parent.resolve() == Path(sys.prefix).resolve()
    return Interpreter(Path(sys.executable) if is_own else python, is_own)


def _can_run(program: Path) -> bool:
    return _is_file(program) and os.access(program, os.X_OK)


def _is_file(place: Path) -> bool:
    return os.path.isfile(
        place
    )  # False below a folder that this user may not enter; Path.is_file raises there


def _is_usable(python: Path) -> bool:
    """Whether an environment has this Python. Raises Invalid: it has, and this user cannot run it."""
    try:
        python.stat()
    except OSError as problem:
        if isinstance(problem, (FileNotFoundError, NotADirectoryError)) and not os.path.lexists(python):
            return False
        why = problem.strerror
    else:
        if _can_run(python):
            return True
        why = "it is no program that this user may run"
    raise Invalid(
        f"{python} cannot be used: {why}",
        hint="make its environment anew as this user, or name another with --python",
    )


# -- Packages that a script imports

_CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
"""Exceptions that a script catches if it can do without a module."""


def imported(source: str) -> list[str]:
    """The first names of the modules that a script needs; none where it is no Python."""
    try:
        tree = parsed(source)
    except Invalid:
        return []
    return [*dict.fromkeys(_below(tree))]


def _below(tree: ast.AST) -> list[str]:
    found: list[str] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found += [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module.partition(".")[0]] if node.module and not node.level else []
        else:
            waiting += reversed(_needed(node))
    return found


def _needed(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that may not fail to import anything."""
    match node:
        case ast.Try(body=_, handlers=handlers, orelse=rest, finalbody=last) if any(map(_forgives, handlers)):
            return [*handlers, *rest, *last]
        case ast.With(items=items) if any(_suppresses(item.context_expr) for item in items):
            return []
        case ast.If(test=test, orelse=rest) if last_name(test) == "TYPE_CHECKING":
            return [*rest]
    return [*ast.iter_child_nodes(node)]


def _forgives(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches a module that is not there."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or last_name(kind) in _CAUGHT for kind in kinds)


def _suppresses(expression: ast.expr) -> bool:
    if not isinstance(expression, ast.Call) or last_name(expression.func) != "suppress":
        return False
    return any(last_name(kind) in _CAUGHT for kind in expression.args)
