"""Checkouts of real repositories: exact, private, and gone afterwards."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workers.repository import TRAIN, Repository, job, names, refused, unwatched
from workers.attempt.evaluator import EvaluatorChanged
from workers.attempt.job import TrainingJob
from workers.attempt.source import Unbuildable, UntrainableCode
from workers.attempt.worktree import checkout, read_inside, write_base

pytestmark = pytest.mark.process

MISSING = "0123456789" * 4
ONE_LINE = "@@ -0,0 +1 @@\n+x\n"


async def test_exactly_the_commit_is_checked_out_and_removed_afterwards(repo: Repository, root: Path) -> None:
    old = repo.commit({"train.py": "A = 1\r\n", "data/blob": b"\x00\xff"})
    repo.commit({"train.py": "A = 2\n"})

    async with checkout(repo.path, job(old[:10]), root) as built:
        assert (built.path / "train.py").read_bytes() == b"A = 1\r\n"
        assert (built.path / "data" / "blob").read_bytes() == b"\x00\xff"
        assert built.evaluator_hash == hashlib.sha256(b"TRUSTED = True\n").hexdigest()[:16]

    assert names(root) == []


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


@pytest.mark.parametrize("whose", ["user", "clone"])
async def test_no_filter_of_a_configuration_runs(
    repo: Repository, root: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\n"
    base = repo.commit({".gitattributes": "*.bin filter=lfs\n", "data.bin": pointer})
    home = root.parent / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    config = home / ".gitconfig" if whose == "user" else repo.path / ".git" / "config"
    ran = root.parent / "ran"
    with config.open("a") as file:
        file.write(f'[filter "lfs"]\n\tsmudge = touch {ran}; cat\n\trequired = true\n')
    asked = job(base, base_commit=base)

    async with checkout(repo.path, asked, root) as built:
        assert (built.path / "data.bin").read_text() == pointer
        files = built.folder / "scoring"
        files.mkdir()
        await write_base(repo.path, asked, files)
        assert (files / "data.bin").read_text() == pointer
        assert not (files / ".git").exists()

    assert not ran.exists()


async def test_a_commit_that_the_clone_lacks_is_rebuilt_from_its_patch(repo: Repository, root: Path) -> None:
    patch = _patch(repo, {"train.py": "A = 2\n", "image.bin": bytes(range(256)) * 9, "sub/new.py": "x\n"})

    async with checkout(repo.path, job(MISSING, base_commit=repo.base, patch=patch), root) as built:
        assert (built.path / "train.py").read_text() == "A = 2\n"
        assert (built.path / "image.bin").read_bytes() == bytes(range(256)) * 9
        assert (built.path / "sub" / "new.py").read_text() == "x\n"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "is not in the clone"),
        ({"base_commit": MISSING[::-1], "patch": b""}, "and its base '9876"),
        ({"commit_sha": "--help"}, "is not a commit hash"),
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

    await refused(repo, root, asked, Unbuildable, reason)


UNAPPLIED = r"does not apply to the tag's base commit .*git apply failed"


@pytest.mark.parametrize("path", ["../escaped.txt", ".git/hooks/post-checkout"])
async def test_a_patch_cannot_write_outside_the_tree(repo: Repository, root: Path, path: str) -> None:
    patch = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n{ONE_LINE}"

    asked = job(MISSING, base_commit=repo.base, patch=patch.encode())
    await refused(repo, root, asked, UntrainableCode, UNAPPLIED)


async def test_a_patch_cannot_write_through_a_link_that_it_makes(repo: Repository, root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    patch = (
        "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n"
        f"@@ -0,0 +1 @@\n+{outside}\n"
        "\\ No newline at end of file\n"
        "diff --git a/link/x b/link/x\nnew file mode 100644\n--- /dev/null\n+++ b/link/x\n" + ONE_LINE
    )

    asked = job(MISSING, base_commit=repo.base, patch=patch.encode())
    await refused(repo, root, asked, UntrainableCode, UNAPPLIED)

    assert names(outside) == []


TAMPERED: dict[str, dict[str, str | None]] = {
    "another evaluator": {"eval/prepare.py": "TRUSTED = False\n"},
    "a package of its name": {"eval/prepare/__init__.py": ""},
    "a compiled module of its name": {"eval/prepare.cpython-311-x86_64-linux-gnu.so": ""},
    "what Python imports at its start": {"sitecustomize.py": ""},
    "a module of the standard library": {"random.py": ""},
    "a module that it imports": {"numpy/__init__.py": ""},
    "a link to a package of its name": {"math": "-> linked", "linked/__init__.py": ""},
    "more data": {"data/part/b.txt": "b\n"},
}


@pytest.mark.parametrize(
    ("what", "way"), [*((what, "commit") for what in TAMPERED), ("another evaluator", "patch")]
)
async def test_code_that_changes_how_it_is_scored_is_refused(
    repo: Repository, root: Path, way: str, what: str
) -> None:
    evaluator = 'import numpy.linalg\nprint(f"{d["x"]}")\n'  # in the syntax of Python 3.12
    repo.commit({"eval/prepare.py": evaluator, "data/part/a.txt": "a\n", "own.py": ""})
    base = repo.git("rev-parse", "HEAD")
    cheat = _changed(repo, TAMPERED[what])
    patch = repo.git_bytes("diff", "--binary", base, cheat)
    how = job(cheat) if way == "commit" else job(MISSING, patch=patch)
    asked = replace(how, base_commit=base, evaluator="eval/prepare.py", evaluator_files=("data",))

    reason = r"is not the one of the tag's base|would be imported in the place"
    error = await refused(repo, root, asked, EvaluatorChanged, reason)

    assert isinstance(error, EvaluatorChanged)
    assert error.kind == "evaluator"
    assert next(iter(TAMPERED[what])) in error.detail


async def test_what_the_base_has_and_what_only_looks_like_it_is_no_tampering(
    repo: Repository, root: Path
) -> None:
    base = repo.commit({"random.py": "", "prepare/notes.txt": ""})
    ours = repo.commit(
        {
            "random.py": "X = 1\n",
            "queue/notes.py": "",
            "lib/random.py": "",
            "data/sitecustomize.txt": "",
            "prepare_2.py": "",
            "prepare.md": "",
            "prepare/more.py": "",
            "database/a.txt": "",
        }
    )

    async with checkout(
        repo.path, job(ours, base_commit=base, evaluator_files=("data.bin", "datab")), root
    ) as built:
        assert built.evaluator_hash is not None
        assert built.harm() is None


async def test_committed_bytecode_is_never_run(repo: Repository, root: Path) -> None:
    ours = repo.commit(
        {"__pycache__/prepare.cpython-311.pyc": b"x", "lib/__pycache__/a.pyc": b"x", "lib/a.py": ""}
    )

    async with checkout(repo.path, job(ours, base_commit=repo.base), root) as built:
        assert list(built.path.rglob("*.pyc")) == []
        assert (built.path / "lib" / "a.py").exists()


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("prepare.py", "the evaluator prepare.py or a file that it reads was changed"),
        ("data/new.txt", "the evaluator prepare.py or a file that it reads was changed"),
        (
            "prepare/__init__.py",
            "the run has made prepare/__init__.py, in the place of what the evaluator uses",
        ),
        ("math.py", "the run has made math.py, in the place of what the evaluator uses"),
        ("results.json", None),
        ("out/math.py", None),
    ],
)
async def test_what_a_run_does_to_its_evaluator_is_seen_afterwards(
    repo: Repository, root: Path, name: str, harm: str | None
) -> None:
    base = repo.commit({"data/a.txt": "a\n"})

    async with checkout(repo.path, job(base, base_commit=base, evaluator_files=("data",)), root) as built:
        assert built.harm() is None
        place = built.path / name
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        place.write_text("x\n")
        found = built.harm()

    assert (found is None) == (harm is None)
    assert found is None or (harm is not None and found.startswith(harm))


async def test_the_patch_of_a_commit_makes_the_tree_that_is_trained(repo: Repository, root: Path) -> None:
    (repo.path / "old.txt").write_text("moved\n" * 9)
    base = repo.commit({"gone.txt": "x\n", "bytes.bin": bytes(range(256))})
    (repo.path / "old.txt").rename(repo.path / "new.txt")
    (repo.path / "gone.txt").unlink()
    (repo.path / "run.sh").write_text("x\n")
    (repo.path / "run.sh").chmod(0o755)
    (repo.path / "link").symlink_to("train.py")
    ours = repo.commit(
        {"bytes.bin": bytes(range(255, -1, -1)), "latin.txt": b"caf\xe9\n", "crlf.txt": b"a\r\nb\r\n"}
    )
    repo.git("config", "diff.noprefix", "true")
    repo.git("config", "diff.external", "/bin/false")

    async with checkout(repo.path, job(ours, base_commit=base), root) as built:
        patch = built.source.patch
    assert patch is not None
    assert patch.decode()  # it is shown as text
    repo.git("checkout", "--quiet", "--detach", base)
    (repo.path.parent / "patch").write_bytes(patch)
    repo.git("apply", "--index", "--binary", str(repo.path.parent / "patch"))

    assert repo.git("write-tree") == repo.git("rev-parse", f"{ours}^{{tree}}")


async def test_a_patch_that_was_sent_is_kept_if_it_makes_the_same_files(repo: Repository, root: Path) -> None:
    ours = repo.commit({"train.py": TRAIN + "# more\n", "image.bin": bytes(range(256))})
    by_the_agent = repo.git_bytes("diff", "--binary", "--no-prefix", "--unified=0", repo.base, ours)
    short = repo.git_bytes("diff", "--binary", "--abbrev=4", repo.base, ours)

    for sent, differs in ((short, False), (by_the_agent, True), (b"", True), (None, False)):
        async with checkout(repo.path, job(ours, base_commit=repo.base, patch=sent), root) as built:
            assert built.source.differs is differs
            assert (built.source.patch is None) == (sent is short)


async def test_the_same_code_has_one_identity_whatever_its_seed(repo: Repository, root: Path) -> None:
    deeper = repo.commit({"train.py": TRAIN.replace("DEPTH = 8", "DEPTH = 12")})
    other_seed = repo.commit(
        {"train.py": TRAIN.replace("DEPTH = 8", "DEPTH = 12").replace("SEED = 1", "SEED = 7")}
    )
    more = repo.commit({"notes.txt": "x\n"})
    ways = {
        "as a commit": job(deeper),
        "as constants": job(repo.base, config_delta={"DEPTH": 12}),
        "as both": job(deeper, config_delta={"DEPTH": 12, "SEED": 3}),
        "with another seed": job(other_seed, seed=5),
        "as a patch": job(MISSING, patch=repo.git_bytes("diff", repo.base, deeper)),
    }
    others = {
        "the base": job(repo.base),
        "another value": job(repo.base, config_delta={"DEPTH": 13}),
        "another file": job(more),
    }

    async def identity(asked: TrainingJob) -> str:
        async with checkout(repo.path, replace(asked, base_commit=repo.base), root) as built:
            return built.source.tree_id

    same = {await identity(asked) for asked in ways.values()}
    different = {await identity(asked) for asked in others.values()}

    assert (len(same), len(different), same & different) == (1, 3, set())


@pytest.mark.parametrize(
    ("scripts", "place"),
    [
        (("main.py",), "main.py"),
        (("src/fit.py",), "src/fit.py"),
        (("pkg/mod/__main__.py", "pkg/mod.py"), "pkg/mod.py"),
    ],
)
async def test_constants_and_the_seed_are_set_in_the_file_that_runs(
    repo: Repository, root: Path, scripts: tuple[str, ...], place: str
) -> None:
    commit = repo.commit({place: TRAIN})
    one = job(commit, base_commit=repo.base, config_delta={"DEPTH": 12}, seed=7)
    other = replace(one, seed=9)

    async with checkout(repo.path, one, root, scripts) as built:
        assert unwatched((built.path / place).read_text()) == TRAIN.replace("8\nSEED = 1", "12\nSEED = 7", 1)
        assert (built.path / "train.py").read_text() == TRAIN
        tree_id = built.source.tree_id
    async with checkout(repo.path, other, root, scripts) as built:
        assert built.source.tree_id == tree_id


@pytest.mark.parametrize(
    ("script", "encoding"),
    [('DEPTH = 8\nprint(f"{d["x"]}")\n', "utf-8"), ("# coding: latin-1\nDEPTH = 8  # \xe9\n", "latin-1")],
)
async def test_constants_are_set_in_a_script_of_another_python_or_encoding(
    repo: Repository, root: Path, script: str, encoding: str
) -> None:
    commit = repo.commit({"train.py": script.encode(encoding)})

    async with checkout(repo.path, job(commit, config_delta={"DEPTH": 12}), root) as built:
        written = (built.path / "train.py").read_bytes().decode(encoding)
        assert unwatched(written) == script.replace("8", "12")


async def test_leftovers_of_a_killed_worker_go_and_a_later_fence_stays(repo: Repository, root: Path) -> None:
    left, later, other = root / "e-1@1@1", root / "e-1@1@9", root / "e-1@2@1"
    for folder in (left, later, other):
        (folder / "tree").mkdir(parents=True)

    async with checkout(repo.path, job(repo.base, fence=3), root):
        assert not left.exists()

    assert names(root) == ["e-1@1@9", "e-1@2@1"]


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

    assert names(root) == []
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
        assert names(root) == ["e-1@1@3"]

    assert names(outside) == ["file"]
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


def _changed(repo: Repository, files: Mapping[str, str | None]) -> str:
    for name, content in files.items():
        place = repo.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        if content is not None and content.startswith("-> "):
            place.symlink_to(content.removeprefix("-> "))
        elif content is not None:
            place.write_text(content)
    return repo.commit({})
