"""Free space and sizes of folders; the files of failed attempts are kept for a while, within limits."""

from __future__ import annotations

import math
import os
import subprocess
import time
from pathlib import Path

import pytest

from workers.attempt.usage import KeptAttempts, bytes_on_disk, remove_tree

MIB = 1024 * 1024


def fill(path: Path, size: int = MIB) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        os.fsync(file.fileno())  # some file systems count blocks when they write them
    return path


def test_files_count_once_wherever_they_stand_and_what_lies_outside_does_not(tmp_path: Path) -> None:
    fill(tmp_path / "outside" / "big", 4 * MIB)
    folder = tmp_path / "folder"
    first = fill(folder / "tree" / "a")
    fill(folder / "tmp" / "deep" / "er" / "b")
    for nth in range(5):
        os.link(first, folder / f"link{nth}")
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "file").symlink_to(tmp_path / "outside" / "big")
    (folder / "round").symlink_to(folder)

    assert 2 * MIB <= bytes_on_disk(folder) < 3 * MIB


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_what_lies_in_a_closed_folder_is_more_than_can_be_measured(tmp_path: Path) -> None:
    fill(tmp_path / "closed" / "big").parent.chmod(0o000)

    assert bytes_on_disk(tmp_path) == math.inf


def test_what_lies_under_a_name_that_is_too_long_is_more_than_can_be_measured(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        deeper = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)

    found = bytes_on_disk(tmp_path)

    remove_tree(tmp_path)
    assert found == math.inf


def test_empty_files_count_too(tmp_path: Path) -> None:
    for nth in range(200):
        (tmp_path / f"e{nth}").touch()

    assert bytes_on_disk(tmp_path) >= 200 * 512


def test_counting_stops_when_it_is_enough(tmp_path: Path) -> None:
    for nth in range(8):
        fill(tmp_path / f"f{nth}")

    assert MIB < bytes_on_disk(tmp_path, enough=MIB) <= 2 * MIB + 4096


KIB = 1024


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def attempt(work: Path, name: str, size: int = 64 * KIB) -> Path:
    folder = work / name
    (folder / "tree").mkdir(parents=True)
    with (folder / "tree" / "file").open("wb") as file:
        file.write(os.urandom(size))
        os.fsync(file.fileno())
    return folder


def kept(tmp_path: Path, *, for_s: float = 3600.0, most_bytes: float = 1024 * KIB) -> KeptAttempts:
    return KeptAttempts(tmp_path / "failed", for_s, most_bytes)


def names(keeper: KeptAttempts) -> set[str]:
    return {folder.name for folder in keeper.root.iterdir()} if keeper.root.exists() else set()


def aged(folder: Path | None, seconds: float) -> None:
    assert folder is not None
    then = time.time() - seconds
    os.utime(folder, (then, then))


def test_the_folder_of_a_failed_attempt_is_moved_away_whole(tmp_path: Path, work: Path) -> None:
    place = kept(tmp_path).keep(attempt(work, "t-1@1@1"))

    assert place is not None
    assert place == tmp_path / "failed" / "t-1@1@1"
    assert (place / "tree" / "file").stat().st_size == 64 * KIB
    assert list(work.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("where", ["tree", "tree/deep/below", "tmp"])
@pytest.mark.parametrize("bare", [False, True], ids=["repository", "bare repository"])
def test_no_git_of_a_person_who_looks_into_it_runs_what_the_attempt_configured(
    tmp_path: Path, work: Path, where: str, bare: bool
) -> None:
    folder = attempt(work, "t-1@1@1")
    repository, ran = folder / where, tmp_path / "ran"
    repository.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "--quiet", *(["--bare"] if bare else []), str(repository)], check=True)
    config = repository / ("config" if bare else ".git/config")
    settings = (
        "repositoryformatversion = 0",
        "bare = false",
        f"worktree = {'.' if bare else '..'}",
        f"fsmonitor = touch {ran}; false",
    )
    config.write_text("\n\t".join(("[core]", *settings)))
    repository.chmod(0o500)

    place = kept(tmp_path).keep(folder)

    assert place is not None
    subprocess.run(["git", "status"], cwd=place / where, check=False, capture_output=True)
    assert not ran.exists()
    assert not [*place.rglob(".git")]


def test_the_oldest_go_when_the_cap_is_reached(tmp_path: Path, work: Path) -> None:
    keeper = kept(tmp_path, most_bytes=300 * KIB)
    for nth in range(3):
        aged(keeper.keep(attempt(work, f"t-{nth}@1@1")), 100 - nth)

    keeper.keep(attempt(work, "t-3@1@1", 180 * KIB))

    assert names(keeper) == {"t-2@1@1", "t-3@1@1"}


def test_a_folder_over_the_cap_is_not_kept_and_pushes_nothing_out(tmp_path: Path, work: Path) -> None:
    keeper = kept(tmp_path, most_bytes=150 * KIB)
    keeper.keep(attempt(work, "small@1@1"))

    assert keeper.keep(attempt(work, "large@1@1", 200 * KIB)) is None
    assert names(keeper) == {"small@1@1"}


def test_what_was_kept_for_long_enough_is_removed(tmp_path: Path, work: Path) -> None:
    keeper = kept(tmp_path, for_s=60)
    aged(keeper.keep(attempt(work, "old@1@1")), 61)
    keeper.keep(attempt(work, "new@1@1"))

    keeper.expire()

    assert names(keeper) == {"new@1@1"}
