"""What runs get of a project beside the files of a commit: its ignored data, submodules and files of Git LFS."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.workers.attempt.test_runner import failed, train, trained
from tests.workers.repository import Repository, job, refused
from tests.workers.tiers import needs
from workers.attempt import beside_commit
from workers.attempt.isolation import Tier
from workers.attempt.job import FailedTraining, TrainedRun
from workers.attempt.source import Unbuildable, UntrainableCode
from workers.attempt.worktree import checkout, write_base

pytestmark = pytest.mark.process

READS = 'print(len(open("data/train.bin", "rb").read()))\nprint("val_bpb: 0.9")\n'


@pytest.fixture
def tier() -> Tier:
    return needs("bwrap")


def ignored(repo: Repository, path: str = "data/train.bin", content: bytes = b"1234") -> Path:
    """A file of the project that no commit has."""
    place = repo.path / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    with (repo.path / ".git" / "info" / "exclude").open("a") as file:
        file.write(f"/{path}\n")
    return place


def submodule(repo: Repository, path: str = "mod") -> Repository:
    """Another project, which this one has as a submodule with `V = 1`."""
    other = Repository(repo.path.parent / "other")
    other.commit({"lib.py": "V = 0.25\n"})
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.path), path)
    repo.commit({})
    return other


def pointer(content: bytes) -> str:
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n"


def fetched(repo: Repository, content: bytes) -> Path:
    """An object in the project's own store of Git LFS."""
    oid = hashlib.sha256(content).hexdigest()
    place = repo.path / ".git" / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


async def test_ignored_data_that_its_owner_links_is_read_by_its_relative_path(
    repo: Repository, tier: Tier
) -> None:
    ignored(repo)

    result = await trained(repo, READS, tier=tier, links=("data",))

    assert result.log_tail.startswith("4\n")


async def test_linked_data_is_not_written_where_runs_are_confined(repo: Repository, tier: Tier) -> None:
    data = ignored(repo)

    result = await failed(repo, "open('data/train.bin', 'wb')", tier=tier, links=("data",))

    assert data.read_bytes() == (b"" if tier == "none" else b"1234")
    if tier != "none":
        assert "-> runs read data/train.bin where the project has it, and may not write there" in result.error


async def test_only_what_git_does_not_carry_is_linked(repo: Repository, root: Path) -> None:
    """As in nanoGPT: a folder of the commit with scripts, where data and compiled code lie beside them."""
    sha = repo.commit({"data/nano/prepare.py": "NEW = 1\n", "data/nano/old.py": ""})
    sha = repo.commit({".gitignore": "*.bin\n__pycache__\n", "data/nano/prepare.py": "NEW = 2\n"})
    for name in ("train.bin", "val.bin", "__pycache__/x.pyc"):
        ignored(repo, f"data/nano/{name}")
    repo.git("rm", "--quiet", "data/nano/old.py")
    without = repo.commit({})
    repo.git("checkout", "--quiet", sha)
    (repo.path / "data/nano/prepare.py").write_text("NEW = 'not committed'\n")

    async with checkout(repo.path, job(without), root, links=("data",)) as built:
        found = sorted(str(p.relative_to(built.path / "data")) for p in (built.path / "data").rglob("*"))
        assert found == ["nano", "nano/prepare.py", "nano/train.bin", "nano/val.bin"]
        assert (built.path / "data/nano/prepare.py").read_text() == "NEW = 2\n"
        assert not (built.path / "data/nano").is_symlink()


