"""Runs get a copy of the owner's project; the owner's own files are read once and never written."""

from __future__ import annotations

from pathlib import Path

import pytest

from state.errors import Invalid
from tests.workers.repository import unwatched
from workers.swarm import project as of_project
from workers.swarm.project import Project, taken
from workers.swarm.runs import a_job

SCRIPT = "LR = 0.001  # tune\nTOTAL_WALL_CLOCK_TIME = 300\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (folder := tmp_path / "home").mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return folder


async def tree_of(project: Project, root: Path, **values: object) -> dict[str, str]:
    """The files that a run with these constants finds, once the run has written all over them."""
    async with project.checkout(project.home, a_job("r-1", values, 60, 1), root) as built:
        found = {
            str(path.relative_to(built.path)): path.read_text()
            for path in sorted(built.path.rglob("*"))
            if path.is_file()
        }
        for path in built.path.iterdir():
            if path.is_file() and not path.is_symlink():
                path.write_text("overwritten")
    assert not built.folder.exists()
    return found


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_a_run_finds_the_whole_project_with_its_constants_set(home: Path, tmp_path: Path) -> None:
    (home / "prepare.py").write_text("OFFSET = 1\n")
    (home / "model").mkdir()
    (home / "model" / "blocks.py").write_text("WIDTH = 2\n")
    before = contents(home)
    project = taken(home / "train.py", tmp_path / "kept")

    found = await tree_of(project, tmp_path / "work", LR=0.0003)

    assert found | {"train.py": unwatched(found["train.py"])} == {
        "model/blocks.py": "WIDTH = 2\n",
        "prepare.py": "OFFSET = 1\n",
        "train.py": "LR = 0.0003  # tune\nTOTAL_WALL_CLOCK_TIME = 60\n",
    }
    assert contents(home) == before
    assert await tree_of(project, tmp_path / "work", LR=0.1) != found


async def test_what_the_owner_changes_meanwhile_changes_no_run(home: Path, tmp_path: Path) -> None:
    project = taken(home / "train.py", tmp_path / "kept")

    (home / "train.py").write_text("LR = 5\n")
    (home / "prepare.py").write_text("OFFSET = 1\n")

    assert set(await tree_of(project, tmp_path / "work")) == {"train.py"}
    assert taken(home / "train.py", tmp_path / "again").digest != project.digest


async def test_hidden_files_environments_and_earlier_results_are_left_out(home: Path, tmp_path: Path) -> None:
    for name in (
        ".git/config",
        ".env",
        "__pycache__/train.pyc",
        "env/pyvenv.cfg",
        "results.json",
        "sub/.secret",
    ):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("{}")
    (home / "sub" / "seen.txt").write_text("seen")

    found = await tree_of(taken(home / "train.py", tmp_path / "kept"), tmp_path / "work")

    assert set(found) == {"train.py", "sub/seen.txt"}


async def test_data_is_linked_and_only_data(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_project, "LARGEST_FOLDER", 10_000)
    monkeypatch.setattr(of_project, "LARGEST_FILE", 5_000)
    (home / "data").mkdir()
    (home / "data" / "train.bin").write_bytes(b"x" * 50_000)
    (home / "weights.bin").write_bytes(b"x" * 6_000)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "words.txt").write_text("words")
    (home / "words").symlink_to(elsewhere)

    project = taken(home / "train.py", tmp_path / "kept")

    assert project.linked == ("data", "weights.bin", "words")
    async with project.checkout(home, a_job("r-1", {}, 60, 1), tmp_path / "work") as built:
        assert (built.path / "data" / "train.bin").samefile(home / "data" / "train.bin")
        assert (built.path / "words" / "words.txt").read_text() == "words"
    assert (home / "data" / "train.bin").exists()
    assert (elsewhere / "words.txt").exists()


@pytest.mark.parametrize("kind", ["symlink", "large"])
async def test_the_script_itself_is_never_a_link(
    kind: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "symlink":
        (home / "train.py").rename(tmp_path / "real.py")
        (home / "train.py").symlink_to(tmp_path / "real.py")
    else:
        monkeypatch.setattr(of_project, "LARGEST_FILE", 5)

    found = await tree_of(taken(home / "train.py", tmp_path / "kept"), tmp_path / "work", LR=2.5)

    assert found["train.py"].startswith("LR = 2.5  # tune\n")
    assert (home / "train.py").read_text() == SCRIPT


def test_a_script_that_no_swarm_could_run_is_refused_by_its_path(home: Path, tmp_path: Path) -> None:
    (home / "train.py").write_text("print('val_bpb: 1')\n")

    with pytest.raises(Invalid, match=r"home/train\.py: it has no constant that a swarm could vary"):
        taken(home / "train.py", tmp_path / "kept")


async def test_a_run_of_a_script_that_sets_a_constant_again_is_checked_as_it_runs(
    home: Path, tmp_path: Path
) -> None:
    (home / "train.py").write_text(SCRIPT + "seed = 3\nexec(open('config.py').read())\n")
    project = taken(home / "train.py", tmp_path / "kept")

    script = (await tree_of(project, tmp_path / "work", LR=0.0003))["train.py"]

    assert unwatched(script).startswith("LR = 0.0003  # tune\nTOTAL_WALL_CLOCK_TIME = 60\nseed = 1\n")
    assert all(f'["judge"]({name!r}, ' in script for name in ("LR", "TOTAL_WALL_CLOCK_TIME", "seed"))
    assert script.count("\n") == 4
