"""What a folder takes of its disk, whatever a script makes of it."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from workers.attempt.disk import bytes_on_disk, free_mb
from workers.attempt.worktree import remove_tree

MIB = 1024 * 1024


def fill(path: Path, size: int = MIB) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        os.fsync(file.fileno())  # some file systems count blocks when they write them
    return path


def test_files_count_wherever_they_stand_below_the_folder(tmp_path: Path) -> None:
    fill(tmp_path / "tree" / "a")
    fill(tmp_path / "tmp" / "deep" / "er" / "b")

    assert 2 * MIB <= bytes_on_disk(tmp_path) < 3 * MIB


def test_a_sparse_file_counts_what_is_written_of_it(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1024 * MIB)

    assert bytes_on_disk(tmp_path) < MIB


def test_hard_links_count_once(tmp_path: Path) -> None:
    first = fill(tmp_path / "a")
    for nth in range(5):
        os.link(first, tmp_path / f"link{nth}")

    assert MIB <= bytes_on_disk(tmp_path) < 2 * MIB


def test_links_are_not_followed_out_of_the_folder_nor_in_circles(tmp_path: Path) -> None:
    fill(tmp_path / "outside" / "big", 4 * MIB)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "file").symlink_to(tmp_path / "outside" / "big")
    (folder / "round").symlink_to(folder)

    assert bytes_on_disk(folder) < MIB


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


def test_a_folder_that_is_removed_meanwhile_counts_nothing(tmp_path: Path) -> None:
    assert bytes_on_disk(tmp_path / "gone") == 0


def test_empty_files_count_too(tmp_path: Path) -> None:
    for nth in range(200):
        (tmp_path / f"e{nth}").touch()

    assert bytes_on_disk(tmp_path) >= 200 * 512


def test_counting_stops_when_it_is_enough(tmp_path: Path) -> None:
    for nth in range(8):
        fill(tmp_path / f"f{nth}")

    assert MIB < bytes_on_disk(tmp_path, enough=MIB) <= 2 * MIB + 4096


def test_a_folder_that_is_gone_takes_nothing(tmp_path: Path) -> None:
    assert bytes_on_disk(tmp_path / "gone") == 0


def test_a_folder_that_is_still_to_be_made_has_its_disks_room(tmp_path: Path) -> None:
    assert free_mb(tmp_path / "still" / "to" / "come") > 0