@pytest.mark.parametrize(
    ("links", "stands_at", "is_link"),
    [
        ("data", "data", True),
        ("data", "data/deep/train.bin", False),
        ("data/deep/train.bin", "data/deep", True),
        ("data/deep/train.bin", "data", False),
    ],
)
async def test_a_commit_cannot_put_anything_in_the_place_of_linked_data(
    repo: Repository, root: Path, tmp_path: Path, links: str, stands_at: str, is_link: bool
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = repo.path / stands_at
    place.parent.mkdir(parents=True, exist_ok=True)
    if is_link:
        place.symlink_to(outside)
        ours = repo.commit({})
    else:
        ours = repo.commit({stands_at: "easier"})
    repo.git("reset", "--quiet", "--hard", repo.base)
    ignored(repo, "data/deep/train.bin")

    await refused(repo, root, job(ours), UntrainableCode, "in the place of data", links=(links,))
    assert list(outside.iterdir()) == []


async def test_path_size_and_time_of_linked_data_belong_to_the_code_s_identity(
    repo: Repository, root: Path
) -> None:
    data = ignored(repo)

    async def identity(*links: str) -> str:
        async with checkout(repo.path, job(repo.base), root, links=links) as built:
            return built.source.tree_id

    without, first = await identity(), await identity("data")
    assert await identity("data") == first != without

    os.utime(data, ns=(1, 1))
    touched = await identity("data")
    data.write_bytes(b"12345")
    os.utime(data, ns=(1, 1))
    longer = await identity("data")
    data.rename(data.with_name("other.bin"))

    assert len({without, first, touched, longer, await identity("data")}) == 5


async def test_linked_data_that_is_gone_is_no_fault_of_the_code(repo: Repository, root: Path) -> None:
    data = ignored(repo)
    data.unlink()
    data.parent.rmdir()

    await refused(repo, root, job(repo.base), Unbuildable, "data is to be linked into runs", links=["data"])


async def test_the_evaluator_that_scores_has_the_project_s_data_and_submodules_too(
    repo: Repository, tmp_path: Path
) -> None:
    ignored(repo)
    submodule(repo)
    base = repo.commit({"weights.pt": pointer(b"weights"), ".gitattributes": "*.pt filter=lfs\n"})
    fetched(repo, b"weights")
    files = tmp_path / "files"
    files.mkdir()

    await write_base(repo.path, job(base, base_commit=base), files, links=("data",))

    assert (files / "data" / "train.bin").read_bytes() == b"1234"
    assert (files / "mod" / "lib.py").read_text() == "V = 0.25\n"
    assert (files / "weights.pt").read_bytes() == b"weights"
    assert [*files.rglob(".git")] == []


async def test_a_submodule_is_at_the_commit_s_own_commit_whatever_the_project_s_is(
    repo: Repository, root: Path
) -> None:
    other = submodule(repo)
    old = repo.git("rev-parse", "HEAD")
    newer = other.commit({"lib.py": "V = 2\n", "deep/__pycache__/lib.pyc": b"1"})
    repo.git("-C", "mod", "fetch", "--quiet")
    repo.git("-C", "mod", "checkout", "--quiet", newer)
    new = repo.commit({})

    for commit, text in ((old, "V = 0.25\n"), (new, "V = 2\n")):
        async with checkout(repo.path, job(commit), root) as built:
            assert (built.path / "mod" / "lib.py").read_text() == text
            assert not (built.path / "mod" / ".git").exists()
            assert not (built.path / "mod" / "deep" / "__pycache__").exists()
    patch = repo.git_bytes("diff", "--binary", old, new)
    async with checkout(repo.path, job("0" * 40, base_commit=old, patch=patch), root) as built:
        assert (built.path / "mod" / "lib.py").read_text() == "V = 2\n"


async def test_submodules_of_submodules_are_filled_too(repo: Repository, root: Path) -> None:
    (repo.path.parent / "in").mkdir()
    middle = Repository(repo.path.parent / "in" / "middle")
    submodule(middle, "inner")
    allow = ("-c", "protocol.file.allow=always", "submodule", "--quiet")
    repo.git(*allow, "add", str(middle.path), "mod")
    repo.git(*allow, "update", "--init", "--recursive")
    sha = repo.commit({})

    async with checkout(repo.path, job(sha), root) as built:
        assert (built.path / "mod" / "inner" / "lib.py").read_text() == "V = 0.25\n"

    repo.git("submodule", "--quiet", "deinit", "--force", "mod")  # its repository stays in .git/modules
    async with checkout(repo.path, job(sha), root) as built:
        assert (built.path / "mod" / "inner" / "lib.py").read_text() == "V = 0.25\n"


async def test_a_submodule_s_commit_that_the_project_lacks_says_how_to_fetch_it(
    repo: Repository, root: Path
) -> None:
    submodule(repo)
    repo.git("update-index", "--cacheinfo", f"160000,{'1' * 40},mod")
    repo.git("commit", "--quiet", "--message=newer")

    asked = job(repo.git("rev-parse", "HEAD"))
    error = await refused(repo, root, asked, Unbuildable, "the submodule mod is at 1111")
    assert "submodule update --init --recursive" in (error.hint or "")


async def test_a_submodule_without_a_copy_stays_empty_and_a_run_that_needs_it_is_told(
    repo: Repository, tier: Tier
) -> None:
    submodule(repo)
    repo.git("submodule", "--quiet", "deinit", "--force", "mod")
    for folder in sorted((repo.path / ".git" / "modules").rglob("*"), reverse=True):
        folder.rmdir() if folder.is_dir() else folder.unlink()

    needed = await train(repo, "from mod.lib import V", tier=tier)
    unneeded = await train(repo, "import os; print(os.listdir('mod'), '\\nval_bpb: 1')", tier=tier)

    assert isinstance(needed, FailedTraining)
    assert needed.error.splitlines()[1] == (
        "-> the submodule mod has no copy in the project, so runs find it empty:"
        f" git -C {repo.path} submodule update --init --recursive"
    )
    assert isinstance(unneeded, TrainedRun)


@pytest.mark.parametrize("how", ["a link", "another project around it"])
async def test_a_submodule_never_comes_from_another_project(
    repo: Repository, root: Path, tmp_path: Path, how: str
) -> None:
    private = Repository(tmp_path / "private")
    secret = private.commit({"secret.txt": "planted"})
    if how == "a link":
        (repo.path / "x").symlink_to(tmp_path)
        (repo.path / ".git" / "info" / "exclude").write_text("x\n")
        path = "x/private"
    else:
        path = "private"
    repo.commit({".gitmodules": f'[submodule "a"]\n\tpath = {path}\n\turl = {private.path}\n'})
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{secret},{path}")
    repo.git("commit", "--quiet", "--message=gitlink")

    async with checkout(repo.path, job(repo.git("rev-parse", "HEAD")), root) as built:
        assert list((built.path / path).iterdir()) == []
        assert built.empty == [path]


@pytest.mark.parametrize("storage", [None, "elsewhere"])
async def test_a_working_tree_reads_the_store_of_its_repository(
    repo: Repository, root: Path, tmp_path: Path, storage: str | None
) -> None:
    kept = fetched(repo, b"weights")
    sha = repo.commit({".gitattributes": "*.pt filter=lfs\n", "w.pt": pointer(b"weights")})
    if storage:
        repo.git("config", "lfs.storage", storage)
        kept.parents[3].rename(repo.path / ".git" / storage)
    repo.git("worktree", "add", "--quiet", str(tmp_path / "tree"))

    async with checkout(tmp_path / "tree", job(sha), root) as built:
        assert (built.path / "w.pt").read_bytes() == b"weights"


async def test_git_lfs_never_runs_a_program_and_a_run_s_copy_is_its_own(repo: Repository, root: Path) -> None:
    ran = repo.path.parent / "ran"
    kept = fetched(repo, b"weights")
    sha = repo.commit({"sub/.gitattributes": "w filter=lfs\n", "sub/w": pointer(b"weights")})
    repo.git("config", "filter.lfs.smudge", f"touch {ran}")
    repo.git("config", "filter.lfs.process", f"touch {ran}")

    async with checkout(repo.path, job(sha), root) as built:
        (built.path / "sub" / "w").write_bytes(b"others")

    assert not ran.exists()
    assert kept.read_bytes() == b"weights"


async def test_what_git_lfs_has_not_fetched_says_git_lfs_pull(repo: Repository) -> None:
    repo.commit({".gitattributes": "*.pt filter=lfs\n", "w.pt": pointer(b"weights")})

    result = await failed(repo, "print(open('w.pt').read()); print('val_bpb: 1')")

    assert result.kind == "infra"
    assert "Git LFS has not fetched w.pt" in result.error
    assert f"git -C {repo.path} lfs pull" in result.error


def _of(oid: str, size: str = "7") -> str:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n"


@pytest.mark.parametrize(
    "content",
    [
        _of("../../../../../../etc/passwd".ljust(64, "/")),
        _of("a" * 64, "9" * 400),
        "version https://example.org/v1\n" + _of("a" * 64),
    ],
)
async def test_what_only_looks_like_a_pointer_stays_as_it_is(
    repo: Repository, root: Path, content: str
) -> None:
    sha = repo.commit({".gitattributes": "w filter=lfs\n", "w": content})

    async with checkout(repo.path, job(sha), root) as built:
        assert (built.path / "w").read_text() == content


async def test_a_pointer_that_is_a_link_or_names_no_size_of_its_object_gets_no_content(
    repo: Repository, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text(pointer(b"weights"))
    fetched(repo, b"weights")
    (repo.path / "w").symlink_to(outside)
    linked = repo.commit({".gitattributes": "w* filter=lfs\n"})
    async with checkout(repo.path, job(linked), root):
        assert outside.read_text() == pointer(b"weights")

    huge = repo.commit({"w2": pointer(b"weights").replace("size 7", f"size {10**17}")})
    await refused(repo, root, job(huge), Unbuildable, "Git LFS has not fetched w2")


async def test_copies_of_git_lfs_do_not_fill_the_disk(
    repo: Repository, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside_commit, "MOST_COPIED", 20)
    fetched(repo, b"weights")
    sha = repo.commit(
        {".gitattributes": "w* filter=lfs\n", **{f"w{n}": pointer(b"weights") for n in range(9)}}
    )

    async with checkout(repo.path, job(sha), root) as built:
        found = [(built.path / f"w{n}") for n in range(9)]
        assert {place.read_bytes() for place in found} == {b"weights"}
        assert sum(not place.is_symlink() for place in found) == 2


async def test_a_submodule_that_would_be_imported_in_the_evaluator_s_place_is_refused(
    repo: Repository, root: Path
) -> None:
    without = repo.commit({"prepare.py": "import metrics\n"})
    submodule(repo, "metrics")

    asked = job(repo.git("rev-parse", "HEAD"), base_commit=without)
    await refused(repo, root, asked, UntrainableCode, "metrics")
