"""Which Python trains a project, and what it does not have."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from functions.kernel.process.interpreter import (
    Interpreter,
    find_interpreter,
    missing_imports,
    named,
    packages_of,
    shortcomings,
)
from state.errors import Invalid
from tests.workers.repository import Repository

OWN = Interpreter(Path(sys.executable), is_own=True)


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


def environment(folder: Path) -> Path:
    """An environment's folder; answers its interpreter."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    return python


async def found(repo: Repository, environ: Mapping[str, str]) -> Path:
    interpreter = await find_interpreter(repo.path, environ)
    assert not interpreter.is_own
    return interpreter.path


async def test_the_project_s_environment_comes_before_all_others(repo: Repository, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "uv").write_text(
        f"#!/bin/sh\n[ \"$*\" = 'python find --project {repo.path}' ] && echo {tools}/python\n"
    )
    (tools / "uv").chmod(0o755)
    (tools / "python").touch()
    conda, active = environment(tmp_path / "conda"), environment(tmp_path / "active")
    environ = {"PATH": f"{tools}:{os.environ['PATH']}"}

    assert await find_interpreter(repo.path, environ) == OWN
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):  # active, but Nightjar's own
        assert await find_interpreter(repo.path, {name: sys.prefix}) == OWN
    environ["CONDA_PREFIX"] = str(tmp_path / "conda")
    assert await found(repo, environ) == conda
    environ["VIRTUAL_ENV"] = str(tmp_path / "active")
    assert await found(repo, environ) == active
    (repo.path / "uv.lock").touch()
    assert await found(repo, environ) == tools / "python"
    own = environment(repo.path / ".venv")
    assert await found(repo, environ) == own


@pytest.mark.parametrize("name", [".venv", "VIRTUAL_ENV", "CONDA_PREFIX"])
@pytest.mark.parametrize("fault", ["removed", "no program", "a loop"])
async def test_an_environment_whose_python_cannot_be_used_is_refused_by_name(
    repo: Repository, tmp_path: Path, name: str, fault: str
) -> None:
    folder = repo.path / name if name == ".venv" else tmp_path / "active"
    python = environment(folder)
    if fault == "no program":
        python.chmod(0o644)
    else:
        python.unlink()
        python.symlink_to(python if fault == "a loop" else tmp_path / "removed" / "python3")

    with pytest.raises(Invalid, match=f"^{re.escape(str(python))} cannot be used: ") as refused:
        await find_interpreter(repo.path, {name: str(folder)})

    assert "or name another with --python" in (refused.value.hint or "")


def test_an_interpreter_tells_its_version_and_packages() -> None:
    first, *packages = packages_of(Path(sys.executable), {})
    assert first == f"python=={platform.python_version()}"
    assert f"pytest=={pytest.__version__}" in packages
    with pytest.raises(Invalid, match="does not run"):
        packages_of(Path("/bin/false"), {})


def test_an_operator_names_an_interpreter_in_any_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = environment(tmp_path / "env")
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.chdir(tmp_path)

    for word in (str(python), str(tmp_path / "env"), "env", "repo/../env/bin/python", "python"):
        assert named(word) == python
    for word in ("python9", "env/bin/python9", str(tmp_path)):
        with pytest.raises(Invalid, match="is no program that can be run"):
            named(word)


def test_what_the_scripts_import_and_the_interpreter_lacks_is_named(repo: Repository) -> None:
    repo.commit(
        {
            "train.py": "import os, torchless.nn\nfrom kernelless import fast\nimport model, prepare, data.words",
            "prepare.py": "import tokenless, json\ntry:\n    import flashless\nexcept ImportError:\n    pass",
            "model.py": "",
            "data/words.py": "",
        }
    )

    missing = missing_imports(Path(sys.executable), repo.path, os.environ)

    assert missing == {"train.py": ["torchless", "kernelless"], "prepare.py": ["tokenless"]}
    repo.commit({"train.py": "import notes, torchless", "prepare.py": ""})
    (repo.path / "notes.py").touch()
    uncommitted, lack = shortcomings(Interpreter(Path(sys.executable)), repo.path, os.environ)
    assert uncommitted == "no commit has notes, which its scripts import: commit it"
    assert "torchless (train.py)" in lack
    assert "notes" not in lack


def test_shortcomings_say_what_is_missing_where_and_what_helps(repo: Repository, tmp_path: Path) -> None:
    repo.commit({"train.py": "import torchless"})
    broken = environment(tmp_path / "broken")
    broken.write_text("#!/bin/sh\necho no libpython >&2; exit 127\n")

    own, lack = shortcomings(OWN, repo.path, os.environ)
    (unfit,) = shortcomings(Interpreter(broken), repo.path, os.environ)

    assert own.startswith(f"Nightjar's own Python trains, {repo.path} has none: ")
    assert lack.startswith(f"{sys.executable} does not have: torchless (train.py)")
    assert unfit == f"{broken} does not run (exit status 127: no libpython): name another with --python"
    (repo.path / "uv.lock").touch()
    (unsynced,) = shortcomings(Interpreter(Path(sys.executable)), repo.path, os.environ)
    assert unsynced.endswith(f"torchless (train.py); `uv sync` in {repo.path} makes its environment")
    shutil.rmtree(repo.path / ".git")
    assert shortcomings(Interpreter(Path(sys.executable)), repo.path, os.environ) == []
