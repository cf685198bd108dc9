"""The folder that is trained from, and the error for a folder that cannot be."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from functions.kernel.git import NAME_YOURSELF, check_repository, no_project, project_around
from state.errors import Invalid
from tests.workers.repository import Repository


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """A repository whose only train.py is src/train.py."""
    repo = Repository(tmp_path / "repo")
    (repo.path / "train.py").unlink()
    repo.commit({"src/train.py": "print('val_bpb: 0.9')"})
    return repo


def refusal(folder: Path, command: str | None = None) -> tuple[str, str | None]:
    with pytest.raises(Invalid) as refused:
        check_repository(folder, command)
    return refused.value.detail, refused.value.hint


def test_a_train_py_in_a_folder_is_named_with_the_options_that_train_it(repo: Repository) -> None:
    src, options = repo.path / "src", f"--repo {repo.path} --command 'python src/train.py'"

    assert refusal(src) == (f"{src} is a folder of the git repository {repo.path}", options)
    assert refusal(repo.path) == (f"{repo.path} has no train.py of its own", options)
    for here in (src, repo.path):
        assert project_around(here) is None
        assert (no_project(here).detail, no_project(here).hint) == refusal(repo.path)
        assert project_around(here, "python src/train.py") == repo.path
    check_repository(repo.path, "python src/train.py")
    assert refusal(src, "python train.py")[1] == f"--repo {repo.path}, whose top folder runs start in"


def test_the_train_py_of_the_folder_that_one_is_in_comes_first(repo: Repository) -> None:
    repo.commit({"a/train.py": "", "my runs/deep/train.py": "", "constrain.py": ""})
    hint = no_project(repo.path / "my runs" / "deep").hint
    words = shlex.split(hint or "")
    assert words[:4] == ["--repo", str(repo.path), "--command", "python 'my runs/deep/train.py'"]
    assert words[4:] == ["or", "--command", "python a/train.py", "or", "--command", "python src/train.py"]


def test_a_train_py_that_is_not_committed_is_to_be_committed_first(repo: Repository) -> None:
    (repo.path / "new").mkdir()
    (repo.path / "new" / "train.py").touch()
    assert no_project(repo.path / "new").hint == "commit new/train.py first"


@pytest.mark.parametrize("is_known", [True, False])
def test_who_cannot_commit_yet_is_told_how_to_give_git_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    known = "\n\tname = n\n\temail = n@example.org" if is_known else ""
    (tmp_path / ".gitconfig").write_text(f"[user]\n\tuseConfigOnly = true{known}\n")
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "repo")], check=True)

    detail, hint = refusal(tmp_path / "repo")

    assert detail == f"{tmp_path / 'repo'} has no commit yet"
    assert (hint == "commit train.py first") == is_known
    assert ((hint or "").endswith(NAME_YOURSELF)) == (not is_known)
