"""Checkouts of real repositories: exact, private, and gone afterwards."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from pathlib import Path

import pytest

from state.errors import Invalid
from tests.workers.repository import TRAIN, Repository, job
from workers.attempt.worktree import Unbuildable, checkout, read_inside

pytestmark = pytest.mark.process

MISSING = "0123456789" * 4
ONE_LINE = "@@ -0,0 +1 @@\n+x\n"


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "work"


async def test_exactly_the_commit_is_checked_out_and_removed_afterwards(repo: Repository, root: Path) -> None:
    old = repo.commit({"train.py": "A = 1\r\n", "data/blob": b"\x00\xff"})
    repo.commit({"train.py": "A = 2\n"})

    async with checkout(repo.path, job(old[:10]), root) as built:
        assert (built.path / "train.py").read_bytes() == b"A = 1\r\n"
        assert (built.path / "data" / "blob").read_bytes() == b"\x00\xff"
        assert built.evaluator_hash == hashlib.sha256(b"TRUSTED = True\n").hexdigest()[:16]

    assert _names(root) == []


async def test_nothing_of_the_operators_is_touched(
    repo: Repository, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked = root.parent / "hooked"
    (repo.path / ".git" / "hooks").mkdir(exist_ok=True)
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        (repo.path / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {hooked}\n")
        (repo.path / ".git" / "hooks" / hook).chmod(0o755)
    patch = _patch(repo, {"new.txt": "new\n"})
    (repo.path / "train.py").write_text("stashed\n")
    repo.git("stash")
    (repo.path / "train.py").write_text("dirty\n")
    before = repo.state()
    hooked.unlink(missing_ok=True)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")

    async with checkout(repo.path, job(MISSING, base_commit=repo.base, patch=patch), root) as built:
        assert (built.path / "new.txt").read_text() == "new\n"
        assert (built.path / "train.py").read_text() == TRAIN

    assert not hooked.exists()
    assert repo.state() == before


async def test_a_commit_that_the_clone_lacks_is_rebuilt_from_its_patch(repo: Repository, root: Path) -> None:
    patch = _patch(repo, {"train.py": "A = 2\n", "image.bin": bytes(range(256)) * 9, "sub/new.py": "x\n"})

    async with checkout(repo.path, job(MISSING, base_commit=repo.base, patch=patch), root) as built:
        assert (built.path / "train.py").read_text() == "A = 2\n"
        assert (built.path / "image.bin").read_bytes() == bytes(range(256)) * 9
        assert (built.path / "sub" / "new.py").read_text() == "x\n"


async def test_an_empty_patch_is_the_base(repo: Repository, root: Path) -> None:
    async with checkout(repo.path, job(MISSING, base_commit=repo.base, patch=b""), root) as built:
        assert (built.path / "train.py").read_text() == TRAIN


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "is not in the clone"),
        ({"base_commit": MISSING[::-1], "patch": b""}, "and its base '9876"),
        ({"base_commit": None, "patch": b""}, "is not in the clone"),
        ({"commit_sha": "--help"}, "is not a commit hash"),
        ({"commit_sha": "HEAD"}, "is not a commit hash"),
        ({"commit_sha": "deadbeef"}, "is not in the clone"),
        ({"patch": b"nonsense", "base_commit": "base"}, "git apply failed"),
        (
            {"evaluator": "../x", "commit_sha": "base", "base_commit": "base"},
            "not a path inside the repository",
        ),
        ({"experiment_id": "../x", "commit_sha": "base"}, "not an experiment id"),
    ],
)
async def test_what_cannot_be_built_says_why_and_leaves_nothing(
    repo: Repository, root: Path, fields: dict[str, object], reason: str
) -> None:
    repo.git("branch", "deadbeef")
    known = {name: repo.base if value == "base" else value for name, value in fields.items()}
    asked = job(**{"commit_sha": MISSING, **known})  # type: ignore[arg-type]  # a table of fields

    with pytest.raises(Unbuildable, match=reason):
        async with checkout(repo.path, asked, root):
            pass

    assert _names(root) == []


@pytest.mark.parametrize(
    "path", ["../escaped.txt", "/tmp/nightjar-escaped.txt", ".git/hooks/post-checkout", "a/../../e"]
)
async def test_a_patch_cannot_write_outside_the_tree(repo: Repository, root: Path, path: str) -> None:
    patch = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n{ONE_LINE}"

    with pytest.raises(Unbuildable, match="git apply failed"):
        async with checkout(repo.path, job(MISSING, base_commit=repo.base, patch=patch.encode()), root):
            pass


async def test_a_patch_cannot_write_through_a_link_that_it_makes(repo: Repository, root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    patch = (
        "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n"
        f"@@ -0,0 +1 @@\n+{outside}\n"
        "\\ No newline at end of file\n"
        "diff --git a/link/x b/link/x\nnew file mode 100644\n--- /dev/null\n+++ b/link/x\n" + ONE_LINE
    )

    with pytest.raises(Unbuildable, match="git apply failed"):
        async with checkout(repo.path, job(MISSING, base_commit=repo.base, patch=patch.encode()), root):
            pass

    assert _names(outside) == []


async def test_the_evaluator_comes_from_the_base_and_not_from_the_experiment(
    repo: Repository, root: Path
) -> None:
    cheat = repo.commit({"prepare.py": "TRUSTED = False\n"})

    async with checkout(repo.path, job(cheat, base_commit=repo.base), root) as built:
        assert (built.path / "prepare.py").read_text() == "TRUSTED = True\n"
        assert built.evaluator_hash == hashlib.sha256(b"TRUSTED = True\n").hexdigest()[:16]


@pytest.mark.parametrize("kind", ["link", "folder", "linked-parent"])
async def test_the_evaluator_is_never_written_through_a_link(repo: Repository, root: Path, kind: str) -> None:
    base = repo.commit({"eval/prepare.py": "TRUSTED = True\n"})
    victim = root.parent / "victim"
    victim.mkdir()
    (victim / "prepare.py").write_text("mine\n")
    (repo.path / "eval" / "prepare.py").unlink()
    if kind == "link":
        (repo.path / "eval" / "prepare.py").symlink_to(victim / "prepare.py")
    elif kind == "folder":
        (repo.path / "eval" / "prepare.py").mkdir()
        (repo.path / "eval" / "prepare.py" / "x").touch()
    else:
        (repo.path / "eval").rmdir()
        (repo.path / "eval").symlink_to(victim)
    cheat = repo.commit({})

    async with checkout(repo.path, job(cheat, base_commit=base, evaluator="eval/prepare.py"), root) as built:
        assert (built.path / "eval" / "prepare.py").read_text() == "TRUSTED = True\n"

    assert (victim / "prepare.py").read_text() == "mine\n"


async def test_constants_and_the_seed_are_set_in_the_script(repo: Repository, root: Path) -> None:
    async with checkout(repo.path, job(repo.base, config_delta={"DEPTH": 12}, seed=7), root) as built:
        assert (built.path / "train.py").read_text() == TRAIN.replace("8\nSEED = 1", "12\nSEED = 7", 1)


async def test_a_constant_that_is_not_there_is_invalid_before_the_run(repo: Repository, root: Path) -> None:
    with pytest.raises(
        Invalid, match=r"'WIDTH' is not a top-level name of the script; available: DEPTH, SEED"
    ):
        async with checkout(repo.path, job(repo.base, config_delta={"WIDTH": 12}), root):
            pass

    assert _names(root) == []


async def test_many_attempts_check_out_at_once(repo: Repository, root: Path) -> None:
    async def one(number: int) -> str:
        async with checkout(repo.path, job(repo.base, attempt=number), root) as built:
            await asyncio.sleep(0)
            return (built.path / "train.py").read_text()

    assert await asyncio.gather(*(one(number) for number in range(12))) == [TRAIN] * 12


async def test_leftovers_of_a_killed_worker_go_and_a_later_fence_stays(repo: Repository, root: Path) -> None:
    left, later, other = root / "e-1@1@1", root / "e-1@1@9", root / "e-1@2@1"
    for folder in (left, later, other):
        (folder / "tree").mkdir(parents=True)

    async with checkout(repo.path, job(repo.base, fence=3), root):
        assert not left.exists()

    assert _names(root) == ["e-1@1@9", "e-1@2@1"]


async def test_a_tree_that_the_script_has_locked_up_is_removed_all_the_same(
    repo: Repository, root: Path
) -> None:
    async with checkout(repo.path, job(repo.base), root) as built:
        (built.path / "closed" / "inner").mkdir(parents=True)
        (built.path / "closed" / "inner" / "file").touch()
        (built.path / "closed" / "inner").chmod(0o000)
        (built.path / "closed").chmod(0o500)
        (built.path / "link").symlink_to(repo.path)
        here = os.open(built.path, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("d" * 10, dir_fd=here)
            deeper = os.open("d" * 10, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
        os.close(here)

    assert _names(root) == []
    assert (repo.path / "train.py").exists()


async def test_a_leftover_that_the_script_replaced_by_a_link_is_removed_and_the_folder_behind_it_stays(
    repo: Repository, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    outside.chmod(0o500)
    os.mkdir(root)
    (root / "e-1@1@1").symlink_to(outside)

    async with checkout(repo.path, job(repo.base, fence=3), root):
        assert _names(root) == ["e-1@1@3"]

    assert _names(outside) == ["file"]
    assert stat.S_IMODE(outside.stat().st_mode) == 0o500


async def test_a_script_that_runs_git_sees_its_own_repository_only(repo: Repository, root: Path) -> None:
    async with checkout(repo.path, job(repo.base), root) as built:
        inner = Repository.__new__(Repository)
        inner.path = built.path

        assert inner.git("rev-parse", "HEAD") == repo.base
        assert inner.git("for-each-ref") == ""
        assert inner.git("status", "--porcelain") == ""


def test_only_regular_files_inside_the_tree_are_read(tmp_path: Path) -> None:
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "tree" / "up").symlink_to(tmp_path)
    (tmp_path / "tree" / "file").write_text("x")
    os.mkfifo(tmp_path / "tree" / "pipe")

    assert read_inside(tmp_path / "tree", "file") == b"x"
    assert [read_inside(tmp_path / "tree", name) for name in ("link", "up/secret", "pipe", "sub", "no")] == [
        None
    ] * 5


def _patch(repo: Repository, files: dict[str, str | bytes]) -> bytes:
    """`git diff --binary` of a commit that is dropped again."""
    repo.commit(files)
    patch = repo.git_bytes("diff", "--binary", repo.base, "HEAD")
    repo.git("reset", "--quiet", "--hard", repo.base)
    return patch


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []
