"""The data of a project that runs get, and warnings about data that they would miss."""

from __future__ import annotations

from pathlib import Path

import pytest

from functions.kernel.process.run_files import left_behind, linked, own_functions
from state.errors import Invalid
from tests.workers.attempt.test_beside_commit import ignored, pointer, submodule
from tests.workers.repository import Repository


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.mark.parametrize("name", ["data", "./data/", "data//", "{repo}/data"])
def test_data_is_named_however_a_shell_completes_it(repo: Repository, name: str) -> None:
    data = ignored(repo).parent
    assert linked(repo.path, [name.format(repo=repo.path)]) == {"data": data}


def test_nightjar_toml_and_the_option_name_data_together(repo: Repository) -> None:
    ignored(repo)
    ignored(repo, "weights/base.pt")
    (repo.path / "nightjar.toml").write_text('link = ["data"]\n')
    assert [*linked(repo.path, ["weights/base.pt"])] == ["weights/base.pt", "data"]


@pytest.mark.parametrize(
    "name", ["..", "../x", "data/../../x", "/etc", "~/.ssh", ".", "", ".git", "x/.GIT/y", "none"]
)
@pytest.mark.parametrize("where", ["option", "file"])
def test_what_is_no_data_of_the_project_is_refused(repo: Repository, name: str, where: str) -> None:
    (repo.path / "nightjar.toml").write_text(f"link = [{name!r}]\n" if where == "file" else "")
    with pytest.raises(Invalid):
        linked(repo.path, [name] if where == "option" else [])


@pytest.mark.parametrize(
    "text", ["functions = 1", "links = ['data']", "link = 'data'", "link = [1]", "x", "[run]\ncommand = 'x'"]
)
def test_another_nightjar_toml_is_refused_with_the_line_that_works(repo: Repository, text: str) -> None:
    (repo.path / "nightjar.toml").write_text(text)
    with pytest.raises(Invalid, match=r"nightjar\.toml"):
        linked(repo.path, [])


def test_only_the_owner_links_what_leads_out_of_the_project(repo: Repository, tmp_path: Path) -> None:
    """A clone's own nightjar.toml and symbolic links are a stranger's."""
    (tmp_path / "private").mkdir()
    (repo.path / "data").symlink_to(tmp_path / "private")
    (repo.path / "nightjar.toml").write_text('link = ["data"]\n')

    with pytest.raises(Invalid, match="leads out of the project") as refused:
        linked(repo.path, [])
    assert refused.value.hint == "if runs may read that: --link data"
    assert linked(repo.path, ["data"]) == {"data": tmp_path / "private"}
    with pytest.raises(Invalid, match="is a symbolic link"):
        linked(repo.path, ["data/x"])
    repo.commit({})
    with pytest.raises(Invalid, match="leads out of the project") as refused:
        linked(repo.path, ["data"])
    assert refused.value.hint == f"if runs may read that: --data-dir {tmp_path / 'private'}"


SCRIPTS = {
    "its path": 'open("data/train.bin", "rb")',
    "a joined path": "import os; os.path.join('data', split)",
    "an f-string": 'open(f"{HERE}/data/{split}.bin")',
    "a folder above": "root = './data'",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_ignored_data_that_a_script_names_is_told_before_the_first_run(repo: Repository, script: str) -> None:
    ignored(repo)
    repo.commit({"train.py": script})
    assert left_behind(repo.path, (), None) == [
        "no commit has data: if runs read it, start `up` or the worker with --link data"
    ]
    assert left_behind(repo.path, ("data",), None) == []


def test_data_beside_files_of_git_is_linked_with_its_folder(repo: Repository) -> None:
    repo.commit({"data/nano/prepare.py": "", "train.py": "dataset = 'nano'\nos.path.join('data', dataset)"})
    for name in ("train.bin", "val.bin"):
        ignored(repo, f"data/nano/{name}")
    assert [line.rpartition(" with ")[2] for line in left_behind(repo.path, (), None)] == ["--link data/nano"]


def test_what_no_script_names_and_what_is_no_data_is_not_told(repo: Repository) -> None:
    repo.commit({"train.py": "open('.venv/lib'); open('.env'); import helper; 'helper.py'; 'train.bin'"})
    for name in (".venv/pyvenv.cfg", ".venv/lib/x", ".env", "helper.py", "other/x", "__pycache__/x.pyc"):
        ignored(repo, name)
    assert left_behind(repo.path, (), None) == []


def test_submodules_and_files_of_git_lfs_that_were_not_fetched_are_told(repo: Repository) -> None:
    submodule(repo)
    repo.commit({".gitattributes": "*.pt filter=lfs\n", "w.pt": pointer(b"weights")})
    assert left_behind(repo.path, (), None) == [f"Git LFS has not fetched w.pt: git -C {repo.path} lfs pull"]

    repo.git("submodule", "--quiet", "deinit", "--force", "mod")
    (repo.path / ".git" / "modules" / "mod").rename(repo.path / "gone")

    told = left_behind(repo.path, (), None)
    assert told[0].startswith("the submodule mod has no copy in the project")


def test_data_elsewhere_that_a_script_names_is_told_where_runs_may_not_read_it(
    repo: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".cache" / "skl").mkdir(parents=True)
    (home / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(home))
    repo.commit({"train.py": "open('~/.cache/skl'); open('~/.ssh'); open('/usr/bin/env'); open('/no/such')"})

    told = left_behind(repo.path, (), (repo.path,))

    skl = home / ".cache" / "skl"
    assert told == [f"runs may not read {skl} here: start `up` or the worker with --data-dir {skl}"]
    assert left_behind(repo.path, (), (repo.path, home / ".cache")) == []
    assert left_behind(repo.path, (), None) == []


def test_nightjar_toml_names_functions_of_your_own_unless_git_carries_it(repo: Repository) -> None:
    assert own_functions(repo.path) is None
    (repo.path / "nightjar.toml").write_text('functions = "mine"\n')
    assert own_functions(repo.path) == repo.path / "mine"
    assert linked(repo.path, []) == {}

    repo.git("add", "nightjar.toml")

    with pytest.raises(Invalid, match="git carries it") as refusal:
        own_functions(repo.path)
    assert f"--functions {repo.path / 'mine'}" in (refusal.value.hint or "")
